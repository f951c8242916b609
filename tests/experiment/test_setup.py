"""A run builds its data once, whatever reads them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fedge
from e2e.experiments import SMALL, Settings, changed
from fedge.config import parse, plain
from fedge.core.progress import Silent
from fedge.data.digits import Digits
from fedge.data.divided_dataset import DividedClients
from fedge.experiment.start import resume
from fedge.sweeps import worker
from fedge.sweeps.plan import PlannedRun

CELLS = {"clock": "cells", "cells": 4, "record": True}


def train(folder: Path, settings: Settings) -> Path:
    run = fedge.run(settings, runs=folder)
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

    planned = PlannedRun("small", tmp_path / "small", plain(parse(changed(SMALL, rounds=2))), tmp_path)
    telling = worker.Telling(Deaf(), os.getppid())
    worker.train(planned.until(1), telling)
    assert built == [3]
    worker.train(planned, telling)
    assert built == [3, 3]
