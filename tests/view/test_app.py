"""Behaviour common to all URLs: files of the page, errors, news by polling, notes, downloads."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from starlette.testclient import TestClient

from e2e.command import wait_until
from fedge.core.errors import StorageError
from fedge.view import pages, workspace
from fedge.view.app import make_app
from fedge.view.guard import CSRF_HEADER, AccessRules
from fedge.view.pages import spark_points
from view.test_exports import key_of

OpenPage = Callable[..., TestClient]


@pytest.mark.parametrize(
    ("name", "kind"), [("main.js", "text/javascript"), ("page.css", "text/css"), ("icon.svg", "image/svg+xml")]
)
def test_files_of_the_page(page: TestClient, name: str, kind: str) -> None:
    answer = page.get(f"/static/{name}")
    assert answer.status_code == 200
    assert answer.headers["content-type"].partition(";")[0] == kind
    assert answer.content == (Path(pages.__file__).parent / "static" / name).read_bytes()


@pytest.mark.parametrize("name", ["nothing.js", "page.css/", "0123456789ab/page.css", "", "app.py"])
def test_no_other_files(page: TestClient, name: str) -> None:
    answer = page.get(f"/static/{name}")
    assert answer.status_code == 404
    assert answer.json() == {"error": "there is no such page; go back to Runs"}


def test_the_drawing_library(page: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace.VegaBundle, "read", lambda self: b"code")
    (address,) = re.findall(r'name="fedge-bundle" content="(/static/vega-[\w.]+\.js)"', page.get("/").text)
    answer = page.get(address)
    assert (answer.content, answer.headers["content-type"].partition(";")[0]) == (b"code", "text/javascript")
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"


def test_errors_state_their_reason(page: TestClient) -> None:
    for path, status, told in (
        ("/nothing", 404, "there is no such page; go back to Runs"),
        ("/run/0123", 404, "no run with the key &#39;0123&#39; in this folder"),
        ("/?sort=x", 400, "no run has a setting or result"),
    ):
        answer = page.get(path)
        assert (answer.status_code, told in answer.text, "</html>" in answer.text) == (status, True, True)
    for path, status, told in (
        ("/api/nothing", 404, "there is no such page"),
        ("/api/run/0123", 404, "no run with the key '0123'"),
        ("/api/runs?sort=x", 400, "no run has"),
        ("/export/chart/curves.gif", 400, "expected a chart as svg, png, csv, json, got 'gif'"),
        ("/export/table/results.svg", 400, "expected a table, one of results, settings"),
        ("/api/notes/0", 405, "this address cannot be used that way"),
    ):
        answer = page.get(path)
        assert (answer.status_code, told in answer.json()["error"]) == (status, True), answer.text


def test_an_unexpected_error_names_its_type_and_no_path(page: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("/secret/path")

    monkeypatch.setattr(workspace.Workspace, "refresh", fail)
    for path in ("/", "/api/runs"):
        answer = page.get(path)
        assert answer.status_code == 500
        assert "the page failed with ZeroDivisionError, which is a defect of Fedge" in answer.text
        assert "secret" not in answer.text


def test_a_file_that_cannot_be_read_or_written_is_a_conflict(page: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise StorageError("the disk is\x1b[2J full")

    monkeypatch.setattr(workspace.Workspace, "refresh", fail)
    answer = page.get("/api/runs")
    assert (answer.status_code, answer.json()) == (409, {"error": "the disk is\\u001b[2J full"})


def test_large_answers_are_compressed(page: TestClient) -> None:
    headers = {"Accept-Encoding": "gzip"}
    assert page.get("/", headers=headers).headers["content-encoding"] == "gzip"
    assert "content-encoding" not in page.get("/api/news", headers=headers).headers


def test_news_by_polling(runs: Path, open_page: OpenPage) -> None:
    rules = AccessRules()
    with open_page(runs, rules) as page:
        first = page.get("/api/news").json()
        assert (first["seq"], first["reset"], first["events"], len(first["session"])) == (0, True, [], 16)
        key = key_of(page, "begun/seed-1")
        for tag in ("a", "b"):
            note = {"tags": [tag], "note": ""}
            page.post(f"/api/notes/{key}", json=note, headers={CSRF_HEADER: rules.csrf}).raise_for_status()

        def notes(since: Any) -> list[str]:
            found = page.get(f"/api/news?since={since}").json()
            assert (found["session"], found["reset"]) == (first["session"], False)
            return [event["data"]["tags"][0] for event in found["events"] if event["event"] == "note"]

        assert notes(0) == ["a", "b"]
        assert notes(first["seq"]) == ["a", "b"]
        last = page.get("/api/news").json()["seq"]
        assert notes(last) == []
        for wrong in ("x", "-1", last + 1000, "9" * 16, "9" * 5000, ""):
            assert page.get(f"/api/news?since={wrong}").json()["reset"] is True, wrong


def test_a_poll_wakes_the_watcher(runs: Path, open_page: OpenPage) -> None:
    with open_page(runs) as page:
        assert len(page.get("/api/runs").json()["rows"]) == 8  # what a page has shown
        (runs / "begun/seed-1/summary.json").write_text('{"rounds": 4}')

        def told() -> bool:
            return any(event["event"] == "run" for event in page.get("/api/news?since=0").json()["events"])

        wait_until(told, 0.05)


def test_records_since_a_wrong_cursor(page: TestClient) -> None:
    key = key_of(page, "begun/seed-1")
    for query in ("offset=x&generation=1", "offset=1&generation=x", "offset=1", f"offset={'9' * 19}&generation=1"):
        answer = page.get(f"/api/run/{key}/records?{query}")
        assert answer.status_code == 400
        assert answer.json()["error"].startswith("expected generation and offset as whole numbers")
    for query in ("", "generation=1", f"offset={'9' * 18}&generation={'9' * 18}&run=x"):
        answer = page.get(f"/api/run/{key}/records?{query}")
        assert [record["round"] for record in answer.json()["records"]] == [1, 2, 3, 4], query


def test_a_body_may_be_as_long_as_a_note(runs: Path, open_page: OpenPage) -> None:
    rules = AccessRules()
    page = open_page(runs, rules)
    address, headers = f"/api/notes/{key_of(page, 'begun/seed-1')}", {CSRF_HEADER: rules.csrf}
    assert page.post(address, content=b"{}".ljust(65_536), headers=headers).status_code == 200
    answer = page.post(address, content=b"{}".ljust(65_537), headers=headers)
    assert (answer.status_code, "at most 65536 bytes" in answer.json()["error"]) == (400, True)


def test_downloads(page: TestClient) -> None:
    for path, kind, name in (
        ("/export/runs.csv", "text/csv; charset=utf-8", "runs.csv"),
        ("/export/chart/curves.csv?q=rate", "text/csv; charset=utf-8", "curves.csv"),
        ("/export/chart/curves.json?q=rate", "application/json", "curves.json"),
        ("/export/chart/curves.svg?q=rate", "image/svg+xml", "curves.svg"),
        ("/export/chart/curves.png?q=rate", "image/png", "curves.png"),
        ("/export/table/results.csv?q=rate", "text/csv; charset=utf-8", "results.csv"),
    ):
        headers = page.get(path).headers
        assert headers["content-type"] == kind
        assert headers["content-disposition"] == f'attachment; filename="{name}"'
    assert page.get("/export/table/pairs.csv?q=nothing").text.strip() == ""


def test_the_table_of_groups_as_csv(page: TestClient) -> None:
    text = page.get(
        "/export/runs.csv?group=settings&column=accuracy&column=seed&where=algorithm.learning_rate=0.3"
    ).text
    (row,) = csv.DictReader(io.StringIO(text))
    (cell,) = page.get("/api/runs?group=settings&column=accuracy&where=algorithm.learning_rate=0.3").json()["rows"]
    found = cell["values"]["accuracy"]
    assert [float(row[f"accuracy{end}"]) for end in ("", " low", " high")] == [
        found[e] for e in ("mean", "low", "high")
    ]
    assert (row["accuracy n"], row["accuracy of"], row["seed"]) == ("3", "3", "3 values")
    assert not {"values", "spark", "spark_of"} & set(row)
    text = page.get("/export/runs.csv?column=accuracy&where=path=begun/seed-1").text
    (row,) = csv.DictReader(io.StringIO(text))
    assert float(row["accuracy"]) > 0


@pytest.mark.parametrize(
    ("values", "points"),
    [
        (None, ""),
        ([], ""),
        ([1.0], ""),
        ([0.0, 1.0], "1.0,18.0 79.0,2.0"),
        ([2.0, 1.0, 3.0], "1.0,10.0 40.0,18.0 79.0,2.0"),
        ([5.0, 5.0], "1.0,18.0 79.0,18.0"),
    ],
)
def test_the_points_of_a_sparkline(values: list[float] | None, points: str) -> None:
    assert spark_points(values) == points


def test_a_page_of_a_run_that_no_server_trained(page: TestClient) -> None:
    key = key_of(page, "begun/seed-1")
    answer = page.get(f"/server/{key}")
    assert answer.status_code == 400
    assert f"begun/seed-1 was not run by a server; open its page under /run/{key}" in answer.text


def test_links_keep_the_rest_of_the_view(page: TestClient) -> None:
    text = page.get("/?q=rate&sort=seed&limit=2&offset=2&column=seed").text
    addresses = [found.replace("&amp;", "&") for found in re.findall(r'href="(/\?[^"]*)"', text)]
    assert "/?q=rate&limit=2&column=seed&sort=-seed" in addresses  # the same column the other way round
    assert "/?q=rate&limit=2&column=seed&sort=accuracy" not in addresses  # no such column is shown
    assert "/?q=rate&sort=seed&limit=2&column=seed&offset=0" in addresses
    assert "/?q=rate&sort=seed&limit=2&column=seed&offset=4" in addresses
    (compare,) = re.findall(r'href="(/compare\?[^"]*)"', text)
    assert compare == "/compare?q=rate"


def test_the_first_page_has_the_first_chart_prepared(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, prepared = workspace.Workspace(runs), Event()
    monkeypatch.setattr(shared.bundle, "read", prepared.set)
    rules = AccessRules()
    headers = {"Authorization": f"Bearer {rules.token}"}
    with TestClient(make_app(shared, rules), base_url="http://localhost", headers=headers) as page:
        page.get("/api/runs").raise_for_status()
        assert not shared.shown.is_set()
        page.get("/").raise_for_status()
        assert prepared.wait(60)
