"""A run builds its data once, and two experiments in one process do not interfere."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import fedge
from e2e.experiments import SMALL, Settings, assert_same, changed
from fedge.config import parse, plain
from fedge.core.progress import Silent
from fedge.data.digits import Digits
from fedge.data.divided_dataset import DividedClients
from fedge.experiment.start import resume
from fedge.sweeps import worker
from fedge.sweeps.plan import PlannedRun

CELLS = {"clock": "cells", "cells": 4, "global_every": 2, "mobility_rate": 0.5, "redraw": True, "record": True}


def train(folder: Path, settings: Settings, progress: Silent | None = None) -> Path:
    run = fedge.run(settings, runs=folder, progress=progress)
    assert isinstance(run, fedge.Run)
    return run.path


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds for which data were built, in order."""
    seeds: list[int] = []
    build = Digits.build

    def count(options: Digits, seed: int) -> DividedClients:
        seeds.append(seed)
        return build(options, seed)

    monkeypatch.setattr(Digits, "build", count)
    return seeds


@pytest.mark.parametrize("engine", ["loop", "wire", "block", "pool", "auto"])
def test_a_run_builds_its_data_once(engine: str, built: list[int], tmp_path: Path) -> None:
    """Evaluation by users, traces and records of the edge, which read data too, are all on."""
    settings = changed(SMALL, rounds=2, engine={"name": engine}, trace={"clients": 1}, edge=CELLS)
    train(tmp_path, changed(settings, evaluate={"user_accuracy": True, "train": True}))
    assert built == [3]


def test_repeats_build_their_data_once_for_each_seed(built: list[int], tmp_path: Path) -> None:
    fedge.run(changed(SMALL, rounds=1), runs=tmp_path, seeds=[5, 4, 6])
    assert built == [5, 4, 6]


def test_a_resumed_run_builds_its_data_once(built: list[int], tmp_path: Path) -> None:
    path = train(tmp_path, changed(SMALL, rounds=1))
    resume(path, ["rounds=2"], Silent())
    assert built == [3, 3]
    resume(path, [], Silent())  # complete: there is nothing to do
    assert built == [3, 3]


def test_the_worker_of_a_sweep_builds_data_once(built: list[int], tmp_path: Path) -> None:
    class Deaf:
        def send(self, message: object) -> None:
            pass

    planned = PlannedRun("small", tmp_path / "small", plain(parse(changed(SMALL, rounds=2))))
    telling = worker.Telling(Deaf(), os.getppid())
    worker.train(planned.until(1), telling)
    assert built == [3]
    worker.train(planned, telling)
    assert built == [3, 3]


class Between(Silent):
    """Does something else after every round."""

    def __init__(self, something: Callable[[], object]) -> None:
        self._something = something

    def round(self, record: Mapping[str, Any]) -> None:
        self._something()


def experiments(folder: Path) -> list[Settings]:
    """Two that differ in seed, number of clients, data and places, and use all that a run remembers of them."""
    found = []
    for seed, clients, drift in (
        (3, 10, {"name": "label_shift", "until": 3}),
        (4, 13, {"name": "feature_shift", "until": 3, "std": 1.0, "fraction": 0.5}),
    ):
        file = folder / f"{seed}.csv"
        file.write_text("\n".join(["client,start,end", *(f"{client},0,1e9" for client in range(seed, clients))]) + "\n")
        found.append(
            changed(
                SMALL,
                name=f"seed-{seed}",
                seed=seed,
                rounds=3,
                data={"clients": clients, "augment": {"flip": True, "crop": 28, "pad": 2}, "drift": drift},
                algorithm={"name": "scaffold", "local_steps": 2},
                edge={**CELLS, "availability": {"name": "trace", "file": str(file)}},
                evaluate={"user_accuracy": True, "train": True},
            )
        )
    return found


@pytest.mark.parametrize("engine", ["loop", "block"])
@pytest.mark.parametrize("which", [(0, 1), (1, 0)], ids=["first", "second"])
def test_two_experiments_in_one_process_do_not_interfere(engine: str, which: tuple[int, int], tmp_path: Path) -> None:
    """One runs as a whole after every round of the other; each gets what it gets alone."""
    both = experiments(tmp_path)
    outer, inner = (changed(both[i], engine={"name": engine}) for i in which)
    outer_alone, inner_alone = (train(tmp_path / "alone", each) for each in (outer, inner))
    nested: list[Path] = []
    between = Between(lambda: nested.append(train(tmp_path / "together", inner)))
    assert_same(train(tmp_path / "together", outer, between), outer_alone)
    assert len(nested) == 3
    for path in nested:
        assert_same(path, inner_alone)
        assert (path / "edge.jsonl").read_bytes() == (inner_alone / "edge.jsonl").read_bytes()
