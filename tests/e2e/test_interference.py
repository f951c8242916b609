"""Two experiments in one process do not interfere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import fedge as package
from e2e.command import Fedge
from e2e.experiments import SMALL, Settings, assert_same, changed, write
from fedge.core.progress import Silent

pytestmark = pytest.mark.full

CELLS = {"clock": "cells", "cells": 4, "global_every": 2, "mobility_rate": 0.5, "redraw": True, "record": True}


class Between(Silent):
    """Calls a function after every round."""

    def __init__(self, something: Callable[[], object]) -> None:
        self._something = something

    def round(self, record: Mapping[str, Any]) -> None:
        self._something()


def experiments(folder: Path) -> list[Settings]:
    """Two experiments that differ in seed, clients, data and places, and use everything that a run caches."""
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


def train(folder: Path, settings: Settings, progress: Silent | None = None) -> Path:
    run = package.run(settings, runs=folder, progress=progress)
    assert isinstance(run, package.Run)
    return run.path


def train_alone(fedge: Fedge, folder: Path, settings: Settings) -> Path:
    """Train in a new process."""
    ended = fedge("run", write(folder / settings["name"], settings), "--runs", folder, "--quiet")
    assert ended.code == 0, ended.err
    return next(folder.glob(f"{settings['name']}*/config.json")).parent


@pytest.mark.parametrize("engine", ["loop", "block"])
@pytest.mark.parametrize("which", [(0, 1), (1, 0)], ids=["first", "second"])
def test_experiments_do_not_interfere(engine: str, which: tuple[int, int], fedge: Fedge, tmp_path: Path) -> None:
    """One runs completely after every round of the other; both give the same results as in their own processes."""
    both = experiments(tmp_path)
    outer, inner = (changed(both[i], engine={"name": engine}) for i in which)
    nested: list[Path] = []
    between = Between(lambda: nested.append(train(tmp_path / "together", inner)))
    around = train(tmp_path / "together", outer, between)
    assert len(nested) == 3
    assert_same(around, train_alone(fedge, tmp_path / "alone", outer))
    alone = train_alone(fedge, tmp_path / "alone", inner)
    for path in nested:
        assert_same(path, alone)
        assert (path / "edge.jsonl").read_bytes() == (alone / "edge.jsonl").read_bytes()
