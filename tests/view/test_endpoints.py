"""Answers of pages and endpoints for known runs."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Callable
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from benchmarks.page_runs import make_records, make_run
from starlette.requests import Request
from starlette.testclient import TestClient

from fedge.view.endpoints import Endpoints
from fedge.view.guard import CSRF_HEADER, AccessRules
from fedge.view.workspace import Workspace

T_TWO = 4.302652729911275
"""Student's t at 95% and two degrees of freedom, from tables."""


def rows(page: TestClient, query: str = "") -> list[dict[str, Any]]:
    answer = page.get(f"/api/runs?{query}")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["rows"]
    return found


def last_accuracy(seed: int, rate: float, rounds: int = 10) -> float:
    value: float = make_records(seed, rounds, rate)[-1]["accuracy"]
    return value


def test_runs_with_status_and_reason(page: TestClient) -> None:
    found = {row["path"]: row for row in rows(page)}
    assert len(found) == 8
    assert found["rate-0.1/seed-2"]["status"] == "complete"
    assert found["begun/seed-1"]["status"] == "unfinished"
    assert found["broken/seed-1"]["status"] == "damaged"
    assert "rounds.jsonl is damaged" in found["broken/seed-1"]["problem"]
    assert found["rate-0.1/seed-2"]["values"]["accuracy"]["value"] == last_accuracy(2, 0.1)


def test_a_group_states_mean_interval_and_n_of_all(page: TestClient) -> None:
    (found,) = rows(page, "group=settings&where=algorithm.learning_rate=0.3")
    values = [last_accuracy(seed, 0.3) for seed in (1, 2, 3)]
    cell = found["values"]["accuracy"]
    half = T_TWO * stdev(values) / sqrt(3)
    assert cell["mean"] == pytest.approx(fmean(values))
    assert (cell["low"], cell["high"]) == pytest.approx((fmean(values) - half, fmean(values) + half))
    assert (cell["n"], cell["of"], found["count"]) == (3, 3, 3)


def test_unfinished_runs_are_counted_and_not_averaged(runs: Path, open_page: Callable[..., TestClient]) -> None:
    make_run(runs / "rate-0.3" / "seed-4", 4, 10, 0.3, finished=False)
    (found,) = rows(open_page(runs), "group=settings&where=algorithm.learning_rate=0.3")
    assert (found["values"]["accuracy"]["n"], found["values"]["accuracy"]["of"]) == (3, 4)


def test_a_repeated_seed_counts_once(runs: Path, open_page: Callable[..., TestClient]) -> None:
    make_run(runs / "rate-0.3" / "seed-3-again", 3, 10, 0.3)
    (found,) = rows(open_page(runs), "group=settings&where=algorithm.learning_rate=0.3")
    assert (found["values"]["accuracy"]["n"], found["count"]) == (3, 4)


def test_simulated_and_measured_seconds_are_not_averaged_together(
    runs: Path, open_page: Callable[..., TestClient]
) -> None:
    (make_run(runs / "rate-0.3" / "seed-4", 4, 10, 0.3) / "registry.sqlite").write_bytes(b"")
    for group in ("settings", "data.name"):
        found = rows(open_page(runs), f"group={group}&where=algorithm.learning_rate=0.3")
        assert sorted(row["values"]["accuracy"]["of"] for row in found) == [1, 3]
        assert {"measured" in row["group"] for row in found} == {True, False}


def test_runs_without_the_grouping_setting_are_grouped_as_others(
    runs: Path, open_page: Callable[..., TestClient]
) -> None:
    make_run(runs / "plain" / "seed-1", edge={"clock": None})
    found = rows(open_page(runs), "group=edge.clock")
    assert [(row["group"], row["count"]) for row in found] == [("fixed", 7), ("Others", 1), ("Damaged", 1)]


@pytest.mark.parametrize(
    ("query", "number"),
    [
        ("where=algorithm.learning_rate=0.3", 3), ("where=algorithm.learning_rate>0.05&where=seed!=1", 4),
        ("where=status=damaged", 1), ("where=status!=damaged", 7), ("where=accuracy>0.8", 3), ("q=rate-0.1 seed-2", 1),
        ("q=FEDAVG", 7), ("where=path~begun", 1), ("where=data.name=digits", 7), ("where=rounds<10&where=rounds>0", 1),
        ("where=tag=none", 0), ("where=rounds_to_target<=10", 3),
    ],
)  # fmt: skip
def test_filters(page: TestClient, query: str, number: int) -> None:
    assert page.get(f"/api/runs?{query}").json()["matching"] == number


