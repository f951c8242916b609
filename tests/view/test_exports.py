"""Pages as files, tables of the comparison, and the charts that the page adds."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from benchmarks.page_runs import make_run
from starlette.testclient import TestClient


class Addresses(HTMLParser):
    """The URLs that a browser would load or follow."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.found += [value or "" for name, value in attrs if name in ("href", "src", "action", "xlink:href")]


def key_of(page: TestClient, path: str) -> str:
    rows = page.get(f"/api/runs?where=path={path}").json()["rows"]
    found: str = rows[0]["key"]
    return found


def offline(page: TestClient, address: str) -> str:
    answer = page.get(address)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-disposition"].startswith("attachment")
    text = answer.text
    loaded = Addresses(text)
    assert not {"script", "link", "form", "img"} & set(loaded.tags)
    assert all(address.startswith("#") for address in loaded.found)
    assert "default-src 'none'" in text
    assert "csrf" not in text
    return text


def test_the_table_of_runs_as_a_file(page: TestClient) -> None:
    text = offline(page, "/export/runs.html?sort=-accuracy&limit=2")
    assert text.count("<tr data-row") == 8  # all rows, whatever the page shows
    assert "rounds.jsonl is damaged" in text
    assert "<polyline" in text


def test_a_comparison_as_a_file_has_its_charts(page: TestClient) -> None:
    text = offline(page, "/export/compare.html?q=rate&outcome=accuracy&py=accuracy&px=bytes")
    assert text.count("<figure") == text.count("<svg") >= 5
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))  # clip paths of one chart must not be those of another
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(ids)


def test_a_run_as_a_file(page: TestClient) -> None:
    key = key_of(page, "rate-0.1/seed-2")
    text = offline(page, f"/export/run/{key}.html")
    assert text.count("<svg") == 2
    assert "The last 10 of 10 rounds" in text
    assert "learning_rate" in text


def test_a_damaged_run_as_a_file_states_its_problem(page: TestClient) -> None:
    assert "rounds.jsonl is damaged" in offline(page, f"/export/run/{key_of(page, 'broken/seed-1')}.html")


def test_a_server_as_a_file(runs: Path, open_page: Callable[..., TestClient]) -> None:
    networked(runs / "rate-0.1" / "seed-1")
    page = open_page(runs)
    text = offline(page, f"/export/server/{key_of(page, 'rate-0.1/seed-1')}.html")
    assert "not finite" in text
    assert "digits-a" in text


def test_markup_in_a_name_stays_text_in_a_file(tmp_path: Path, open_page: Callable[..., TestClient]) -> None:
    for seed in (1, 2):
        make_run(tmp_path / "runs" / "a" / f"seed-{seed}", seed, name="<script>alert(1)</script>")
    page = open_page(tmp_path / "runs")
    for address in ("/export/runs.html", "/export/compare.html"):
        assert "&lt;script&gt;" in offline(page, address)


def table(page: TestClient, name: str, query: str = "q=rate") -> list[dict[str, str]]:
    answer = page.get(f"/export/table/{name}.csv?{query}")
    assert answer.status_code == 200, answer.text
    return list(csv.DictReader(io.StringIO(answer.text)))


def test_tables_of_a_comparison(page: TestClient) -> None:
    found = page.get("/api/compare?q=rate").json()
    results = table(page, "results")
    assert [float(row["accuracy"]) for row in results] == [g["results"]["accuracy"]["mean"] for g in found["groups"]]
    assert {row["accuracy n"] for row in results} == {"3"}
    settings = {row["setting"]: row for row in table(page, "settings")}
    assert len(set(list(settings["algorithm.learning_rate"].values())[1:])) == 2
    assert len(set(list(settings["model.name"].values())[1:])) == 1
    (pair,) = table(page, "pairs", "q=rate&outcome=accuracy")
    assert pair["pairs"] == "3"
    assert table(page, "importance", "q=rate&outcome=accuracy")[0]["setting"] == "algorithm.learning_rate"
    assert page.get("/export/table/nothing.csv").status_code == 400


