"""Run directories that cannot be used: no space, no permission, foreign, or in use."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from e2e.command import Fedge, wait_until
from e2e.experiments import SMALL, Settings, assert_same, changed, records, snapshot, write

KEEPING = changed(SMALL, rounds=12, data={"clients": 100}, selection={"count": 10}, algorithm={"name": "scaffold"})
"""Clients store 31 kB each, and their file grows by 1 MB at a time."""


def refuse(fedge: Fedge, code: int, *args: object, **options: object) -> str:
    """Check that the command ends with this code and without a traceback; return its message."""
    ended = fedge(*args, **options)
    assert ended.code == code, ended.err
    assert "Traceback" not in ended.err
    return ended.err


@pytest.mark.full
@pytest.mark.parametrize(
    ("settings", "free_kb", "grown"),
    [
        (KEEPING, 1500, "kept.bin"),
        (changed(SMALL, rounds=12), 60, "state.safetensors"),  # room for one checkpoint of 31 kB, but not for two
    ],
)
def test_full_disk(
    fedge: Fedge, tmp_path: Path, small_disk: Path, settings: Settings, free_kb: int, grown: str
) -> None:
    ballast = small_disk / "ballast"
    space = os.statvfs(small_disk)
    ballast.write_bytes(bytes(space.f_bavail * space.f_frsize - 1024 * free_kb))
    file, run = write(tmp_path, settings), small_disk / "runs" / "small"
    said = refuse(fedge, 7, "run", file, "--runs", small_disk / "runs")
    assert f"cannot write {run}/checkpoint/{grown}: No space left on device; free space" in said
    assert f"`fedge resume {run}`" in said
    assert 0 < len(records(run)) < settings["rounds"]
    refuse(fedge, 7, "resume", run)  # nothing has changed yet

    ballast.unlink()
    assert fedge("resume", run).code == 0
    assert fedge("run", file, "--runs", tmp_path / "undisturbed").code == 0
    assert_same(run, tmp_path / "undisturbed" / "small")


@pytest.mark.full
def test_disk_that_is_full_from_the_start(fedge: Fedge, tmp_path: Path, small_disk: Path) -> None:
    space = os.statvfs(small_disk)
    (small_disk / "ballast").write_bytes(bytes(space.f_bavail * space.f_frsize))
    said = refuse(fedge, 7, "run", write(tmp_path, SMALL), "--runs", small_disk / "runs")
    assert "No space left on device; free space on that disk, then start again" in said


def test_files_that_may_not_grow(fedge: Fedge, tmp_path: Path, runs: Path) -> None:
    file = write(tmp_path, KEEPING)
    said = refuse(fedge, 7, "run", file, "--runs", runs, file_bytes=1_500_000)
    assert f"cannot write {runs}/small/checkpoint/kept.bin: File too large" in said
    assert 0 < len(records(runs / "small")) < KEEPING["rounds"]
    assert fedge("resume", runs / "small").code == 0
    assert fedge("run", file, "--runs", tmp_path / "undisturbed").code == 0
    assert_same(runs / "small", tmp_path / "undisturbed" / "small")


def test_read_only_folder(fedge: Fedge, tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    said = refuse(fedge, 7, "run", write(tmp_path, SMALL), "--runs", folder, powerless=True)
    assert f"cannot write {folder}/small: Permission denied; grant yourself write permission" in said
    assert list(folder.iterdir()) == []


def test_read_only_run(fedge: Fedge, tmp_path: Path, runs: Path) -> None:
    assert fedge("run", write(tmp_path, SMALL), "--runs", runs).code == 0
    before = snapshot(runs)
    for path in [*runs.rglob("*"), runs]:
        path.chmod(0o500)
    try:
        said = refuse(fedge, 7, "resume", runs / "small", "--set", "rounds=9", powerless=True)
    finally:
        for path in [runs, runs / "small", runs / "small" / "checkpoint"]:
            path.chmod(0o700)
    assert f"{runs}/small: Permission denied; grant yourself write permission" in said
    assert snapshot(runs) == before


def test_file_in_place_of_the_folder(fedge: Fedge, tmp_path: Path) -> None:
    file = write(tmp_path, SMALL)
    said = refuse(fedge, 7, "run", file, "--runs", file)
    assert f"cannot write {file}/small: Not a directory" in said


def test_newer_format(fedge: Fedge, tmp_path: Path, runs: Path) -> None:
    assert fedge("run", write(tmp_path, SMALL), "--runs", runs).code == 0
    config = runs / "small" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"format": 3, "of_the_future": True}))
    before = snapshot(runs)
    said = refuse(fedge, 6, "resume", runs / "small", "--set", "rounds=9")
    assert f"error: {runs}/small has format 3, and this fedge reads up to format 2" in said
    assert snapshot(runs) == before


@pytest.mark.parametrize(
    ("name", "content", "fragment"),
    [
        ("notes.txt", "mine", "no run at {folder}: expected config.json"),
        ("config.json", '{"version": 3}', "{folder} is not a run of fedge"),
        ("config.json", "[1, 2", "{folder}/config.json is damaged"),
    ],
)
def test_foreign_folder(fedge: Fedge, tmp_path: Path, runs: Path, name: str, content: str, fragment: str) -> None:
    folder = runs / "small"
    folder.mkdir(parents=True)
    (folder / name).write_text(content)
    before = snapshot(runs)
    assert fragment.format(folder=folder) in refuse(fedge, 6, "resume", folder)
    assert snapshot(runs) == before
    assert fedge("run", write(tmp_path, SMALL), "--runs", runs).code == 0
    assert len(records(runs / "small-2")) == SMALL["rounds"]  # next to the existing folder, not over it
    assert snapshot(folder) == before


def test_no_folder(fedge: Fedge, runs: Path) -> None:
    assert f"no run at {runs}" in refuse(fedge, 6, "resume", runs)
    assert not runs.exists()


def test_two_processes_on_one_run(fedge: Fedge, tmp_path: Path, runs: Path) -> None:
    with fedge.start("run", write(tmp_path, changed(SMALL, rounds=1_000_000)), "--runs", runs) as first:
        rounds = runs / "small" / "rounds.jsonl"
        wait_until(lambda: rounds.exists() and rounds.stat().st_size > 0)
        said = refuse(fedge, 6, "resume", runs / "small", "--set", "rounds=9")
        assert f"{runs}/small is in use by process {first.pid}" in said
        first.send(signal.SIGINT)
        assert first.wait().code == 130
    lines = [record["round"] for record in records(runs / "small")]
    assert lines == list(range(1, len(lines) + 1))  # the second has changed nothing
    assert fedge("resume", runs / "small", "--set", f"rounds={len(lines) + 1}").code == 0
