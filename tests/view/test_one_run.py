"""The page of one run: its costs, log and results; the cache of runs; charts by URL."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.page_runs import make_run
from starlette.datastructures import QueryParams
from starlette.testclient import TestClient

from fedge.core.errors import ConfigError
from fedge.view.loaded_runs import LoadedRuns
from fedge.view.page_charts import ChartQuery, as_csv, write_csv
from fedge.view.run_index import RunIndex
from fedge.view.run_log import read_log
from view.test_exports import key_of, networked


@pytest.fixture
def describe(page: TestClient) -> Callable[[str], dict[str, Any]]:
    def ask(path: str) -> dict[str, Any]:
        found: dict[str, Any] = page.get(f"/api/run/{key_of(page, path)}").json()
        return found

    return ask


def test_costs_with_their_parts(describe: Callable[[str], dict[str, Any]]) -> None:
    costs = {cost["name"]: cost for cost in describe("begun/seed-1")["costs"]}
    assert list(costs) == ["bytes", "sim_seconds", "messages", "local_steps", "flops", "energy_j", "seconds"]
    traffic, edge = costs["bytes"], costs["sim_seconds"]
    assert (traffic["title"], traffic["value"], traffic["text"]) == ("traffic", 4 * 631_760, "2.527 MB")
    assert [part["name"] for part in traffic["parts"]] == ["bytes_down", "bytes_up"]  # no backhaul was recorded
    assert traffic["parts"][0]["share"] == pytest.approx(316_200 / 631_760)
    assert edge["value"] == pytest.approx(4 * 0.2331376)  # of the rounds, whatever its parts sum to
    assert [part["name"] for part in edge["parts"]] == ["sim_down_s", "sim_compute_s", "sim_wait_s", "sim_up_s"]
    assert edge["parts"][2]["share"] == 0.0
    assert costs["messages"]["value"] == 80


def test_costs_of_runs_that_record_little(runs: Path, open_page: Callable[..., TestClient]) -> None:
    file = runs / "begun/seed-1/rounds.jsonl"
    file.write_text('{"round": 1, "bytes_up": 0, "sim_down_s": 1.0, "messages": "x", "text": "y"}\n')
    page = open_page(runs)
    found = page.get(f"/api/run/{key_of(page, 'begun/seed-1')}").json()
    if found["problem"] is None:
        (cost,) = found["costs"]
        assert (cost["name"], cost["value"], cost["parts"][0]["share"]) == ("bytes", 0, 0.0)
        assert "text" not in [field["name"] for field in found["fields"]]


def test_results_have_titles_and_units(describe: Callable[[str], dict[str, Any]], runs: Path) -> None:
    results = {one["name"]: one for one in describe("rate-0.1/seed-1")["results"]}
    summary = json.loads((runs / "rate-0.1/seed-1/summary.json").read_text())
    assert {name: one["value"] for name, one in results.items()} == summary
    assert results["accuracy"]["text"] == f"{100 * summary['accuracy']:.2f}%"
    assert results["rounds_to_target"] == {
        "name": "rounds_to_target",
        "title": "rounds to target",
        "value": None,
        "text": "–",
    }
    assert describe("begun/seed-1")["results"] == []


def test_how_old_the_last_record_is(describe: Callable[[str], dict[str, Any]], runs: Path) -> None:
    for age_s in (5_000, -5_000):
        os.utime(runs / "begun/seed-1/rounds.jsonl", (0, time.time() - age_s))
        assert max(0, age_s) <= describe("begun/seed-1")["last_record_s"] < max(0, age_s) + 600


def test_a_run_damaged_since_the_index_was_made(
    runs: Path, open_page: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedge.view.workspace._FRESH_S", 1e9)
    page = open_page(runs)
    key = key_of(page, "begun/seed-1")
    (runs / "begun/seed-1/rounds.jsonl").write_text("nonsense\x1b\n")
    found = page.get(f"/api/run/{key}").json()
    assert found["status"] == "damaged"
    assert "rounds.jsonl is damaged" in found["problem"]
    assert "\x1b" not in found["problem"]
    assert found["name"] == "begun"


def test_commands_of_a_hostile_folder_are_printable(tmp_path: Path, open_page: Callable[..., TestClient]) -> None:
    make_run(tmp_path / "runs" / "a\x1b b", finished=False)
    page = open_page(tmp_path / "runs")
    (row,) = page.get("/api/runs").json()["rows"]
    found = page.get(f"/api/run/{row['key']}").json()
    for word in ("show", "resume"):
        assert found[word] == f"fedge {word} $'{tmp_path}/runs/a\\x1b b'"


def test_the_log_of_a_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a")
    networked(run)
    records = [{"round": i, "accuracy": i / 1000, "bytes_up": 500_000} for i in range(1, 152)]
    found = read_log(run, {
        "records": records, "cursor": {"generation": 8}, "environment": {"started": "today"}, "networked": True,
        "config": {"code_changes": [{"round": 7}]}, "summary": {"rounds": 1}, "num_rounds": 200,
    })  # fmt: skip
    assert found["notes"] == [
        "started today",
        "resumed 3 times",
        "a change of the code after round 7 was accepted",
        "complete",
    ]
    assert (len(found["rounds"]), found["num_rounds"]) == (100, 151)
    assert found["rounds"][0] == {"round": 151, "text": "accuracy 15.10%, 75.5 MB up"}
    assert found["rounds"][-1]["round"] == 52
    assert [event["event"] for event in found["events"]] == ["reject", "refuse", "receive", "offer", "join"]


@pytest.mark.parametrize(("generation", "notes"), [(0, []), (2, []), (3, []), (4, ["resumed once"])])
def test_the_log_of_a_run_that_has_begun(tmp_path: Path, generation: int, notes: list[str]) -> None:
    networked(make_run(tmp_path / "a"))
    found = read_log(tmp_path / "a", {"cursor": {"generation": generation}, "records": []})
    assert found == {"notes": notes, "rounds": [], "num_rounds": 0, "events": []}
    assert read_log(tmp_path / "a", {}) == read_log(tmp_path / "a", {"cursor": None, "config": None})


def test_runs_are_cached_until_they_change_or_the_cache_is_full(runs: Path) -> None:
    index = RunIndex(runs)
    entries = {entry.path: entry for entry in index.scan().values()}
    one, two, three = (entries[f"rate-0.1/seed-{seed}"] for seed in (1, 2, 3))
    sizes = [(runs / entry.path / "rounds.jsonl").stat().st_size for entry in (one, two, three)]
    loaded = LoadedRuns(index, most_bytes=sizes[0] + sizes[1])
    first, second = loaded.get(one), loaded.get(two)
    assert loaded.get(one) is first  # and so it is used more recently than the second
    loaded.get(three)
    assert loaded.get(one) is first
    assert loaded.get(two) is not second
    with (runs / "rate-0.1/seed-1/rounds.jsonl").open("a") as file:
        file.write('{"round": 11}\n')
    changed = next(entry for entry in index.scan().values() if entry.path == one.path)
    assert len(loaded.get(changed).rounds) == 11
    tiny = LoadedRuns(index, most_bytes=0)
    assert tiny.get(two) is tiny.get(two)  # the last one stays, however large


def query(kind: str, text: str) -> ChartQuery:
    return ChartQuery.parse(kind, QueryParams(text))


def test_parameters_of_charts() -> None:
    text = "x=flops&y=loss&by=a&by=&by=b&seeds=1&top=12&log=y&baseline=b&at=3"
    assert query("curves", text) == ChartQuery(
        "curves", x="flops", y="loss", by=["a", "b"], rounds=(), seeds=True, top=12, log="y"
    )
    assert query("curves", "x=&y=&seeds=&top=&log=&at=") == ChartQuery("curves", by=[])
    assert query("timeline", "at=3&at=5&x=flops").rounds == [3, 5]
    assert query("pairs", "baseline=b&y=loss").baseline == "b"
    assert query("curves", "seeds=0").seeds is False


@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        ("nothing", "", "kind: expected one of "),
        ("curve", "", "kind: expected one of "),
        ("timeline", "at=x", "at: expected rounds as whole numbers, got x"),
        ("timeline", f"at={'9' * 16}", "at: expected rounds"),
        ("curves", "top=0", "top: expected the number of curves, from 1 to 500, got '0'"),
        ("curves", "top=501", "top: expected"),
        ("curves", "top=x", "top: expected"),
        ("curves", "top=-1", "top: expected"),
        ("curves", "log=z", "log: expected x, y or both, got 'z'"),
    ],
)
def test_wrong_parameters_of_charts(kind: str, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        query(kind, text)
    assert str(caught.value).startswith(told)


def test_the_command_of_a_chart() -> None:
    paths = [Path("a b"), Path("c")]
    assert query("curves", "").command(paths) == "fedge plot 'a b' c --kind curves -o curves.svg"
    text = "x=flops&y=loss&by=a&seeds=1&top=1&log=both"
    assert query("curves", text).command([Path("\x1b")]) == (
        "fedge plot $'\\x1b' --kind curves --x flops --y loss --by a --seeds --top 1 --log both -o curves.svg"
    )
    assert "--round 3 --round 5" in query("timeline", "at=3&at=5").command(paths)
    assert "--baseline 'x y'" in query("pairs", "baseline=x+y").command(paths)


def test_cells_that_a_spreadsheet_would_evaluate_are_escaped() -> None:
    rows = [
        {"=a": "=1+1", "b": "+1", "c": "-1", "d": "@x", "e": -1, "f": None, "g": "\tx", "h": "a=1"},
        {"i": {"j": [1]}},
    ]
    assert write_csv(rows).decode() == (
        "'=a,b,c,d,e,f,g,h,i\n'=1+1,'+1,'-1,'@x,-1,,'\tx,a=1,\n,,,,,,,,\"{\"\"j\"\":[1]}\"\n"
    )
    assert write_csv([]).strip() == b""


def test_the_data_of_a_chart_are_its_largest_table() -> None:
    spec = {
        "data": {"values": [{"a": 1}, "x"]},
        "datasets": {"other": [{"b": 1}, {"b": 2}]},
        "layer": [{"data": {"name": "other"}}, {"vconcat": [{"data": {"values": [{"c": 1}, {"c": 2}, {"c": 3}]}}]}],
    }
    assert as_csv(spec) == b"c\n1\n2\n3\n"
    assert as_csv({"datasets": spec["datasets"]}) == b"b\n1\n2\n"
    assert as_csv({}).strip() == b""


def test_only_the_curve_of_one_run_grows(page: TestClient) -> None:
    key = key_of(page, "begun/seed-1")
    found = page.get(f"/api/chart/curves?run={key}&x=bytes_up&y=loss").json()
    how = found["append"]
    assert (how["x"], how["y"], how["after"], how["row"]["alone"], how["y_size"]) == ("bytes_up", "loss", 4, False, 1.0)
    by_round = page.get(f"/api/chart/curves?run={key}").json()["append"]
    assert (by_round["x"], by_round["y"], by_round["total"], by_round["x_size"]) == ("round", "accuracy", 4, 1)
    assert page.get(f"/api/chart/breakdown?run={key}").json()["append"] is None
    assert page.get("/api/chart/curves?q=rate").json()["append"] is None


def test_counts_and_notes_of_a_chart(page: TestClient) -> None:
    found = page.get("/api/chart/curves?where=status!=unfinished").json()
    assert (found["n"], found["of"]) == (6, 7)
    (note,) = found["notes"]
    assert note.startswith("left out: broken/seed-1: rounds.jsonl is damaged")


def test_commands_name_few_paths(page: TestClient, runs: Path) -> None:
    def command(query: str) -> str:
        found: str = page.get(f"/api/chart/curves?{query}").json()["command"]
        return found.partition(" --kind")[0]

    assert command("q=rate") == f"fedge plot {runs}/rate-0.1 {runs}/rate-0.3"
    assert command("where=path=begun/seed-1") == f"fedge plot {runs}/begun"
    assert command("where=path=rate-0.1/seed-1") == f"fedge plot {runs}/rate-0.1/seed-1"


def test_the_command_of_all_runs_names_the_folder(tmp_path: Path, open_page: Callable[..., TestClient]) -> None:
    make_run(tmp_path / "runs" / "a" / "b")
    page = open_page(tmp_path / "runs")
    assert page.get("/api/chart/curves").json()["command"].startswith(f"fedge plot {tmp_path}/runs --kind")
