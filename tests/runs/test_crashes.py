"""Runs that end at any moment resume exactly from their last checkpoint."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from fedge.core.errors import RunError
from fedge.runs.directory import RunDirectory
from fedge.runs.files import read_config
from fedge.runs.follow import Cursor, follow
from fedge.runs.read import Run

pytestmark = pytest.mark.full

SCRIPT = Path(__file__).with_name("crashing.py")
FULL_DISK = 7


class Crashes(NamedTuple):
    folder: Path
    ends: dict[str, list[int]]  # by mode: how each run's process ended


@pytest.fixture(scope="module")
def crashes(tmp_path_factory: pytest.TempPathFactory) -> Crashes:
    """The runs of the script `crashing.py`."""
    folder = tmp_path_factory.mktemp("crashes")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, SCRIPT, folder], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    ends: dict[str, list[int]] = {}
    for line in done.stdout.splitlines():
        mode, code = line.split()
        ends.setdefault(mode, []).append(int(code))
    return Crashes(folder, ends)


def kept_after(last: int) -> dict[int, float]:
    """Return the private state of clients 0, 1 and 2 after a round of the script."""
    kept = dict.fromkeys(range(3), 0.0)
    for r in range(1, last + 1):
        for client in (r % 3, (r + 1) % 3):
            kept[client] = 10.0 * r + client
    return kept


def check_restored(path: Path) -> int:
    """Return the round from which a run resumes; everything in it must be of that round."""
    assert Run(path).status in ("unfinished", "complete")
    log = path.with_name(f"{path.name}.saved")
    saved = [int(line) for line in log.read_text().split()] if log.exists() else []
    with RunDirectory.open(path) as run:
        kept = run.kept_store({"c": torch.zeros(2)})
        restored = run.restore()
        state, meta = restored or ({"x": torch.zeros(3)}, {"round": 0})
        last = int(meta["round"])
        assert last >= max(saved, default=0)
        assert state["x"].tolist() == [float(last)] * 3
        assert [record["round"] for record in Run(path).rounds] == list(range(1, last + 1))
        for client, value in kept_after(last).items():
            assert kept.read(client)["c"].tolist() == [value, value]
    return last


@pytest.mark.parametrize(
    ("mode", "code"),
    [
        ("kill", -signal.SIGKILL),
        ("kill-half", -signal.SIGKILL),
        ("fail", FULL_DISK),
        ("fail-half", FULL_DISK),
    ],
)
def test_ended_at_every_call(crashes: Crashes, mode: str, code: int) -> None:
    ends = crashes.ends[mode]
    assert ends == [code] * (len(ends) - 1) + [0]  # the fault did not reach the last one
    restored = set()
    for n in range(len(ends)):
        path = crashes.folder / mode / str(n)
        if (path / "config.json").exists():
            restored.add(check_restored(path))
        else:
            with pytest.raises(RunError, match="no run at"):
                RunDirectory.open(path)
            RunDirectory.create(path, {}, {}).close()
    assert restored == {0, 2, 4}


@pytest.mark.parametrize(("mode", "code"), [("kill-restore", -signal.SIGKILL), ("fail-restore", FULL_DISK)])
def test_ended_at_every_call_of_a_restore(crashes: Crashes, mode: str, code: int) -> None:
    ends = crashes.ends[mode]
    assert ends == [code] * (len(ends) - 1) + [0]
    seen = []
    for n in range(len(ends)):
        path = crashes.folder / mode / str(n)
        (_, mark), num_rounds = read_config(path), len(Run(path).rounds)
        seen.append((mark.generation, num_rounds))
        before = Cursor(mark.id, 0, 3 * len(b'{"round":1}\n'))  # of a follower that has seen three rounds
        assert follow(path, before).restarted is (mark.generation > 0)
        assert check_restored(path) == 2
        assert read_config(path)[1].generation == mark.generation + 2
    assert set(seen) == {(0, 3), (1, 3), (1, 2), (2, 2), (2, 3)}  # never (0, 2)


def test_killed_from_outside(crashes: Crashes) -> None:
    ends = crashes.ends["race"]
    assert set(ends) == {-signal.SIGKILL}
    for n in range(len(ends)):
        assert check_restored(crashes.folder / "race" / str(n)) >= 2
