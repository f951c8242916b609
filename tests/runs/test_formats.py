"""Runs of older formats: resumed with the values they were made with, or refused with the setting's name.

`format-1` is a run of three rounds that fedge 0.1.0 made, with a tenth of 15 clients in each round.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

import fedge
from fedge.core.errors import RunError
from fedge.core.progress import Silent
from fedge.experiment.start import resume
from fedge.runs import Run
from fedge.runs.files import read_config
from fedge.runs.formats import check_meanings, upgrade

MADE = Path(__file__).parent / "format-1"
LOSSES = [1.3551336526870728, 0.44244736433029175, 0.5399152040481567]
LATER_LOSSES = [0.5203610062599182, 0.4134460389614105, 0.3051791787147522]
"""`train_loss` of the rounds, as fedge 0.1.0 recorded them when it trained six."""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return shutil.copytree(MADE, tmp_path / "run")


def made(**changes: dict[str, Any]) -> dict[str, Any]:
    """Return the stored configuration, with changes."""
    config = json.loads((MADE / "config.json").read_text())
    return config | {name: (config[name] or {}) | table for name, table in changes.items()}


def test_it_resumes_with_the_original_settings(run: Path) -> None:
    assert json.loads((run / "config.json").read_text())["format"] == 1
    resume(run, ["rounds=6"], Silent())
    found = Run(run)
    # a tenth of 15 is 1.5: format 1 rounded down, and today's default would ask two clients from round 4 on
    assert [record["cohort"] for record in found.rounds] == [1] * 6
    assert [record["train_loss"] for record in found.rounds] == pytest.approx(LOSSES + LATER_LOSSES, abs=1e-6)
    assert found.config["selection"]["rounding"] == "down"
    assert json.loads((run / "config.json").read_text())["format"] == 2


@pytest.mark.parametrize(
    ("changes", "rounding"),
    [
        ({}, "down"),
        ({"edge": {"clock": "cells"}}, "up"),
        ({"selection": {"fraction": None, "count": 2}}, None),
        ({"selection": {"rounding": "up"}}, "up"),  # as configured
    ],
)
def test_how_a_fraction_was_rounded(tmp_path: Path, changes: dict[str, Any], rounding: str | None) -> None:
    (tmp_path / "config.json").write_text(json.dumps(made(**changes)))
    assert read_config(tmp_path)[0]["selection"].get("rounding") == rounding


def test_the_current_format_is_unchanged(tmp_path: Path) -> None:
    config = made() | {"format": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "rounding" not in read_config(tmp_path)[0]["selection"]


@pytest.mark.parametrize("config", [{}, {"selection": 3}, {"selection": None, "edge": [1], "schedule": "x"}])
def test_unknown_settings_are_left_to_the_parser(config: dict[str, Any]) -> None:
    assert upgrade(config, 1) == config


STEP = {"name": "step", "factor": 10.0, "patience": 10, "tol": 0.0}


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"evaluate": {"user_accuracy": True, "users": "selected"}}, "evaluate.users"),
        ({"schedule": {"learning_rate": STEP}}, "schedule"),
        ({"schedule": {"local_steps": STEP}}, "schedule"),
        ({"algorithm": {"name": "dynavg"}}, "algorithm.name"),
        ({"cluster": {"count": 2}}, "cluster"),
        ({"codec": {"up": ["qsgd(8)"], "down": None}}, "codec"),
        ({"codec": {"up": None, "down": ["sparse(0.5)", "qsgd(2)"]}}, "codec"),
    ],
)
@pytest.mark.parametrize("more", [[], ["rounds=6"]])
def test_changed_meanings_are_refused(run: Path, changes: Any, setting: str, more: list[str]) -> None:
    (run / "config.json").write_text(json.dumps(made(**changes)))
    (run / "environment.json").write_text('{"fedge": "0.0.9"}')
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(
        RunError, match=rf"has format 1.*: the meaning of {setting} has changed since.* with fedge 0\.0\.9$"
    ):
        resume(run, more, Silent())
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_the_version_in_use_is_never_recommended(run: Path) -> None:
    """Format 1 and format 2 were both written by version 0.1.0."""
    (run / "config.json").write_text(json.dumps(made(cluster={"count": 2})))
    (run / "environment.json").write_text(json.dumps({"fedge": fedge.__version__}))
    with pytest.raises(RunError, match=r"resume it with fedge of the version that wrote it$") as caught:
        resume(run, [], Silent())
    assert fedge.__version__ not in str(caught.value).removeprefix(str(run))


def test_repeats_are_refused_before_a_seed_is_started(tmp_path: Path) -> None:
    config = made(evaluate={"user_accuracy": True, "users": "selected"}) | {"seed": None, "seeds": [1, 2]}
    (tmp_path / "config.json").write_bytes(msgspec.json.encode(config))
    with pytest.raises(RunError, match=r"evaluate\.users"):
        resume(tmp_path, [], Silent())
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_unmeasured_users_do_not_matter(run: Path) -> None:
    (run / "config.json").write_text(json.dumps(made(evaluate={"users": "selected"})))
    resume(run, ["rounds=4"], Silent())
    assert len(Run(run).rounds) == 4


def test_inputs_of_tables_stay_unnormalised() -> None:
    table = {"data": {"name": "table", "file": "t.csv", "target": "y"}}
    assert upgrade(table, 1)["data"]["normalise"] is False
    assert upgrade({"data": {**table["data"], "normalise": True}}, 1)["data"]["normalise"] is True
    assert "normalise" not in upgrade(table, 2)["data"]
    assert "normalise" not in upgrade({"data": {"name": "digits"}}, 1)["data"]


@pytest.mark.parametrize(
    ("algorithm", "setting", "value"), [("dynavg_loss", "loss", "first"), ("pfedme", "start", "w")]
)
def test_implied_algorithm_options_are_filled_in(algorithm: str, setting: str, value: str) -> None:
    assert upgrade({"algorithm": {"name": algorithm}}, 1)["algorithm"][setting] == value
    assert setting not in upgrade({"algorithm": {"name": algorithm}}, 2)["algorithm"]
    assert setting not in upgrade({"algorithm": {"name": "fedavg"}}, 1)["algorithm"]


@pytest.mark.parametrize(
    ("config", "setting"),
    [
        ({"algorithm": {"name": "dynavg"}}, "algorithm.name"),
        ({"cluster": {"count": 2}}, "cluster"),
        ({"codec": {"up": ["qsgd(8)"], "moments": None}}, "codec"),
    ],
)
def test_changed_meanings_affect_older_formats_only(config: dict[str, Any], setting: str) -> None:
    with pytest.raises(RunError, match=rf"^runs/x has format 1.*: the meaning of {setting} has changed"):
        check_meanings("runs/x", config, 1, "0.1.0")
    check_meanings("runs/x", config, 2, "0.1.0")


@pytest.mark.parametrize(
    ("algorithm", "setting", "value"),
    [({"name": "pfedme", "personal_steps": 2}, "start", "w"), ({"name": "dynavg_loss", "epochs": 4}, "loss", "first")],
)
def test_it_resumes_with_the_implied_value(tmp_path: Path, algorithm: dict[str, Any], setting: str, value: str) -> None:
    """Format 1 had no such setting: a current run with that value, its mark removed, equals an old one."""
    raw = {
        "name": "then",
        "seed": 3,
        "data": {"name": "synthetic", "clients": 4},
        "model": {"name": "logistic"},
        "algorithm": algorithm | {"local_steps": 2, setting: value},
        "selection": {"count": 4, "rounding": "down"},
        "engine": {"name": "loop"},
    }
    whole = fedge.run(raw, runs=tmp_path / "whole", rounds=4)
    half = fedge.run(raw, runs=tmp_path / "half", rounds=2)
    assert isinstance(whole, fedge.Run)
    assert isinstance(half, fedge.Run)
    config = json.loads((half.path / "config.json").read_text())
    del config["algorithm"][setting]
    (half.path / "config.json").write_text(json.dumps(config | {"format": 1}))
    resume(half.path, ["rounds=4"], Silent())
    assert Run(half.path).config["algorithm"][setting] == value
    assert [record["loss"] for record in Run(half.path).rounds] == [record["loss"] for record in whole.rounds]


def test_codes_without_draws_can_be_resumed() -> None:
    check_meanings("runs/x", {"codec": {"up": ["uniq"]}, "cluster": None}, 1, "0.1.0")