@pytest.mark.parametrize(
    "query",
    [
        "where=lerning_rate=1", "where=seed", "sort=nothing", "group=x", "column=y", "limit=0", "values=worst",
        "values=at", "round=x", "offset=-1",
    ],
)  # fmt: skip
def test_a_wrong_parameter_is_explained(page: TestClient, query: str) -> None:
    answer = page.get(f"/api/runs?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(query.partition("=")[0] if query != "values=at" else "round")
    assert "Traceback" not in page.get(f"/?{query}").text


def test_sort_puts_unknown_values_last(page: TestClient) -> None:
    for order in ("accuracy", "-accuracy"):
        values = [(row["values"].get("accuracy") or {}).get("value") for row in rows(page, f"sort={order}")]
        known = [value for value in values if value is not None]
        assert known == sorted(known, reverse=order.startswith("-"))
        assert values[: len(known)] == known


def test_values_best_and_at_round(page: TestClient) -> None:
    records = make_records(1, 10, 0.1)
    query = "q=rate-0.1/seed-1&values="
    best = rows(page, f"{query}best")[0]["values"]["accuracy"]["value"]
    assert best == max(record["accuracy"] for record in records)
    for number in (1, 4, 10):
        found = rows(page, f"{query}at&round={number}")[0]["values"]["accuracy"]["value"]
        assert found == records[number - 1]["accuracy"]
    assert rows(page, f"{query}at&round=11")[0]["values"]["accuracy"]["value"] is None


def test_pages_of_rows(page: TestClient) -> None:
    whole = [row["key"] for row in rows(page)]
    assert [row["key"] for row in rows(page, "offset=2&limit=3")] == whole[2:5]


def test_all_rows_are_in_the_csv(page: TestClient) -> None:
    text = page.get("/export/runs.csv?limit=1").text
    assert len(list(csv.DictReader(io.StringIO(text)))) == 8


def test_compare_states_what_is_left_out(page: TestClient) -> None:
    found = page.get("/api/compare").json()
    assert (found["selected"], found["compared"]) == (8, 7)
    assert [(one["path"], "damaged" in one["reason"]) for one in found["left_out"]] == [("broken/seed-1", True)]
    assert sorted(group["count"] for group in found["groups"]) == [1, 3, 3]
    assert [one["setting"] for one in found["differences"]] == ["rounds", "algorithm.learning_rate"]
    result = next(group for group in found["groups"] if group["count"] == 3)["results"]["accuracy"]
    assert (result["n"], result["of"]) == (3, 3)


def test_paired_differences_by_hand(page: TestClient) -> None:
    query = "where=algorithm.learning_rate>=0.1&where=status=complete&outcome=accuracy"
    (found,) = page.get(f"/api/compare?{query}").json()["pairs"]
    differences = [last_accuracy(seed, 0.3) - last_accuracy(seed, 0.1) for seed in (1, 2, 3)]
    assert found["difference"] == pytest.approx(fmean(differences))
    assert found["low"] == pytest.approx(fmean(differences) - T_TWO * stdev(differences) / sqrt(3))
    assert (found["pairs"], found["of"], found["verdict"]) == (3, 3, "better")


@pytest.mark.parametrize("kind", ["curves", "bars", "pareto"])
def test_charts_with_the_command_that_makes_them(page: TestClient, kind: str) -> None:
    y = "accuracy" if kind != "bars" else "rounds_to_target"
    found = page.get(f"/api/chart/{kind}?where=status=complete&y={y}").json()
    assert (found["n"], found["of"]) == (6, 6)
    assert found["spec"]["$schema"].startswith("https://vega.github.io/schema/vega-lite/")
    assert found["command"].startswith("fedge plot ")
    assert f"--kind {kind}" in found["command"]


def test_a_chart_that_these_runs_do_not_have_is_explained(page: TestClient) -> None:
    for path in ("grid", "users", "nothing", "curves?y=nothing", "curves?where=status=damaged", "timeline?at=x"):
        answer = page.get(f"/api/chart/{path}")
        assert answer.status_code == 400, path
        assert answer.json()["error"]


def test_a_chart_as_a_table(page: TestClient) -> None:
    text = page.get("/export/chart/curves.csv?where=algorithm.learning_rate=0.3").text
    means = [float(row["mean"]) for row in csv.DictReader(io.StringIO(text)) if row["mean"]]
    expected = [fmean(make_records(seed, 10, 0.3)[i]["accuracy"] for seed in (1, 2, 3)) for i in range(10)]
    assert means == pytest.approx([100 * value for value in expected])


def key_of(page: TestClient, query: str) -> str:
    key: str = rows(page, query)[0]["key"]
    return key


def test_one_run(page: TestClient, runs: Path) -> None:
    found = page.get(f"/api/run/{key_of(page, 'q=begun')}").json()
    assert found["status"] == "unfinished"
    assert found["resume"] == f"fedge resume {runs / 'begun' / 'seed-1'}"
    assert [record["round"] for record in found["records"]] == [1, 2, 3, 4]
    assert found["cursor"]["offset"] == (runs / "begun/seed-1/rounds.jsonl").stat().st_size
    whole = next(cost for cost in found["costs"] if cost["name"] == "bytes")
    assert whole["value"] == 4 * (316_200 + 315_560)
    assert sum(part["share"] for part in whole["parts"]) == pytest.approx(1)


def test_a_run_on_another_host_has_no_resume_command(page: TestClient, runs: Path) -> None:
    (runs / "begun/seed-1/lock").write_text("12345 678 far-away 0b5e\n")
    found = page.get(f"/api/run/{key_of(page, 'q=begun')}").json()
    assert (found["status"], found["host"], found["resume"]) == ("elsewhere", "far-away", None)
    assert found["last_record_s"] >= 0
    text = page.get(f"/run/{found['key']}").text
    assert "far-away" in text
    assert "fedge resume" not in text


def test_records_since_a_cursor(page: TestClient, runs: Path) -> None:
    key = key_of(page, "q=begun")
    cursor = page.get(f"/api/run/{key}").json()["cursor"]
    with (runs / "begun/seed-1/rounds.jsonl").open("a") as file:
        file.write(json.dumps({"round": 5, "accuracy": 0.5}) + "\n" + '{"round": 6')
    found = page.get(f"/api/run/{key}/records", params=cursor).json()
    assert ([record["round"] for record in found["records"]], found["restarted"]) == ([5], False)
    old = cursor | {"generation": 0}  # the run went back to a checkpoint since
    found = page.get(f"/api/run/{key}/records", params=old).json()
    assert ([record["round"] for record in found["records"]], found["restarted"]) == ([1, 2, 3, 4, 5], True)


def test_tags_and_notes_are_found_and_stay_with_the_run(runs: Path, open_page: Callable[..., TestClient]) -> None:
    rules = AccessRules()
    page = open_page(runs, rules)
    key = key_of(page, "q=begun")
    body = {"tags": ["good", "good", " "], "note": "look\nhere"}
    answer = page.post(f"/api/notes/{key}", json=body, headers={CSRF_HEADER: rules.csrf})
    assert answer.json() == {"key": key, "tags": ["good"], "note": "look\nhere"}
    assert [row["path"] for row in rows(page, "where=tag=good")] == ["begun/seed-1"]
    assert [row["path"] for row in rows(page, "q=look")] == ["begun/seed-1"]
    (runs / "begun").rename(runs / "moved")
    assert [row["path"] for row in rows(open_page(runs, rules), "where=tag=good")] == ["moved/seed-1"]
    assert sorted(path.name for path in (runs / "moved/seed-1").iterdir()) == [
        "config.json",
        "environment.json",
        "rounds.jsonl",
    ]


@pytest.mark.parametrize(
    "body", [b"", b"{}x", b'{"tags": "a"}', b'{"other": 1}', b'{"note": 1}', b"[" * 10_000, b"x" * 70_000]
)
def test_a_wrong_note_is_explained(runs: Path, open_page: Callable[..., TestClient], body: bytes) -> None:
    rules = AccessRules()
    page = open_page(runs, rules)
    answer = page.post(f"/api/notes/{key_of(page, 'q=begun')}", content=body, headers={CSRF_HEADER: rules.csrf})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("expected")
    assert not (runs / "fedge-notes.json").exists()


@pytest.mark.parametrize(
    "path", ["/", "/?group=settings", "/?group=sweep", "/compare", "/compare?where=status=complete"]
)
def test_pages_are_whole(page: TestClient, path: str) -> None:
    answer = page.get(path)
    assert answer.status_code == 200
    assert answer.text.rstrip().endswith("</html>")


def test_a_part_of_a_page(page: TestClient) -> None:
    text = page.get("/?q=begun", headers={"Fedge-Part": "rows"}).text
    assert "begun/seed-1" in text
    assert "<html" not in text
    assert "rate-0.1" not in text
    assert page.get("/", headers={"Fedge-Part": "main"}).status_code == 400


def test_a_request_for_the_head_of_the_live_stream_ends(tmp_path: Path) -> None:
    request = Request({"type": "http", "method": "HEAD", "path": "/api/live", "headers": []})
    answer = asyncio.run(Endpoints(Workspace(tmp_path)).live(request))
    assert (answer.status_code, answer.body, answer.media_type) == (200, b"", "text/event-stream")
