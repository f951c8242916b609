"""Recipes are valid, and each of their points trains, in a shortened version."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from e2e.command import Fedge
from fedge.sweeps.plan import load, work_out

RECIPES = Path(__file__).parents[2] / "recipes"
FILES = sorted(RECIPES.rglob("*.toml"))
BESIDE = Path(__file__).parents[3] / "shared" / "data"
PACKAGED = Path("/usr/share/datasets")  # Debian's dataset-fashion-mnist
SHORT = ["budget.local_steps=1", "seeds=[1]", "sweep.workers=2"]  # one round exceeds one step
MOST_POINTS = 2  # points of a sweep that are tried, chosen at random
FOLDERS = {"mnist": "mnist", "fashion_mnist": "fashion-mnist"}


def name_of(file: Path) -> str:
    return str(file.relative_to(RECIPES))


def test_there_are_recipes() -> None:
    assert len(FILES) >= 10


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_every_point_is_a_valid_experiment(file: Path) -> None:
    trials = work_out(load(file)).trials
    assert trials
    assert [trial.problems for trial in trials if trial.problems] == []


@pytest.mark.full
@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_every_point_trains(file: Path, fedge: Fedge, tmp_path: Path) -> None:
    data = Path(os.environ.get("FEDGE_DATA") or BESIDE).absolute()
    settings = tomllib.loads(file.read_text())
    if folder := FOLDERS.get(settings["data"]["name"]):
        found = [root for root in (data, PACKAGED) if (root / folder).is_dir()]
        if not found:
            pytest.skip(f"needs the files of {folder}/ in the folder that FEDGE_DATA names")
        data = found[0]
    num_points = len(work_out(load(file)).trials)
    short = [*SHORT, f"sweep.fraction={MOST_POINTS / num_points}"] if num_points > MOST_POINTS else SHORT
    changes = [part for change in short for part in ("--set", change)]
    ended = fedge("sweep", file, *changes, "--runs", tmp_path, environment={"FEDGE_DATA": str(data)})
    assert ended.code == 0, ended.err
    assert len(list(tmp_path.rglob("summary.json"))) == len(work_out(load(file, short)).trials)