def test_the_baseline_of_an_address_is_that_of_pairs_and_chart(page: TestClient) -> None:
    labels = [group["label"] for group in page.get("/api/compare?q=rate").json()["groups"]]
    query = {"q": "rate", "outcome": "accuracy", "y": "accuracy", "baseline": labels[1]}
    (pair,) = page.get("/api/compare", params=query).json()["pairs"]
    assert (pair["first"], pair["second"]) == (labels[0], labels[1])
    chart = page.get("/api/chart/pairs", params=query).json()
    (row,) = [row for rows in chart["spec"]["datasets"].values() for row in rows if "verdict" in row]
    assert row["mean"] == pytest.approx(100 * pair["difference"])
    assert f"--baseline {labels[1]} " in chart["command"]


@pytest.mark.parametrize("kind", ["curves", "bars", "pareto", "parallel", "pairs", "importance", "users"])
def test_charts_of_a_comparison_have_a_command_and_counts(page: TestClient, kind: str) -> None:
    answer = page.get(f"/api/chart/{kind}?q=rate&x=round" if kind == "curves" else f"/api/chart/{kind}?q=rate")
    if kind == "users":  # these runs have no clients
        assert answer.status_code == 400
        assert "user_accuracy" in answer.json()["error"]
        return
    found = answer.json()
    assert (found["n"], found["of"]) == (6, 6)
    assert found["command"].startswith("fedge plot ")
    assert f"--kind {kind}" in found["command"]


def test_a_command_names_folders_in_place_of_all_their_runs(page: TestClient, runs: Path) -> None:
    command = page.get("/api/chart/bars?where=algorithm.learning_rate=0.3").json()["command"]
    assert command.split()[2] == str(runs / "rate-0.3")
    some = page.get("/api/chart/bars?where=algorithm.learning_rate=0.3&where=seed<3").json()["command"]
    assert some.split()[2:4] == [str(runs / "rate-0.3" / f"seed-{seed}") for seed in (1, 2)]


def test_the_cost_of_rounds_of_one_run(page: TestClient) -> None:
    key = key_of(page, "rate-0.1/seed-1")
    spec = page.get(f"/api/chart/breakdown?run={key}&y=sim_seconds").json()["spec"]
    (rows,) = spec["datasets"].values()
    assert {row["part"] for row in rows} == {"download", "compute", "upload"}
    assert "simulated" in json.dumps(spec["encoding"]["y"])


def test_new_records_can_be_appended_to_the_curve_of_one_run(page: TestClient) -> None:
    key = key_of(page, "begun/seed-1")
    found = page.get(f"/api/chart/curves?run={key}&x=bytes_up").json()
    how, data = found["append"], found["spec"]["data"]
    assert data == {"name": how["data"]}
    last = found["spec"]["datasets"][how["data"]][-1]
    assert last["x"] == pytest.approx(how["total"] / how["x_size"])
    assert how["total"] == 4 * 315_560


EVENTS: list[dict[str, Any]] = [
    {"event": "join", "client": 0, "name": "digits-a"},
    {"event": "offer", "client": 0, "round": 1},
    {"event": "receive", "client": 0, "round": 1},
    {"event": "refuse", "name": "stranger", "reason": "unknown certificate"},
    {"event": "reject", "client": 0, "round": 2, "reason": "not finite"},
]


def networked(folder: Path) -> None:
    """Turn a fake run into the run of a server that has ended."""
    lines = [json.dumps({"time": f"2026-11-18T04:00:0{i}.000Z", **event}) for i, event in enumerate(EVENTS)]
    (folder / "events.jsonl").write_text("\n".join([*lines, '{"half']))
    (folder / "registry.sqlite").write_bytes(b"")
    status = {
        "state": "open",
        "time": "2026-11-18T04:00:09.000Z",
        "round": 2,
        "num_rounds": 10,
        "clients": {"settled": 1},
    }
    (folder / "status.json").write_text(json.dumps(status))
