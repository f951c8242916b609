"""Files that a run has only on request: `traces.jsonl` and `edge.jsonl`."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from fedge.core.errors import RunError, StorageError
from fedge.runs.directory import RunDirectory
from fedge.runs.read import Run


class Log(NamedTuple):
    name: str
    append: Callable[[RunDirectory, dict[str, Any]], None]
    read: Callable[[Run], list[dict[str, Any]]]


LOGS = (
    Log("traces.jsonl", lambda run, line: run.append_traces([line]), lambda run: run.traces),
    Log("edge.jsonl", lambda run, line: run.append_edge(line), lambda run: run.edge),
)


@pytest.fixture(params=LOGS, ids=lambda log: log.name)
def log(request: pytest.FixtureRequest) -> Log:
    found = request.param
    assert isinstance(found, Log)
    return found


def work(run: RunDirectory, log: Log, *rounds: int) -> None:
    for r in rounds:
        log.append(run, {"round": r, "seconds": [None, 0.5]})
        run.append({"round": r})


def save(run: RunDirectory, r: int) -> None:
    run.save({"x": torch.tensor([float(r)])}, {"round": r})


def rounds_seen(path: Path, log: Log) -> list[int]:
    return [line["round"] for line in log.read(Run(path))]


def test_there_is_no_file_without_lines(tmp_path: Path, log: Log) -> None:
    with RunDirectory.create(tmp_path, {}, {}) as run:
        run.append({"round": 1})
        save(run, 1)
    assert not (tmp_path / log.name).exists()
    assert log.read(Run(tmp_path)) == []


def test_a_line_is_visible_at_once(tmp_path: Path, log: Log) -> None:
    with RunDirectory.create(tmp_path, {}, {}) as run:
        log.append(run, {"round": 1, "loss": float("nan")})
        assert (tmp_path / log.name).read_bytes() == b'{"round":1,"loss":null}\n'


def test_restore_goes_back_to_the_checkpoint(tmp_path: Path, log: Log) -> None:
    """Each file goes back to its own length: the other one has more lines."""
    (other,) = (each for each in LOGS if each is not log)
    with RunDirectory.create(tmp_path, {}, {}) as run:
        work(run, log, 1, 2)
        for k in range(100):
            other.append(run, {"round": 2, "step": k})
        save(run, 2)
        work(run, log, 3)
        other.append(run, {"round": 3})
    with RunDirectory.open(tmp_path) as run:
        restored = run.restore()
        assert restored is not None
        assert restored[1] == {"round": 2}
        assert rounds_seen(tmp_path, log) == [1, 2] == [record["round"] for record in Run(tmp_path).rounds]
        assert len(other.read(Run(tmp_path))) == 100
        work(run, log, 3, 4)
    assert rounds_seen(tmp_path, log) == [1, 2, 3, 4]


def test_restore_without_a_checkpoint_goes_back_to_the_start(tmp_path: Path, log: Log) -> None:
    with RunDirectory.create(tmp_path, {}, {}) as run:
        work(run, log, 1)
    with RunDirectory.open(tmp_path) as run:
        assert run.restore() is None
        assert rounds_seen(tmp_path, log) == []
        work(run, log, 1)
    assert rounds_seen(tmp_path, log) == [1]


def test_lines_that_begin_after_the_checkpoint(tmp_path: Path, log: Log) -> None:
    with RunDirectory.create(tmp_path, {}, {}) as run:
        run.append({"round": 1})
        save(run, 1)
        work(run, log, 2)
    with RunDirectory.open(tmp_path) as run:
        run.restore()
    assert rounds_seen(tmp_path, log) == []


@pytest.mark.parametrize("left", [5, None])
def test_lost_lines(tmp_path: Path, log: Log, left: int | None) -> None:
    file = tmp_path / log.name
    with RunDirectory.create(tmp_path, {}, {}) as run:
        work(run, log, 1)
        save(run, 1)
    content = file.read_bytes()
    file.unlink() if left is None else file.write_bytes(content[:left])
    problem = rf"{re.escape(log.name)} is damaged: expected at least the {len(content)} bytes"
    with RunDirectory.open(tmp_path) as run, pytest.raises(RunError, match=problem):
        run.restore()
    assert len(Run(tmp_path).rounds) == 1  # nothing was lost by trying


def test_a_partial_line_is_removed(tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_half(file: int, data: bytes) -> None:
        real(file, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    import fedge.runs.directory as module

    real = module.write_all
    with RunDirectory.create(tmp_path, {}, {}) as run:
        work(run, log, 1)
        before = (tmp_path / log.name).read_bytes()
        monkeypatch.setattr(module, "write_all", write_half)
        with pytest.raises(StorageError, match=rf"cannot write .*{re.escape(log.name)}: No space left on device; free"):
            log.append(run, {"round": 2})
    assert (tmp_path / log.name).read_bytes() == before


def test_a_partial_line_is_not_read(tmp_path: Path, log: Log) -> None:
    with RunDirectory.create(tmp_path, {}, {}) as run:
        work(run, log, 1)
        with (tmp_path / log.name).open("ab") as file:
            file.write(b'{"round": 2')
        assert rounds_seen(tmp_path, log) == [1]
