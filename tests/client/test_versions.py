"""A client's state directory: whole at every moment, and never that of somebody else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fedge.client.versions import MissingStateError, StateDirectory
from fedge.core.errors import RunError, StreamError
from fedge.core.version import Version

FIRST, SECOND, THIRD = Version(1, 0, 1), Version(1, 1, 1), Version(2, 0, 1)


def tree(value: float) -> dict[str, torch.Tensor]:
    return {"c": torch.full((5,), value), "n": torch.tensor([3], dtype=torch.int64)}


def value_of(state: StateDirectory, version: Version) -> float:
    found = state.read(version)
    assert found is not None
    assert found.keys() == {"c", "n"}
    assert found["n"].tolist() == [3]
    return float(found["c"].unique())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state"


def test_versions(path: Path) -> None:
    with StateDirectory(path, "pi", "server:1") as state:
        assert (state.run, state.number) == (None, None)
        state.begin("ab12", 3)
        assert state.read(None) is None
        for value, version in enumerate((THIRD, FIRST, SECOND)):
            state.write(version, tree(value))
        assert state.versions() == [FIRST, SECOND, THIRD]
        assert [value_of(state, version) for version in (THIRD, FIRST, SECOND)] == [0.0, 1.0, 2.0]
        state.write(FIRST, tree(9.0))
        assert value_of(state, FIRST) == 9.0
        state.trim({THIRD, Version(3, 0, 1)})
        assert state.versions() == [THIRD]
    with StateDirectory(path, "pi") as state:
        assert (state.run, state.number) == ("ab12", 3)
        state.begin("ab12", 3)
        assert value_of(state, THIRD) == 0.0
    assert json.loads((path / "client.json").read_text())["server"] == "server:1"


def test_a_missing_version(path: Path) -> None:
    with StateDirectory(path, "pi") as state:
        state.begin("ab12", 3)
        state.write(SECOND, tree(0))
        with pytest.raises(MissingStateError, match=r"version 2-0-1 .* has 1-1-1; .*--reset-state"):
            state.read(THIRD)


def test_another_run_starts_fresh_and_the_first_one_is_still_there(path: Path) -> None:
    with StateDirectory(path, "pi") as state:
        state.begin("one", 3)
        state.write(FIRST, tree(1))
        state.begin("two", 0)
        assert state.versions() == []
        with pytest.raises(MissingStateError):
            state.read(FIRST)
        state.begin("one", 3)
        assert value_of(state, FIRST) == 1.0
        for run in ("two", "three", "four", "five"):
            state.begin(run, 0)
        assert sorted(folder.name for folder in (path / "private").iterdir()) == ["five", "four", "three", "two"]


def test_reset(path: Path) -> None:
    with StateDirectory(path, "pi") as state:
        state.begin("ab12", 3)
        state.write(THIRD, tree(1))
    with StateDirectory(path, "pi", reset=True) as state:
        assert state.run is None
        state.begin("ab12", 4)
        assert state.read(THIRD) is None
    with StateDirectory(path, "pi") as state:  # a reset is remembered
        state.begin("ab12", 4)
        assert state.read(THIRD) is None
        state.write(Version(3, 0, 2), tree(2))
        state.trim({Version(3, 0, 2)})
    with StateDirectory(path, "pi") as state:
        state.begin("ab12", 4)
        assert state.read(THIRD) is None  # until the server knows a newer one
        with pytest.raises(MissingStateError):
            state.read(Version(3, 1, 2))
        state.begin("other", 1)
        with pytest.raises(MissingStateError):
            state.read(FIRST)


def test_another_number(path: Path) -> None:
    with StateDirectory(path, "pi") as state:
        state.begin("ab12", 3)
        with pytest.raises(RunError, match="belongs to client 3 of run ab12, but the server now says 4"):
            state.begin("ab12", 4)


def test_another_client(path: Path) -> None:
    StateDirectory(path, "pi").close()
    for reset in (False, True):
        with pytest.raises(RunError, match=f"{path} is the state directory of client 'pi', but this client is 'po'"):
            StateDirectory(path, "po", reset=reset)
    StateDirectory(path, "pi").close()


def test_used_twice(path: Path) -> None:
    with StateDirectory(path, "pi"), pytest.raises(RunError, match=f"{path} is in use by process {os.getpid()}"):
        StateDirectory(path, "pi")
    StateDirectory(path, "pi").close()


@pytest.mark.parametrize("run", ["", ".", "..", "../../x", "/etc", "a/b", "a\x00", "a\n", "x" * 65])
def test_hostile_run_ids(path: Path, run: str) -> None:
    with StateDirectory(path, "pi") as state:
        with pytest.raises(StreamError, match="expected the id of a run"):
            state.begin(run, 0)
        assert state.run is None


def test_private_state_is_private(path: Path) -> None:
    StateDirectory(path, "pi").close()
    assert path.stat().st_mode & 0o777 == 0o700


def test_final_model(path: Path) -> None:
    with StateDirectory(path, "pi") as state:
        file = state.write_model({"weight": torch.arange(6.0).view(2, 3), "steps": torch.tensor([4])})
    found = load_file(file)
    assert found["weight"].tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert found["steps"].tolist() == [4]
