"""Default choices of a comparison, the runs that it leaves out, and its charts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.page_runs import make_run
from starlette.testclient import TestClient

from edge_rounds import edge_line

Compare = Callable[..., dict[str, Any]]


@pytest.fixture
def compare(page: TestClient) -> Compare:
    def ask(**query: str) -> dict[str, Any]:
        answer = page.get("/api/compare", params={"q": "rate"} | query)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    return ask


def names(options: list[dict[str, str]]) -> list[str]:
    return [option["name"] for option in options]


def test_choices_without_parameters(compare: Compare) -> None:
    found = compare()
    chosen = {name: found[name] for name in ("x", "y", "outcome", "px", "py")}
    assert chosen == {
        "x": "round",
        "y": "accuracy",
        "outcome": "rounds_to_target",
        "px": "bytes_to_target",
        "py": "accuracy",
    }
    assert found["outcome_title"] == "rounds to target"
    assert found["clocks"] == ["simulated"]
    assert names(found["axes"])[:6] == ["round", "bytes_up", "bytes_down", "flops", "sim_seconds", "energy_j"]
    assert len(set(names(found["axes"]))) == len(found["axes"])
    assert "accuracy" not in names(found["axes"])
    assert {"accuracy", "loss", "train_loss", "user_accuracy"} <= set(names(found["metrics"]))
    assert not {"round", "bytes_up", "cohort"} & set(names(found["metrics"]))
    assert {"accuracy", "rounds_to_target", "bytes_to_target"} <= set(names(found["outcomes"]))
    assert {"bytes", "accuracy", "bytes_to_target"} <= set(names(found["rivals"]))
    assert found["charts"] == ["curves", "bars", "pareto", "parallel", "pairs"]


def test_choices_of_a_reader(compare: Compare) -> None:
    query = {"x": "flops", "y": "loss", "outcome": "accuracy", "px": "flops", "py": "loss"}
    found = compare(**query)
    assert {name: found[name] for name in query} == query
    empty = compare(x="", y="", outcome="", baseline="", px="", py="")
    assert empty == compare()


def test_runs_without_a_target_are_judged_by_their_metric(tmp_path: Path, open_page: Callable[..., TestClient]) -> None:
    for rate in (0.1, 0.3):
        run = make_run(tmp_path / f"r{rate}", 1, 10, rate, target={"metric": "loss", "value": None})
        summary = json.loads((run / "summary.json").read_text())
        kept = {name: value for name, value in summary.items() if "target" not in name and name != "best_loss"}
        (run / "summary.json").write_text(json.dumps(kept))
    found = open_page(tmp_path).get("/api/compare").json()
    assert (found["y"], found["outcome"], found["py"]) == ("loss", "loss", "loss")
    assert found["px"] == "bytes"  # not the loss again
    assert "loss" in names(found["outcomes"])  # so that the page shows what is chosen
    assert "bars" not in found["charts"]


def test_nothing_to_compare(compare: Compare) -> None:
    found = compare(q="nothing")
    assert found == {"selected": 0, "compared": 0, "left_out": [], "groups": []}


def test_why_runs_are_left_out(runs: Path, open_page: Callable[..., TestClient]) -> None:
    make_run(runs / "rate-0.3" / "again", 3, 10, 0.3)
    (make_run(runs / "rate-0.3" / "empty", 4, 10, 0.3, finished=False) / "rounds.jsonl").write_text("")
    (runs / "rate-0.1/seed-1/clients.jsonl").write_text("nonsense\n")
    found = open_page(runs).get("/api/compare?q=rate").json()
    reasons = {one["path"]: one["reason"] for one in found["left_out"]}
    assert reasons.pop("rate-0.1/seed-1").startswith("clients.jsonl is damaged")
    assert sorted(reasons.values()) == ["no round yet", "repeats a seed of another run"]
    assert reasons["rate-0.3/empty"] == "no round yet"
    assert (found["selected"], found["compared"]) == (8, 7)


def test_results_of_groups(compare: Compare) -> None:
    groups = compare()["groups"]
    assert [(group["count"], group["finished"], group["clock"]) for group in groups] == [(3, 3, "simulated")] * 2
    slow, fast = (group["results"]["rounds_to_target"] for group in groups)
    assert (slow["mean"], slow["text"], slow["n"], slow["of"]) == (None, "–", 0, 3)
    assert (fast["n"], fast["of"]) == (3, 3)
    assert "\n" not in fast["text"]
    assert fast["low"] < fast["mean"] < fast["high"]
    assert all(group["target"] for group in groups)


def test_settings_that_differ_and_those_that_do_not(compare: Compare) -> None:
    found = compare()
    assert found["differences"] == [{"setting": "algorithm.learning_rate", "values": [0.1, 0.3]}]
    same = {one["setting"]: one["value"] for one in found["same"]}
    assert same["model.name"] == "logistic"
    assert not {"seed", "name", "clock", "algorithm.learning_rate"} & same.keys()


def test_the_baseline_is_the_first_group_with_the_result(compare: Compare) -> None:
    labels = [group["label"] for group in compare()["groups"]]
    assert compare(outcome="accuracy")["baseline"] == labels[0]
    assert compare()["baseline"] == labels[1]  # the other does not reach the target


def test_charts_of_what_runs_recorded(runs: Path, open_page: Callable[..., TestClient]) -> None:
    run = runs / "rate-0.1/seed-1"
    (run / "clients.jsonl").write_text('{"client": 0, "user_accuracy": 0.5}\n')
    page = open_page(runs)
    assert "users" in page.get("/api/compare?q=rate").json()["charts"]
    assert "latency" not in page.get("/api/compare?q=rate").json()["charts"]
    (run / "edge.jsonl").write_text(json.dumps(edge_line(1, 2, 2, [(0, 0, 1, 2, 0, 1)], None)) + "\n")
    assert "latency" in open_page(runs).get("/api/compare?q=rate").json()["charts"]
    one = page.get("/api/compare?where=algorithm.learning_rate=0.3").json()
    assert one["charts"] == ["curves", "bars"]
    make_run(runs / "rate-0.3-long" / "seed-1", 1, 11, 0.3)
    assert "heatmap" in open_page(runs).get("/api/compare?q=rate").json()["charts"]


def test_the_importance_of_settings(compare: Compare) -> None:
    found = compare(outcome="accuracy")["importance"]
    assert found["problem"] is None
    assert [one["setting"] for one in found["settings"]] == ["algorithm.learning_rate"]
    problem = compare(where="algorithm.learning_rate=0.3")["importance"]
    assert problem["settings"] == []
    assert problem["problem"]


def test_correlations_and_levels(page: TestClient) -> None:
    found = page.get("/api/compare?q=rate&outcome=accuracy").json()
    (one,) = found["correlations"]
    assert (one["setting"], one["count"], one["coefficient"] > 0.9) == ("algorithm.learning_rate", 6, True)
    for level in found["levels"]:
        assert level["n"] <= level["of"]
