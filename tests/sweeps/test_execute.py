"""Sweeps that train for real, on embedded data."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from e2e.command import wait_until
from e2e.experiments import assert_same, records, summary
from fedge import config as configuration
from fedge.core.errors import ConfigError, RunError
from fedge.core.progress import Silent
from fedge.experiment.start import start
from fedge.runs import Run, find_runs
from fedge.sweeps.board import Board, Unwatched
from fedge.sweeps.execute import PointOutcome, execute, limits_of
from fedge.sweeps.plan import parse, work_out
from fedge.sweeps.run_pool import PoolLimits

GRID: dict[str, Any] = {
    "name": "grid",
    "seeds": [1, 2],
    "rounds": 4,
    "data": {"name": "digits", "clients": 10},
    "model": {"name": "logistic"},
    "algorithm": {"name": "fedavg", "local_steps": 2, "learning_rate": [0.1, 0.5]},
    "selection": {"count": 3},
    "checkpoint": {"every": 1},
}
NAMES = [f"learning_rate-{rate}/seed-{seed}" for rate in (0.1, 0.5) for seed in (1, 2)]


def changed(**tables: Any) -> dict[str, Any]:
    raw = deepcopy(GRID)
    for name, value in tables.items():
        raw[name] = {**raw.get(name, {}), **value} if isinstance(value, dict) else value
    return raw


def sweep(raw: dict[str, Any], runs: Path, listener: Any = None, workers: int = 2, **limits: Any) -> PointOutcome:
    known = PoolLimits(workers, memory_mb=1e6, pause_s=0.01)._replace(**limits)
    return execute(work_out(parse(raw)), runs, listener or Unwatched(), known)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The grid, one run at a time."""
    outcome = sweep(GRID, tmp_path_factory.mktemp("undisturbed"), workers=1)
    assert outcome.failures == {}
    return outcome.folder


def assert_all_same(folder: Path, undisturbed: Path) -> None:
    assert [str(run.path.relative_to(folder)) for run in find_runs(folder)] == NAMES
    for name in NAMES:
        assert_same(folder / name, undisturbed / name)


def test_each_point_is_an_ordinary_run(undisturbed, tmp_path):
    assert [str(run.path.relative_to(undisturbed)) for run in find_runs(undisturbed)] == NAMES
    alone = changed(algorithm={"learning_rate": 0.5}, seed=2, seeds=None, name="learning_rate-0.5")
    path = start(configuration.parse(alone), tmp_path, Silent())
    assert_same(undisturbed / "learning_rate-0.5" / "seed-2", path)


def test_the_plan_is_written_to_disk(undisturbed):
    plan = json.loads((undisturbed / "sweep.json").read_text())
    assert plan["points"] == [
        {"name": "learning_rate-0.1", "values": {"algorithm.learning_rate": 0.1}},
        {"name": "learning_rate-0.5", "values": {"algorithm.learning_rate": 0.5}},
    ]
    assert plan["settings"] == GRID
    assert (plan["format"], plan["failures"]) == (1, {})


def test_concurrent_runs_give_the_same_results(undisturbed, tmp_path):
    assert sweep(GRID, tmp_path, workers=3).failures == {}
    assert_all_same(tmp_path / "grid", undisturbed)


class Notices(Unwatched):
    def __init__(self):
        self.notices = []

    def notice(self, text):
        self.notices.append(text)


def test_complete_runs_are_skipped_and_reported(undisturbed, tmp_path):
    first = sweep(changed(algorithm={"learning_rate": [0.1]}), tmp_path)
    before = {run.path: (run.path / "summary.json").stat().st_mtime_ns for run in find_runs(first.folder)}
    heard = Notices()
    second = sweep(GRID, tmp_path, heard)
    assert heard.notices[0] == "2 of 4 runs are already complete"
    assert {path: (path / "summary.json").stat().st_mtime_ns for path in before} == before
    assert second.runs == [second.folder / name for name in NAMES]
    assert_all_same(second.folder, undisturbed)


LONG = changed(rounds=25)


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """An undisturbed sweep, long enough to be killed in other tests."""
    return sweep(LONG, tmp_path_factory.mktemp("calm")).folder


