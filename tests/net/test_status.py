"""status.json is complete at every moment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedge.core.errors import RunError
from fedge.net.status import PublishedStatus, ServerStatus, StatusFile, read_status


def test_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    assert read_status(path) is None
    times = iter([1_000_000_000.0, 1_000_000_002.0])
    file = StatusFile(path, clock=lambda: next(times))
    status = ServerStatus(run="ab", state="open", round=3, clients={"idle": 2}, waiting_for="x\x1b[2J", bytes_up=10)
    file.write(status)
    assert b"\x1b" not in path.read_bytes()
    found = read_status(path)
    assert isinstance(found, PublishedStatus)
    assert (found.run, found.round, found.clients, found.waiting_for) == ("ab", 3, {"idle": 2}, "x\x1b[2J")
    assert (found.time, found.pid, found.up_bytes_per_s) == ("2001-09-09T01:46:40.000Z", os.getpid(), 0.0)
    file.write(ServerStatus(run="ab", state="open", bytes_up=110, bytes_down=1000))
    found = read_status(path)
    assert found is not None
    assert (found.up_bytes_per_s, found.down_bytes_per_s) == (50.0, 500.0)
    assert [entry.name for entry in tmp_path.iterdir()] == ["status.json"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"run": 3}', '{"run": "a", "state": "b", "time": 1, "pid": 2}'])
def test_damaged_status_file(tmp_path: Path, content: str) -> None:
    path = tmp_path / "status.json"
    path.write_text(content)
    with pytest.raises(RunError, match=str(path)):
        read_status(path)
