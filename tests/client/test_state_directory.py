"""A client's state directory: consistent at every moment, and never another client's."""

from __future__ import annotations

import json
import os
import random
import signal
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fedge.client.state_directory import MissingStateError, StateDirectory
from fedge.core.errors import RunError, StorageError, StreamError
from fedge.core.state_version import Version
from filled import filled
from runs.crashing import spawn

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


def test_another_run_starts_fresh_and_the_first_one_is_kept(path: Path) -> None:
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
        state.begin("ab12", 2)
        state.begin("ab12", 3)  # it had not joined as 2, which another client has taken since
        state.write(FIRST, tree(1.0))
        with pytest.raises(RunError, match="belongs to client 3 of run ab12, but the server now calls it client 4"):
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


FULL_DISK = 7


def take_part(path: Path) -> None:
    """Run two rounds of two exchanges, each round twice; log which versions it keeps and has written."""
    told = path.with_name(f"{path.name}.told")

    def tell(what: str, versions: list[Version]) -> None:
        with told.open("a") as file:
            file.write(json.dumps([what, versions]) + "\n")

    with StateDirectory(path, "pi") as state:
        state.begin("ab12", 3)
        durable = []
        for round in (1, 2):
            for attempt in (1, 2):
                base = durable
                for exchange in (0, 1):
                    version = Version(round, exchange, attempt)
                    tell("keep", durable + base)
                    state.trim({*durable, *base})
                    state.write(version, tree(100 * round + 10 * exchange + attempt))
                    tell("wrote", [version])
                    base = [version]
            durable = base


def expected(told: Path) -> set[Version]:
    """Return the versions that the process must have had when it ended."""
    versions: set[Version] = set()
    for line in told.read_text().splitlines() if told.exists() else ():
        what, named = json.loads(line)
        known = {Version(*version) for version in named}
        assert known <= versions or what == "wrote"
        versions = versions | known if what == "wrote" else known
    return versions