class Killer(Unwatched):
    """Kills the first worker that has finished a round."""

    def __init__(self):
        self.killed = None
        self.notices = []

    def notice(self, text):
        self.notices.append(text)

    def show(self, board):
        busy = [line for line in board.lines("running") if line.round > 0]
        children = multiprocessing.active_children()
        if self.killed is None and busy and children:
            self.killed = children[0].pid
            os.kill(self.killed, signal.SIGKILL)


def test_a_worker_that_is_killed_costs_nothing(tmp_path, calm):
    killer = Killer()
    outcome = sweep(LONG, tmp_path, killer)
    assert killer.killed is not None
    assert [text for text in killer.notices if "was killed by SIGKILL; retrying" in text]
    assert outcome.failures == {}
    assert_all_same(outcome.folder, calm)


@pytest.mark.parametrize(
    "after", ["learning_rate-0.1/seed-1/rounds.jsonl", "learning_rate-0.5/seed-1/checkpoint/state.safetensors"]
)
def test_a_killed_sweep_resumes(tmp_path, calm, after):
    process = multiprocessing.get_context("fork").Process(target=sweep, args=(LONG, tmp_path))
    process.start()
    file = tmp_path / "grid" / after
    wait_until(lambda: file.exists() and file.stat().st_size > 0)
    process.kill()
    process.join()
    complete = [run for run in find_runs(tmp_path / "grid") if run.status == "complete"]
    assert len(complete) < len(NAMES)
    assert sweep(LONG, tmp_path, pause_s=0.2).failures == {}  # time for the orphans to end
    assert_all_same(tmp_path / "grid", calm)


def test_a_second_process_is_refused(tmp_path):
    class Second(Unwatched):
        said = ""

        def show(self, board):
            try:
                sweep(GRID, tmp_path)
            except RunError as error:
                self.said = str(error)

    listener = Second()
    sweep(GRID, tmp_path, listener)
    assert f"in use by process {os.getpid()}" in listener.said


def test_a_run_that_fails_does_not_stop_the_others(tmp_path):
    outcome = sweep(changed(algorithm={"learning_rate": [1e38, 0.1, -1.0]}, seeds=[1]), tmp_path)
    reasons = {name: (ended.exit_code, ended.reason) for name, ended in outcome.failures.items()}
    assert sorted(reasons) == ["learning_rate--1", "learning_rate-1e+38/seed-1"]
    assert reasons["learning_rate--1"][0] == 2
    assert "algorithm.learning_rate: expected float > 0" in reasons["learning_rate--1"][1]
    assert reasons["learning_rate-1e+38/seed-1"][0] == 5
    assert [path.parent.name for path in outcome.runs] == ["learning_rate-0.1"]
    assert json.loads((outcome.folder / "sweep.json").read_text())["failures"].keys() == reasons.keys()


def test_an_impossible_partition_leaves_nothing_behind(tmp_path):
    shards = {"name": "shards", "per_client": 1000}
    outcome = sweep(changed(data={"partition": ["iid", shards]}, algorithm={"learning_rate": 0.1}, seeds=[1]), tmp_path)
    (name,) = outcome.failures
    assert outcome.failures[name].exit_code == 3
    assert not (outcome.folder / name / "config.json").exists()


