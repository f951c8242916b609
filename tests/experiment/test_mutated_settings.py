"""Any experiment file is refused with a readable error, or an experiment can be set up from it."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fedge.api.functions import run
from fedge.config import load, parse
from fedge.core.errors import FedgeError
from fedge.experiment.setup import Setup
from hostile import extreme_settings, mutate_settings
from mutations import mutate, watched

SETTINGS: list[dict[str, Any]] = [
    {
        "name": "digits",
        "seed": 3,
        "rounds": 6,
        "data": {"name": "digits", "clients": 10},
        "model": {"name": "logistic"},
        "algorithm": {"name": "fedavg", "local_steps": 2},
        "selection": {"count": 3},
    },
    {
        "name": "drawn",
        "seeds": [1, 2],
        "data": {"name": "synthetic", "clients": 10},
        "model": {"name": "nn"},
        "algorithm": {"name": "scaffold", "batch_size": 5},
        "edge": {"clock": "cells", "cells": 4},
        "target": {"value": 0.5},
    },
]


def outcome(make: Any) -> str:
    """Return the error that refuses the settings, or "accepted"; any other exception fails, and so does a hang."""
    with watched():
        try:
            config = make()
            setup = Setup.of(config, 1 if config.seed is None else config.seed)
            setup.world(), setup.hierarchy()
        except FedgeError as error:
            return type(error).__name__
    return "accepted"


@pytest.mark.parametrize("num_cases", [200, pytest.param(2_000, marks=pytest.mark.full)])
def test_mutated_options(num_cases: int) -> None:
    rng = random.Random(15)
    found: Counter[str] = Counter()
    for _ in range(num_cases):
        settings = mutate_settings(rng.choice(SETTINGS), rng)
        found[outcome(lambda raw=settings: parse(raw))] += 1
    # some changes are harmless, most are not, and both kinds must have been tried
    assert found["accepted"] > num_cases / 50
    assert found["ConfigError"] > num_cases / 4


@pytest.mark.parametrize("num_cases", [100, pytest.param(1_000, marks=pytest.mark.full)])
def test_mutated_files(num_cases: int, tmp_path: Path) -> None:
    rng = random.Random(15)
    file = tmp_path / "experiment.toml"
    found: Counter[str] = Counter()
    for _ in range(num_cases):
        file.write_bytes(mutate(tomli_w.dumps(rng.choice(SETTINGS)).encode(), rng))
        found[outcome(lambda: load(file))] += 1
    assert found["accepted"] > 0
    assert found["ConfigError"] > num_cases / 4


def test_the_settings_are_valid_before_they_are_changed() -> None:
    for settings in SETTINGS:
        assert outcome(lambda raw=settings: parse(raw)) == "accepted"


@pytest.mark.parametrize("num_cases", [30, pytest.param(600, marks=pytest.mark.full)])
def test_extreme_numbers_in_training(num_cases: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of one round with options at the ends of their ranges train, or end with a readable error."""
    monkeypatch.chdir(tmp_path)  # trackers write to folders of any name
    rng = random.Random(15)
    found: Counter[str] = Counter()
    for case in range(num_cases):
        settings = extreme_settings(rng.choice(SETTINGS), rng)
        with watched():
            try:
                run(settings, runs=tmp_path / str(case))
            except FedgeError as error:
                found[type(error).__name__] += 1
            else:
                found["trained"] += 1
    assert found["trained"] > num_cases / 6
    assert found["ConfigError"] > num_cases / 6


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"edge": {"clock": "cells", "cells": 2**63 - 1}},
            "edge.cells: expected int <= 10000, got 92233720",
        ),
        ({"edge": {"clock": "cells", "grid": [2**31, 2**31]}}, "edge.grid: expected int <= 10000"),
        ({"cluster": {"count": 2**31}}, "cluster.count: expected int <= 1000, got 2147483648"),
        ({"algorithm": {"name": "fedavg", "batch_size": 2**62}}, "algorithm.batch_size: expected int <= 1000000000"),
        ({"algorithm": {"name": "fedavg", "batch_size": 2**63}}, "algorithm.batch_size: expected a whole number of at"),
        ({"seed": 2**64}, "seed: expected a whole number of at most 64 bits, got 18446744073709551616"),
        ({"engine": {"workers": 10**6}}, "engine.workers: expected int <= 1024, got 1000000"),
        ({"target": {"value": 70}}, "target: value: expected a number from 0 to 1 for accuracy, got 70"),
        ({"name": "x" * 201}, "name: expected at most 200 letters"),
        ({"name": "run\n"}, "name: expected at most 200 letters"),
        ({"data": {"name": "synthetic", "clients": 2**31}}, "data.clients: expected int <= 10000000"),
        ({"data": {"name": "digits", "dir": "a\0b"}}, "data.dir: expected a path, got 'a\\x00b'"),
    ],
)
def test_numbers_and_texts_out_of_bounds(changes: dict[str, Any], expected: str) -> None:
    with watched(), pytest.raises(FedgeError) as caught:
        parse(SETTINGS[0] | changes)
    assert str(caught.value).startswith(expected)


def test_a_loss_may_have_any_target() -> None:
    config = parse(SETTINGS[0] | {"target": {"metric": "loss", "value": 70}})
    assert config.target is not None
    assert config.target.value == 70.0
