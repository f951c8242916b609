"""Which run directory `fedge server` continues, and which it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from e2e.experiments import SMALL, changed
from fedge.config import Config, parse
from fedge.core.errors import ConfigError, RunError
from fedge.experiment.server_run import is_server_run, server_run_status
from fedge.experiment.start import create_run
from fedge.runs import files


def config_of(**changes: Any) -> Config:
    return parse(changed(SMALL, rounds=2, **changes))


def make(path: Path, config: Config, rounds: int = 0, complete: bool = False, registry: bool = True) -> None:
    with create_run(path, config) as directory:
        for number in range(1, rounds + 1):
            directory.append({"round": number})
        if complete:
            directory.write_summary({"rounds": rounds})
    if registry:
        (path / files.REGISTRY).touch()


def test_a_new_run(tmp_path: Path) -> None:
    assert server_run_status(tmp_path / "first", config_of()) == "new"
    (tmp_path / "first").mkdir()  # killed before it was a run
    assert server_run_status(tmp_path / "first", config_of()) == "new"
    assert not is_server_run(tmp_path / "first")


@pytest.mark.parametrize("rounds", [0, 1])
def test_an_unfinished_run(tmp_path: Path, rounds: int) -> None:
    make(tmp_path / "first", config_of(), rounds)
    assert is_server_run(tmp_path / "first")
    assert server_run_status(tmp_path / "first", config_of()) == "unfinished"


def test_a_run_that_was_killed_before_its_registry_was_made(tmp_path: Path) -> None:
    make(tmp_path / "first", config_of(), registry=False)
    assert server_run_status(tmp_path / "first", config_of()) == "unfinished"


def test_settings_without_effect_keep_a_run_complete(tmp_path: Path) -> None:
    make(tmp_path / "first", config_of(), rounds=2, complete=True)
    assert server_run_status(tmp_path / "first", config_of()) == "complete"
    assert server_run_status(tmp_path / "first", config_of(net={"listen": "localhost:1", "lease_s": 5})) == "complete"


def test_a_complete_run_continues_with_more_rounds(tmp_path: Path) -> None:
    make(tmp_path / "first", config_of(), rounds=2, complete=True)
    assert server_run_status(tmp_path / "first", parse(changed(SMALL, rounds=9))) == "unfinished"


@pytest.mark.parametrize("complete", [False, True])
def test_settings_that_must_not_change_are_named(tmp_path: Path, complete: bool) -> None:
    make(tmp_path / "first", config_of(), rounds=1, complete=complete)
    other = config_of(seed=99, algorithm={"name": "scaffold", "local_steps": 2}, engine={"dtype": "float64"})
    with pytest.raises(ConfigError) as raised:
        server_run_status(tmp_path / "first", other)
    assert [problem.partition(":")[0] for problem in raised.value.problems] == [
        "seed",
        "algorithm.name",
        "engine.dtype",
    ]


def test_a_simulated_run_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "first", config_of(), rounds=1, registry=False)
    with pytest.raises(RunError, match=r"first is a simulated run; .*--set name=.*--runs"):
        server_run_status(tmp_path / "first", config_of())


def test_repeats_are_refused(tmp_path: Path) -> None:
    make(tmp_path / "first", parse({**changed(SMALL, rounds=2), "seed": None, "seeds": [1, 2]}), registry=False)
    (tmp_path / "first" / files.ROUNDS).unlink()
    with pytest.raises(RunError, match="is a simulated run"):
        server_run_status(tmp_path / "first", config_of())


def test_a_damaged_run_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "first", config_of(), rounds=1)
    (tmp_path / "first" / files.SUMMARY).write_text("[")
    with pytest.raises(RunError, match=r"summary\.json is damaged"):
        server_run_status(tmp_path / "first", config_of())