def test_nothing_is_written_if_all_points_are_invalid(tmp_path):
    with pytest.raises(ConfigError, match=r"algorithm\.option: unknown key"):
        sweep(changed(algorithm={"option": ["I", "II"]}), tmp_path)
    with pytest.raises(ConfigError, match="rounds: expected int >= 1"):
        sweep(changed(rounds=0), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_runs_with_other_settings_are_not_reused(tmp_path):
    sweep(changed(seeds=[1]), tmp_path)
    with pytest.raises(RunError, match=r"was run with other settings \(rounds\)"):
        sweep(changed(seeds=[1], rounds=5), tmp_path)


def test_a_sweep_resumes_with_changed_settings_without_effect(tmp_path):
    first = sweep(changed(seeds=[1]), tmp_path)
    before = {path: records(path) for path in first.runs}
    done, stopped = first.runs
    (stopped / "summary.json").unlink()
    outcome = sweep(changed(seeds=[1], data={"dir": "/moved"}, engine={"workers": 2}), tmp_path)
    assert outcome.failures == {}
    assert [Run(path).config["data"]["dir"] for path in (done, stopped)] == [None, "/moved"]
    assert Run(stopped).config["engine"]["workers"] == 2
    assert {path: records(path) for path in outcome.runs} == before


def test_a_damaged_run_is_reported_and_the_others_are_run(tmp_path):
    first = sweep(changed(seeds=[1], algorithm={"learning_rate": [0.1]}), tmp_path)
    (first.runs[0] / "rounds.jsonl").write_text("{\n")
    outcome = sweep(changed(seeds=[1]), tmp_path)
    ended = outcome.failures["learning_rate-0.1/seed-1"]
    assert ended.exit_code == 6
    assert "rounds.jsonl is damaged" in ended.reason
    assert outcome.runs == [outcome.folder / "learning_rate-0.5" / "seed-1"]


@pytest.mark.parametrize("remains", ["config.json", "notes.txt"])
def test_a_folder_of_something_else_is_refused(tmp_path, remains):
    (tmp_path / "grid").mkdir()
    (tmp_path / "grid" / remains).write_text("{}")
    with pytest.raises(RunError, match=r"is not a sweep: expected sweep.json"):
        sweep(GRID, tmp_path)


def test_a_newer_format_is_refused(tmp_path):
    (tmp_path / "grid").mkdir()
    (tmp_path / "grid" / "sweep.json").write_text('{"format": 2}')
    with pytest.raises(RunError, match="has format 2"):
        sweep(GRID, tmp_path)


HALVED = {
    "rounds": 8,
    "evaluate": {"every": 2},
    "data": {"validation": 0.2},
    "algorithm": {"learning_rate": [1e-6, 0.1, 1e-5, 0.5]},
    "sweep": {"halving": {"rounds": 2, "factor": 2}},
}


@pytest.mark.full
def test_halving_continues_with_the_better_half(tmp_path):
    outcome = sweep(changed(**HALVED), tmp_path)
    assert outcome.failures == {}
    rounds = {run.path.parent.name: run.rounds[-1]["round"] for run in find_runs(outcome.folder)}
    # points with tiny steps learn nothing and end first; of the other two, the better one at round 4 continues
    fourth = {
        rate: sum(
            records(outcome.folder / f"learning_rate-{rate}" / f"seed-{seed}")[3]["validation_accuracy"]
            for seed in (1, 2)
        )
        for rate in ("0.1", "0.5")
    }
    best = max(fourth, key=fourth.get)
    expected = {"learning_rate-1e-06": 2, "learning_rate-1e-05": 2, "learning_rate-0.1": 4, "learning_rate-0.5": 4}
    assert rounds == expected | {f"learning_rate-{best}": 8}


@pytest.mark.full
def test_halving_again_changes_nothing(tmp_path):
    single = changed(**HALVED, seeds=[1])
    first = sweep(single, tmp_path, workers=1)
    before = {run.path: summary(run.path) for run in find_runs(first.folder)}
    times = {path: (path / "summary.json").stat().st_mtime_ns for path in before}
    again = sweep(single, tmp_path)
    assert {path: (path / "summary.json").stat().st_mtime_ns for path in times} == times
    assert again.failures == {}
    other = sweep(single, tmp_path / "other")
    assert {path.relative_to(first.folder): found for path, found in before.items()} == {
        run.path.relative_to(other.folder): summary(run.path) for run in find_runs(other.folder)
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"validation": None}}, r"sweep\.halving: .*set data\.validation"),
        ({"sweep": {"metric": "accuracy"}}, r"sweep\.halving: uses the validation split and never the test set"),
    ],
)
def test_halving_never_uses_the_test_set(changes, message):
    raw = changed(**HALVED)
    for name, table in changes.items():
        raw[name] = raw[name] | table
    with pytest.raises(ConfigError, match=message):
        work_out(parse(raw))


