"""The sparkline of a group: the mean of the metric over its runs, averaged before it is thinned."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.page_runs import make_records, make_run
from starlette.testclient import TestClient

from fedge.view.histories import Histories
from fedge.view.run_index import RunIndex
from fedge.view.workspace import Workspace

RATE = "where=algorithm.learning_rate=0.3"


def group_of(runs: Path, query: str = "rate-0.3", change: Callable[[Workspace], None] = lambda _: None) -> Any:
    """Return the row of the only group of runs that a search finds, with all records read."""
    from starlette.datastructures import QueryParams

    from fedge.view.selection import RunSelection

    workspace = Workspace(runs)
    for _ in workspace.histories.refresh(workspace.index.scan().values()):
        pass
    change(workspace)
    (row,) = workspace.table.page(RunSelection.parse(QueryParams({"q": query, "group": "data.name"})))["rows"]
    return row


def means(rounds: int, *seeds: int) -> list[float]:
    curves = [make_records(seed, rounds, 0.3) for seed in seeds]
    return [sum(curve[i]["accuracy"] for curve in curves) / len(curves) for i in range(rounds)]


def write_rounds(run: Path, points: dict[int, float]) -> None:
    lines = [json.dumps({"round": number, "accuracy": value}) for number, value in points.items()]
    (run / "rounds.jsonl").write_text("".join(f"{line}\n" for line in lines))


def test_mean_over_seeds(runs: Path) -> None:
    found = group_of(runs)
    assert found["spark"] == pytest.approx(means(10, 1, 2, 3), rel=1e-3)
    assert (found["metric"], found["spark_of"]) == ("accuracy", {"n": 3, "of": 3, "problem": None})


def test_long_curves_are_averaged_first_and_thinned_then(tmp_path: Path) -> None:
    """A spike of one seed between the points that its thinned curve would keep is in the mean."""
    up = {number: number / 1000 for number in range(1, 1001)}
    for seed, spike in ((1, 333), (2, 337)):
        run = make_run(tmp_path / "runs" / "rate-0.3" / f"seed-{seed}", seed)
        write_rounds(run, up | {spike: 9.0})
    found = group_of(tmp_path / "runs")["spark"]
    assert len(found) <= 40
    assert max(found) == pytest.approx((9 + 0.337) / 2, rel=1e-3)  # a mean of thinned curves may have 9
    assert found[0] == pytest.approx(0.001)
    assert found[-1] == pytest.approx(1.0)


def test_runs_that_measure_in_other_rounds_are_interpolated_where_all_have_values(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "rate-0.3"
    write_rounds(make_run(folder / "seed-1", 1), {1: 0.0, 2: 0.2, 3: 0.4, 4: 0.6})
    write_rounds(make_run(folder / "seed-2", 2), {2: 0.4, 4: 0.8, 6: 1.0})
    assert group_of(tmp_path / "runs")["spark"] == pytest.approx([0.3, 0.5, 0.7])


def test_a_finished_run_that_never_measured_the_metric_is_counted_apart(runs: Path) -> None:
    write_rounds(make_run(runs / "rate-0.3" / "seed-4", 4, 10, 0.3), {})
    found = group_of(runs)
    assert found["spark"] == pytest.approx(means(10, 1, 2, 3), rel=1e-3)
    assert found["spark_of"] == {"n": 3, "of": 4, "problem": None}


def test_unfinished_runs_are_counted_and_repeated_seeds_are_not(runs: Path) -> None:
    make_run(runs / "rate-0.3" / "seed-4", 4, 5, 0.3, finished=False)
    shutil.copytree(runs / "rate-0.3" / "seed-3", runs / "rate-0.3" / "seed-3-again")
    make_run(runs / "rate-0.3" / "seed-2-again", 2, 10, 0.3, finished=False)
    found = group_of(runs)
    assert found["spark_of"] == {"n": 3, "of": 4, "problem": None}
    assert found["spark"] == pytest.approx(means(10, 1, 2, 3), rel=1e-3)


def test_runs_with_another_metric_have_no_mean(runs: Path) -> None:
    target = {"metric": "loss", "value": 0.1, "stop": False}
    make_run(runs / "rate-0.3" / "seed-4", 4, 10, 0.3, target=target)
    found = group_of(runs)
    assert (found["spark"], found["spark_of"]) == (None, {"n": 0, "of": 4, "problem": "metrics differ"})


def test_runs_without_a_common_round_have_no_mean(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "rate-0.3"
    write_rounds(make_run(folder / "seed-1", 1), {1: 0.0, 2: 0.2})
    write_rounds(make_run(folder / "seed-2", 2), {5: 0.4, 6: 0.8})
    assert group_of(tmp_path / "runs")["spark_of"]["problem"] == "no common rounds"


def test_no_run_has_finished(runs: Path) -> None:
    found = group_of(runs, "begun")
    assert (found["spark"], found["spark_of"]["problem"]) == (None, "none finished")


def test_a_mean_appears_once_all_runs_are_read(runs: Path) -> None:
    """A mean over those that happen to be read would be another one."""
    index = RunIndex(runs)
    entries = [entry for entry in index.scan().values() if "rate-0.3" in entry.path]
    histories = Histories(index)
    for _ in histories.refresh(entries[:2]):
        pass
    assert histories.mean(entries).values is None
    assert histories.mean(entries[:2]).num_runs == 2
    before = histories.mean(entries[:2])
    with (runs / "rate-0.3" / "seed-1" / "rounds.jsonl").open("a") as file:
        file.write('{"round": 11, "accuracy": 0.5}\n')
    with (runs / "rate-0.3" / "seed-2" / "rounds.jsonl").open("a") as file:
        file.write('{"round": 11, "accuracy": 0.7}\n')
    entries = [index.scan()[entry.key] for entry in entries[:2]]
    assert histories.mean(entries).values is None
    for _ in histories.refresh(entries):
        pass
    assert before.values is not None
    assert histories.mean(entries).values == [*before.values, 0.6]


def test_a_stored_curve_of_an_earlier_state_is_not_used(runs: Path) -> None:
    """Another process may have stored it after this one has read the run."""
    index = RunIndex(runs)
    entries = [entry for entry in index.scan().values() if "rate-0.3" in entry.path]
    behind = Histories(index)
    for _ in behind.refresh(entries):
        pass
    for seed in (1, 2, 3):
        with (runs / "rate-0.3" / f"seed-{seed}" / "rounds.jsonl").open("a") as file:
            file.write('{"round": 11, "accuracy": 0.5}\n')
    newer = Histories(RunIndex(runs))
    entries = [newer._index.scan()[entry.key] for entry in entries]
    for _ in newer.refresh(entries):
        if newer.known(entries[-1]) is not None and newer.known(entries[-1]).stamp == entries[-1].stamp:  # type: ignore[union-attr]
            break  # all are read, and nothing is stored yet
    found = newer.mean(entries).values
    assert found is not None
    assert found[-1] == 0.5


def test_a_store_that_cannot_be_written_changes_nothing(runs: Path, cache: Path) -> None:
    def remove(workspace: Workspace) -> None:
        shutil.rmtree(cache)
        cache.write_text("no folder")

    found = group_of(runs, change=remove)
    assert found["spark"] == pytest.approx(means(10, 1, 2, 3), rel=1e-3)


def test_the_page_states_n_of_all(runs: Path, open_page: Callable[..., TestClient]) -> None:
    make_run(runs / "rate-0.3" / "seed-4", 4, 10, 0.3, finished=False)
    text = open_page(runs).get(f"/export/runs.html?group=settings&{RATE}").text
    assert "mean of accuracy over 3 of 4 runs, over rounds, from" in text
    assert "<polyline" in text
