"""A process may be killed at any moment: its run resumes to exactly the same result as an undisturbed one."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from e2e.command import Fedge, wait_until
from e2e.experiments import Settings, assert_same, changed, kept, records, summary, write

ADAPTIVE: Settings = {
    "name": "killed",
    "seed": 11,
    "rounds": 24,
    "data": {"name": "digits", "clients": 20, "partition": {"name": "shards", "per_client": 2}},
    "model": {"name": "mtfl_2nn"},
    "algorithm": {"name": "fedavg_adam", "learning_rate": 0.01, "local_steps": 1},
    "personal": {"private": "bn"},
    "selection": {"count": 3},
    "evaluate": {"every": 2, "user_accuracy": True, "users": "selected"},
    "target": {"metric": "accuracy", "value": 0.3},
    "checkpoint": {"every": 1},
}
"""Everything that a checkpoint can contain: optimiser moments, private state of clients, and costs to a target."""

IMPERSONAL = {name: value for name, value in ADAPTIVE.items() if name != "personal"}

EXPERIMENTS = {
    "mtfl": ADAPTIVE,
    "ce_fedavg": changed(IMPERSONAL, algorithm={"name": "ce_fedavg", "learning_rate": 0.01, "local_steps": 1}),
    "scaffold": changed(IMPERSONAL, algorithm={"name": "scaffold", "local_steps": 1}),
    "dynavg": changed(IMPERSONAL, algorithm={"name": "dynavg", "local_steps": 2, "delta": 1.0}),
    "workers": changed(ADAPTIVE, engine={"name": "pool", "workers": 2, "rows": 1}),
}


class Undisturbed(NamedTuple):
    file: Path
    run: Path
    seconds: float  # from its first record to its end


@pytest.fixture(scope="module")
def undisturbed(fedge: Fedge, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Undisturbed]:
    """Return an undisturbed run of an experiment, made on first use."""
    made: dict[str, Undisturbed] = {}

    def make(name: str) -> Undisturbed:
        folder = tmp_path_factory.mktemp(name)
        file, run = write(folder, EXPERIMENTS[name]), folder / "runs" / "killed"
        with fedge.start("run", file, "--runs", folder / "runs") as process:
            wait_until(lambda: has_record(run))
            began = time.monotonic()
            ended = process.wait()
        assert ended.code == 0, ended.err
        return Undisturbed(file, run, time.monotonic() - began)

    return lambda name: made.get(name) or made.setdefault(name, make(name))


def has_record(run: Path) -> bool:
    file = run / "rounds.jsonl"
    return file.exists() and file.stat().st_size > 0


def start_and_kill(fedge: Fedge, whole: Undisturbed, runs: Path, share: float) -> Path:
    """Start a run and kill it this share of the undisturbed run's duration after its first record.

    A run that is complete by then is faster than the undisturbed one was, and the next one is killed earlier.
    """
    for attempt in range(10):
        folder = runs / str(attempt)
        with fedge.start("run", whole.file, "--runs", folder) as process:
            wait_until(lambda run=folder / "killed": has_record(run))
            time.sleep(share * whole.seconds * 0.8**attempt)
            killed = process.kill().code == -signal.SIGKILL
        if killed and not (folder / "killed" / "summary.json").exists():
            return folder / "killed"
    pytest.fail("the run was always complete before its process could be killed")


def check(run: Path, whole: Undisturbed) -> None:
    assert_same(run, whole.run)
    assert [record["round"] for record in records(run)] == list(range(1, ADAPTIVE["rounds"] + 1))


@pytest.mark.parametrize("point", range(3))
def test_killed_and_resumed(fedge: Fedge, undisturbed: Callable[[str], Undisturbed], runs: Path, point: int) -> None:
    whole = undisturbed("mtfl")
    share = random.Random(point).uniform(0, 0.8)
    run = start_and_kill(fedge, whole, runs, share)
    ended = fedge("resume", run)
    assert ended.code == 0, ended.err
    check(run, whole)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "point"),
    [(name, point) for name in EXPERIMENTS for point in range(20 if name == "mtfl" else 5)],
)
def test_killed_over_and_over(
    fedge: Fedge, undisturbed: Callable[[str], Undisturbed], runs: Path, name: str, point: int
) -> None:
    whole = undisturbed(name)
    rng = random.Random(f"{name} {point}")
    run = start_and_kill(fedge, whole, runs, rng.uniform(0, 0.8))
    for _ in range(rng.randint(1, 4)):
        with fedge.start("resume", run) as process:
            time.sleep(
                rng.uniform(0, 0.4) * whole.seconds
            )  # measured from the start, so that restoring may be interrupted too
            process.kill()
    ended = fedge("resume", run)
    assert ended.code == 0, ended.err
    check(run, whole)


def test_the_killed_runs_have_state_to_lose(undisturbed: Callable[[str], Undisturbed]) -> None:
    """Otherwise the tests above would prove little."""
    run = undisturbed("mtfl").run
    assert len(set(kept(run).values())) > 10
    assert 1 < summary(run)["rounds_to_target"] < ADAPTIVE["rounds"]


@pytest.mark.full
def test_the_other_killed_runs_have_state_to_lose(undisturbed: Callable[[str], Undisturbed]) -> None:
    assert len(set(kept(undisturbed("scaffold").run).values())) > 10
    assert kept(undisturbed("ce_fedavg").run) == {}
    silent = [record["messages"] for record in records(undisturbed("dynavg").run)]
    assert min(silent) < max(silent)  # some rounds end in an average, some do not