@pytest.mark.parametrize(
    ("changes", "metric"),
    [
        ({}, "accuracy"),
        ({"target": {"metric": "loss", "value": 1.0}}, "loss"),
        ({"data": {"validation": 0.1}}, "validation_accuracy"),
        ({"data": {"validation": 0.1}, "target": {"metric": "loss", "value": 1.0}}, "validation_loss"),
        ({"data": {"validation": 0.1}, "sweep": {"metric": "loss"}}, "loss"),
        (
            {
                "data": {"validation": 0.1},
                "evaluate": {"metrics": ["perplexity"]},
                "target": {"metric": "perplexity", "value": 2},
            },
            "validation_perplexity",
        ),
    ],
)
def test_points_are_compared_on_the_validation_split_if_there_is_one(changes, metric):
    assert work_out(parse(changed(**changes))).metric == metric


def test_points_are_ranked_by_a_user_metric():
    plan = work_out(parse(changed(evaluate={"metrics": ["perplexity"]}, sweep={"metric": "perplexity"})))
    board = Board(plan.metric, own=plan.own)
    assert board.rank(2.0) < board.rank(3.0)
    with pytest.raises(ConfigError, match=r"sweep\.metric: 'perplexit' is not measured, did you mean 'perplexity'"):
        work_out(parse(changed(evaluate={"metrics": ["perplexity"]}, sweep={"metric": "perplexit"})))


def test_a_metric_of_the_validation_split_needs_one():
    with pytest.raises(ConfigError, match=r"sweep\.metric: needs a validation split.*set data\.validation"):
        work_out(parse(changed(sweep={"metric": "validation_loss"})))


def test_a_file_without_axes_gives_the_same_run_as_without_a_sweep(tmp_path):
    single = changed(algorithm={"learning_rate": 0.5}, seeds=None, seed=2, data={"validation": 0.2})
    single["target"] = {"patience": 2}
    outcome = sweep(single, tmp_path / "swept")
    path = start(configuration.parse(single), tmp_path, Silent())
    assert_same(outcome.runs[0], path)
    assert Run(outcome.runs[0]).config == Run(path).config
    refused = changed(algorithm={"learning_rate": 0.5}, target={"patience": 2})
    problems = []
    for load in (configuration.parse, lambda raw: work_out(parse(raw))):
        with pytest.raises(ConfigError, match=r"set data\.validation") as caught:
            load(refused)
        problems.append(caught.value.problems)
    assert problems[0] == problems[1]


def test_rounds_cannot_be_an_axis_of_halving():
    with pytest.raises(ConfigError, match="rounds cannot be an axis"):
        parse(changed(**HALVED | {"rounds": [4, 8]}))


def test_limits_come_from_the_file_or_the_machine():
    said = limits_of(work_out(parse(changed(sweep={"workers": 3, "memory_mb": 500, "retries": 1}))))
    assert said == PoolLimits(workers=3, memory_mb=500, retries=1)
    found = limits_of(work_out(parse(GRID)))
    assert found.workers == len(os.sched_getaffinity(0))
    total_mb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**20
    assert 0 < found.memory_mb < 0.8 * total_mb


def test_all_runs_of_a_sweep_use_the_same_user_files(tmp_path: Path) -> None:
    """A file that changes between two runs or two calls is refused; complete runs are kept."""
    (tmp_path / "mine.py").write_text(
        "from pathlib import Path\nfrom torch import nn\n\ndef build(shape, num_outputs):\n"
        "    with Path(__file__).open('a') as file:\n"
        "        file.write('#\\n')\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(784, num_outputs))\n"
    )
    raw = changed(seeds=[1], rounds=1, model={"name": f"{tmp_path}/mine.py:build"})
    outcome = sweep(raw, tmp_path / "runs", workers=1)
    assert list(outcome.failures) == [NAMES[2]]
    failure = outcome.failures[NAMES[2]]
    assert failure.exit_code == RunError.exit_code
    assert str(failure.reason).startswith(f"{tmp_path}/mine.py is not the file that other runs in {outcome.folder}")
    assert list(sweep(raw, tmp_path / "runs", workers=1).failures) == [NAMES[2]]
    limits = PoolLimits(1, memory_mb=1e6)
    accepted = execute(work_out(parse(raw)), tmp_path / "runs", Unwatched(), limits, accept_code=True)
    assert accepted.failures == {}
