"""Ctrl-C ends a run at once, prints how to resume it, and loses nothing."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from e2e.command import PATIENCE_S, Fedge, start_cold, wait_until
from e2e.experiments import SMALL, assert_same, changed, records, write

LIMIT_S = 5.0  # it takes a fraction of a second, but the machine may be busy


def test_interrupted_and_resumed(fedge: Fedge, tmp_path: Path) -> None:
    settings = changed(SMALL, algorithm={"name": "scaffold", "local_steps": 2})
    run = tmp_path / "runs" / "small"
    process = start_cold("run", write(tmp_path, changed(settings, rounds=1_000_000)), folder=tmp_path)
    try:
        wait_until(lambda: process.poll() is not None or (run / "checkpoint" / "state.safetensors").exists())
        process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        _, told = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert time.monotonic() - sent < LIMIT_S
    assert process.returncode == 130
    assert told.endswith("\ninterrupted; to resume: fedge resume runs/small\n")
    assert "Traceback" not in told

    num_rounds = len(records(run)) + 3
    assert fedge("resume", "runs/small", "--set", f"rounds={num_rounds}", folder=tmp_path).code == 0
    whole = write(tmp_path, changed(settings, rounds=num_rounds))
    assert fedge("run", whole, "--runs", tmp_path / "undisturbed").code == 0
    assert_same(run, tmp_path / "undisturbed" / "small")


def test_interrupted_in_a_round_that_takes_forever(fedge: Fedge, tmp_path: Path, runs: Path) -> None:
    endless = changed(SMALL, algorithm={"local_steps": 10_000_000})
    with fedge.start("run", write(tmp_path, endless), "--runs", runs) as process:
        wait_until((runs / "small" / "config.json").exists)
        time.sleep(0.3)  # until it is past the preparations
        sent = time.monotonic()
        process.send(signal.SIGINT)
        ended = process.wait()
    assert time.monotonic() - sent < LIMIT_S
    assert ended.code == 130
    assert f"interrupted; to resume: fedge resume {runs}/small\n" in ended.err
    assert fedge("resume", runs / "small", "--set", "algorithm.local_steps=2").code == 0
    assert len(records(runs / "small")) == SMALL["rounds"]


def test_repeats_are_resumed_together(fedge: Fedge, tmp_path: Path, runs: Path) -> None:
    repeats = {name: value for name, value in SMALL.items() if name != "seed"} | {"seeds": [1, 2], "rounds": 1_000_000}
    with fedge.start("run", write(tmp_path, repeats), "--runs", runs) as process:
        wait_until((runs / "small" / "seed-1" / "checkpoint" / "state.safetensors").exists)
        process.send(signal.SIGINT)
        ended = process.wait()
    assert ended.code == 130
    assert ended.err.endswith(f"interrupted; to resume: fedge resume {runs}/small\n")
