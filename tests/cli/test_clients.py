"""`fedge clients`"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fedge.core.lock import Lock
from fedge.net.protocol import Facts
from fedge.net.registry import Registry, TaskRow
from fedge.net.status import ServerStatus, StatusFile

COLUMNS = ("number", "name", "state", "last seen", "rounds", "down", "up", "rejected", "declined", "certificate until")
FACTS = Facts(shape=(4,), num_outputs=2, task="classes", size=10)


@pytest.fixture
def server_run(write_run: Callable[..., Path], tmp_path: Path) -> Path:
    path = write_run(tmp_path / "runs" / "real", complete=False)
    registry = Registry.open(path / "registry.sqlite")
    registry.join("pi", "f", None, FACTS, 1_000_000_000.0, "10.0.0.1:5", expires_s=86400.0)
    registry.join("\x1b[2Jbad", None, None, FACTS, 1_000_000_000.0)
    registry.seen(0, 1_000_000_100.0, "working")
    registry.count_bytes(0, 5_000_000, 2_000_000)
    for round, state in ((1, "settled"), (2, "settled"), (3, "rejected"), (4, "declined"), (5, "declined")):
        registry.record(TaskRow(f"t{round}", 0, round, 0, 1, "work", state, 1_000_000_100.0))
    registry.flush()
    registry.close()
    return path


def test_table(fedge, server_run: Path) -> None:
    result = fedge("clients", server_run)
    assert result.exit_code == 0
    head, _, first, second = result.stdout.splitlines()
    assert re.split("  +", head) == [*COLUMNS]
    assert re.split("  +", first.strip())[:3] == ["0", "pi", "away"]
    assert re.split("  +", first.strip())[4:] == ["2", "5 MB", "2 MB", "1", "2", "2001-09-10"]
    assert "\\u001b[2Jbad" in second
    assert "\x1b" not in result.stdout


def test_json(fedge, server_run: Path) -> None:
    lock = Lock(server_run / "lock")
    try:
        result = fedge("clients", server_run, "--format", "json")
    finally:
        lock.release()
    said = json.loads(result.stdout)
    pi, bad = said["clients"]
    assert said["run"] == str(server_run)
    assert (pi["number"], pi["name"], pi["state"], pi["rounds"]) == (0, "pi", "working", 2)
    assert (pi["last_seen"], pi["expires"]) == ("2001-09-09T01:48:20.000Z", "2001-09-10T01:46:40.000Z")
    assert (pi["bytes_down"], pi["bytes_up"], pi["rejected"], pi["declined"]) == (5_000_000, 2_000_000, 1, 2)
    assert (bad["name"], bad["expires"]) == ("\x1b[2Jbad", None)


def test_why_clients_could_not_join(fedge, server_run: Path) -> None:
    """Reasons come from clients, so they must be made safe to print."""
    why = {"pi2": "the client cannot take part: no file\x1b[2J", "pi3": "options differ"}
    StatusFile(server_run / "status.json").write(ServerStatus(run="ab", state="waiting", not_joined=why))
    *_, first, second = fedge("clients", server_run).stdout.splitlines()
    assert first == "pi2 could not join: the client cannot take part: no file\\u001b[2J"
    assert second == "pi3 could not join: options differ"
    assert json.loads(fedge("clients", server_run, "--format", "json").stdout)["not_joined"] == why


def test_newest_server_run_is_the_default(fedge, server_run: Path, write_run: Callable[..., Path]) -> None:
    runs = server_run.parent
    write_run(runs / "simulated")
    older = write_run(runs / "older")
    Registry.open(older / "registry.sqlite").close()
    os.utime(older / "registry.sqlite", (1, 1))
    assert json.loads(fedge("clients", "--runs", runs, "--format", "json").stdout)["run"] == str(server_run)
    assert "no client has joined" in fedge("clients", older).stdout


def test_no_server_run(fedge, write_run: Callable[..., Path], tmp_path: Path) -> None:
    simulated = write_run(tmp_path / "runs" / "simulated")
    result = fedge("clients", "--runs", tmp_path / "runs")
    assert result.exit_code == 6
    assert "no server run" in result.stderr
    result = fedge("clients", simulated)
    assert result.exit_code == 6
    assert f"no registry at {simulated}/registry.sqlite" in result.stderr


def test_reading_changes_nothing(fedge, server_run: Path) -> None:
    before = {file: file.read_bytes() for file in server_run.iterdir()}
    assert fedge("clients", server_run).exit_code == 0
    assert {file: file.read_bytes() for file in server_run.iterdir()} == before
