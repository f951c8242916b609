"""An experiment uses only the World protocol: here with a world without cells, places or a clock.

Seconds are measured by the engine, as on a real network; here they are chosen by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

import fedge
from e2e.experiments import Stopping
from fedge.api.run import Run
from fedge.core.algorithm import Costs, Exchange, Info, Late, Phases, Reply
from fedge.core.drive import Admission, Engine, Outcome, drive
from fedge.core.layout import Tree
from fedge.core.progress import Silent
from fedge.core.world import Cohort, Spent, Timeline, World, answered, mean_seconds
from fedge.experiment import rounds
from fedge.experiment.setup import Setup
from fedge.experiment.start import resume

SETTINGS = {
    "name": "measured",
    "data": {"name": "digits", "clients": 4},
    "model": {"name": "logistic"},
    "algorithm": {"name": "fedavg", "local_steps": 2},
    "edge": {"record": True},
    "checkpoint": {"every": 1},
    "engine": {"name": "loop"},
}
DEADLINE_S = 10.0


class MeasuredWorld:
    """Asks all clients in every round. The engine decides on arrival which answers are late."""

    clock: Literal["simulated", "measured"] = "measured"

    def __init__(self, num_clients: int) -> None:
        self._ids = tuple(range(num_clients))
        self._seconds = 0.0
        self._timelines: dict[tuple[int, int], Timeline] = {}

    @property
    def seconds(self) -> float:
        return self._seconds

    def gather(self, round: int, everyone: bool = False) -> list[Cohort]:
        return [Cohort(0, self._ids, self._ids)]

    def admit(self, round: int, cells: Sequence[int]) -> Admission | None:
        return None

    def spend(self, round: int, cells: Sequence[int], replies: Sequence[Sequence[Reply]], state_bytes: int) -> Spent:
        self._timelines = {
            (cell, number): Timeline.measured(reply)
            for cell, exchanges in zip(cells, replies, strict=True)
            for number, reply in enumerate(answered(exchanges))
        }
        total = sum(min(DEADLINE_S, float(timeline.phases.finish.max())) for timeline in self._timelines.values())
        self._seconds += total
        return Spent(total, *mean_seconds(self._timelines))

    def describe(self, class_counts: np.ndarray | None) -> dict[str, Any]:
        assert class_counts is not None
        return {
            "clients": [client for timeline in self._timelines.values() for client in timeline.ids.tolist()],
            "late": [late for timeline in self._timelines.values() for late in timeline.late.tolist()],
            "samples": int(class_counts.sum()),
        }

    def move(self, round: int) -> None:
        pass

    def state(self) -> Tree:
        return {"seconds": torch.tensor(self._seconds, dtype=torch.float64)}

    def restore(self, state: Tree) -> None:
        self._seconds = float(state["seconds"])


class Stopwatch:
    """An engine that measures: client c downloads 1 s, computes c+1 s, waits 1 s and uploads 2 s.

    In round 2 client 3 takes 20 s longer, and is late.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def run(self, exchanges: Sequence[Exchange], infos: Sequence[Info]) -> list[Reply]:
        slow = [(3,) if info.round == 2 else () for info in infos]
        asked = [
            exchange._replace(cohort=[client for client in exchange.cohort if client not in late])
            for exchange, late in zip(exchanges, slow, strict=True)
        ]
        replies = self._engine.run(asked, infos)
        return [self._timed(reply, late) for reply, late in zip(replies, slow, strict=True)]

    def _timed(self, reply: Reply, late: tuple[int, ...]) -> Reply:
        timed = reply._replace(costs=self._measured(reply.ids, reply.costs, 0.0))
        if not late:
            return timed
        return timed._replace(missing=late, late=Late(late, self._measured(late, Costs.free(len(late)), 20.0)))

    def _measured(self, ids: Sequence[int], costs: Costs, longer: float) -> Costs:
        compute = np.array(ids) + 1.0 + longer
        one = np.ones(len(ids))
        return costs._replace(measured=Phases(one, compute, 2 * one, 4 + compute))


@pytest.fixture(autouse=True)
def _measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def world(self: Setup, *options: object) -> World:
        return MeasuredWorld(len(self.clients.sizes))

    def timed_drive(engine: Engine, *rest: Any) -> list[Outcome]:
        return drive(Stopwatch(engine), *rest)

    monkeypatch.setattr(Setup, "world", world)
    monkeypatch.setattr(rounds, "drive", timed_drive)


def run(runs: Path, num_rounds: int = 4, progress: Silent | None = None) -> Run:
    found = fedge.run({**SETTINGS, "rounds": num_rounds}, runs=runs, progress=progress)
    assert isinstance(found, Run)
    return found


def test_records_have_the_measured_seconds(tmp_path: Path) -> None:
    found = run(tmp_path)
    # Means of four clients; the slowest takes 4 + 4 s. In round 2 three are in time, and all wait for the deadline.
    usual = {"sim_seconds": 8.0, "sim_down_s": 1.0, "sim_compute_s": 2.5, "sim_up_s": 2.0, "sim_wait_s": 2.5}
    second = {"sim_seconds": 10.0, "sim_down_s": 1.0, "sim_compute_s": 2.0, "sim_up_s": 2.0, "sim_wait_s": 5.0}
    for record in found.rounds:
        expected = second if record["round"] == 2 else usual
        assert {name: record[name] for name in expected} == pytest.approx(expected)
    assert [[record[name] for name in ("cohort", "reported", "dropped")] for record in found.rounds] == [
        [4, 4, 0],
        [4, 3, 1],
        [4, 4, 0],
        [4, 4, 0],
    ]
    assert [record.get("late") for record in found.rounds] == [None, 1, None, None]
    assert found.summary["sim_seconds"] == pytest.approx(34.0)


def test_the_worlds_description_is_written(tmp_path: Path) -> None:
    lines = run(tmp_path).edge
    assert [line["late"] for line in lines] == [[False] * 4, [False] * 3 + [True], [False] * 4, [False] * 4]
    assert {tuple(line["clients"]) for line in lines} == {(0, 1, 2, 3)}
    assert {line["samples"] for line in lines} == {1438}  # four fifths of the 1797 digits are for training


def test_a_run_resumes_in_such_a_world(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", 6)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts", 6, Stopping())
    resumed = Run(resume(tmp_path / "parts" / "measured", [], Silent()))
    for one, other in zip(whole.rounds, resumed.rounds, strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}