@pytest.mark.full
@pytest.mark.parametrize("mode", ["kill", "kill-half", "fail", "fail-half"])
def test_ended_at_every_call(tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written versions exist until they may be deleted, and every existing version is complete."""
    monkeypatch.setattr(os, "fsync", lambda file: None)
    end = FULL_DISK if mode.startswith("fail") else -signal.SIGKILL
    codes = []
    for fatal in range(1000):
        path = tmp_path / str(fatal)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(spawn(partial(take_part, path), fatal, mode), 0)[1]))
        with StateDirectory(path, "pi") as state:
            state.begin("ab12", 3)
            found = state.versions()
            for version in found:
                assert value_of(state, version) == 100 * version.round + 10 * version.exchange + version.attempt
            assert set(found) >= expected(tmp_path / f"{fatal}.told")
            state.trim(found[-2:])
            assert [file.suffix for file in (path / "private" / "ab12").iterdir()] == [".fdg"] * len(found[-2:])
        if codes[-1] != end:
            break
    assert codes == [end] * (len(codes) - 1) + [0]
    assert len(codes) > 30


def reset(path: Path) -> None:
    StateDirectory(path, "pi", reset=True).close()


def test_killed_at_every_call_of_a_reset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda file: None)
    codes, outcomes = [], set()
    for fatal in range(1000):
        path = tmp_path / str(fatal)
        with StateDirectory(path, "pi") as state:
            state.begin("ab12", 3)
            state.write(FIRST, tree(1))
        codes.append(os.waitstatus_to_exitcode(os.waitpid(spawn(partial(reset, path), fatal, "kill"), 0)[1]))
        with StateDirectory(path, "pi") as state:
            state.begin("ab12", 3)
            found = state.read(FIRST)  # never an error: either unchanged or fresh
            outcomes.add(found is None)
            assert state.versions() == ([] if found is None else [FIRST])
        if codes[-1] != -signal.SIGKILL:
            break
    assert codes == [-signal.SIGKILL] * (len(codes) - 1) + [0]
    assert outcomes == {True, False}


def test_full_disk(small_disk: Path) -> None:
    big = {"c": torch.ones(500_000)}
    with StateDirectory(small_disk / "state", "pi") as state:
        state.begin("ab12", 3)
        state.write(FIRST, tree(1))
        with filled(small_disk, 1_000_000):
            folder = small_disk / "state" / "private" / "ab12"
            with pytest.raises(StorageError, match=rf"cannot write {folder}/2-0-1.fdg: No space left on device; free"):
                state.write(THIRD, big)
            assert [file.name for file in folder.iterdir()] == ["1-0-1.fdg"]
            assert value_of(state, FIRST) == 1.0
            with pytest.raises(StorageError, match=r"model\.safetensors"):
                state.write_model(big)
        state.write(THIRD, big)
        assert state.versions() == [FIRST, THIRD]


def test_damaged_versions(path: Path) -> None:
    rng = random.Random(1)
    with StateDirectory(path, "pi") as state:
        state.begin("ab12", 3)
        state.write(FIRST, tree(1))
        file = path / "private" / "ab12" / "1-0-1.fdg"
        whole = file.read_bytes()
        for trial in range(400):
            data = bytearray(whole)
            if trial % 4 == 0:
                del data[rng.randrange(len(data)) :]
            elif trial % 4 == 1:
                data += rng.randbytes(rng.randint(1, 100))
            else:
                place = rng.randrange(len(data))
                data[place] ^= rng.randint(1, 255)
            file.write_bytes(data)
            with pytest.raises(RunError, match=f"{file} is damaged: .*--reset-state"):
                state.read(FIRST)


def test_versions_of_others_are_refused(tmp_path: Path) -> None:
    for name, run in (("pi", "one"), ("po", "one"), ("pi", "two")):
        with StateDirectory(tmp_path / name, name) as state:
            state.begin(run, 0)
            state.write(FIRST, tree(1))
    own = tmp_path / "pi" / "private" / "one"
    with StateDirectory(tmp_path / "pi", "pi") as state:
        state.begin("one", 0)
        (own / "2-0-1.fdg").write_bytes((own / "1-0-1.fdg").read_bytes())
        with pytest.raises(RunError, match="is version 1-0-1 of client 'pi' in run 'one'"):
            state.read(THIRD)
        for other, words in (("po/private/one", "client 'po' in run 'one'"), ("pi/private/two", "in run 'two'")):
            (own / "1-0-1.fdg").write_bytes((tmp_path / other / "1-0-1.fdg").read_bytes())
            with pytest.raises(RunError, match=words):
                state.read(FIRST)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"name": 3}',
        b'{"name": "pi", "number": -1}',
        b'{"name": "pi", "run": "../x"}',
        b'{"name": "pi", "earlier": [1]}',
        b'{"name": "pi", "format": 2}',
        b'{"name": "pi", "new": 1}',
        b"[" * 9999,
    ],
)
def test_damaged_marks(path: Path, content: bytes) -> None:
    with StateDirectory(path, "pi") as state:
        state.begin("ab12", 3)
        state.write(FIRST, tree(1))
    mark = (path / "client.json").read_bytes()
    (path / "client.json").write_bytes(content)
    with pytest.raises(RunError, match=str(path / "client.json")):
        StateDirectory(path, "pi")
    (path / "client.json").write_bytes(mark)
    with StateDirectory(path, "pi") as state:
        state.begin("ab12", 3)
        assert value_of(state, FIRST) == 1.0


def test_a_lost_mark_costs_no_private_state(path: Path) -> None:
    with StateDirectory(path, "pi") as state:
        state.begin("ab12", 3)
        state.write(FIRST, tree(1))
    (path / "client.json").unlink()
    with pytest.raises(RunError, match=r"client.json is missing, but there is private state .*--reset-state"):
        StateDirectory(path, "pi")
    assert (path / "private" / "ab12" / "1-0-1.fdg").exists()
    with StateDirectory(path, "pi", reset=True) as state:
        state.begin("ab12", 3)
        assert state.versions() == []


def test_other_files_stay(path: Path) -> None:
    with StateDirectory(path, "pi") as state:
        state.begin("ab12", 3)
        notes = path / "private" / "ab12" / "notes.txt"
        notes.write_text("mine")
        state.trim(set())
        assert notes.exists()


@pytest.mark.parametrize("version", [Version(-1, 0, 0), Version(0, 0, -(2**63))])
def test_hostile_versions(path: Path, version: Version) -> None:
    with StateDirectory(path, "pi") as state:
        state.begin("ab12", 3)
        for use in (state.read, lambda version: state.write(version, tree(0)), lambda version: state.trim({version})):
            with pytest.raises(StreamError, match="three numbers from 0"):
                use(version)
        huge = Version(2**64 - 1, 2**64 - 1, 2**64 - 1)
        state.write(huge, tree(5))
        assert state.versions() == [huge]


def test_too_many_versions(path: Path) -> None:
    with StateDirectory(path, "pi") as state:
        state.begin("ab12", 3)
        with pytest.raises(ValueError, match="at most 3"):
            state.trim({Version(i, 0, 1) for i in range(4)})
        with pytest.raises(MissingStateError):
            state.read(FIRST)
