"""Resuming runs: repeats, complete runs, more rounds, changed settings, and after divergence."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from e2e.command import Fedge, wait_until
from e2e.experiments import SMALL, assert_same, changed, snapshot, summary, write

REPEATS = {name: value for name, value in SMALL.items() if name != "seed"} | {"seeds": [1, 2, 3], "rounds": 12}


def finish(fedge: Fedge, *args: object) -> str:
    """Run a command that must succeed, and return its messages."""
    ended = fedge(*args)
    assert ended.code == 0, ended.err
    return ended.err


def test_repeats_killed_in_the_second(fedge: Fedge, tmp_path: Path, runs: Path) -> None:
    file = write(tmp_path, REPEATS)
    finish(fedge, "run", file, "--runs", tmp_path / "undisturbed")
    with fedge.start("run", file, "--runs", runs) as process:
        second = runs / "small" / "seed-2" / "rounds.jsonl"
        wait_until(lambda: second.exists() and second.stat().st_size > 0)
        assert process.kill().code == -signal.SIGKILL
    assert not (runs / "small" / "seed-3").exists()
    told = finish(fedge, "resume", runs / "small")
    assert f"{runs}/small/seed-1: is complete already" in told
    for seed in (1, 2, 3):
        assert_same(runs / "small" / f"seed-{seed}", tmp_path / "undisturbed" / "small" / f"seed-{seed}")
    accuracies = {summary(runs / "small" / f"seed-{seed}")["accuracy"] for seed in (1, 2, 3)}
    assert len(accuracies) > 1  # the repeats differ


def test_complete_run_is_reported_and_unchanged(fedge: Fedge, tmp_path: Path, runs: Path) -> None:
    finish(fedge, "run", write(tmp_path, SMALL), "--runs", runs)
    before = snapshot(runs)
    told = finish(fedge, "resume", runs / "small")
    assert told == f"{runs}/small: is complete already\n"
    assert snapshot(runs) == before


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_more_rounds_give_the_same_as_one_long_run(fedge: Fedge, tmp_path: Path, runs: Path, algorithm: str) -> None:
    short = changed(SMALL, algorithm={"name": algorithm, "local_steps": 2}, rounds=3)
    finish(fedge, "run", write(tmp_path, short), "--runs", runs)
    finish(fedge, "resume", runs / "small", "--set", "rounds=7")
    finish(fedge, "run", write(tmp_path, changed(short, rounds=7)), "--runs", tmp_path / "long")
    assert_same(runs / "small", tmp_path / "long" / "small")


def test_more_rounds_of_repeats(fedge: Fedge, tmp_path: Path, runs: Path) -> None:
    finish(fedge, "run", write(tmp_path, changed(REPEATS, rounds=2)), "--runs", runs)
    finish(fedge, "resume", runs / "small", "--set", "rounds=5")
    finish(fedge, "run", write(tmp_path, changed(REPEATS, rounds=5)), "--runs", tmp_path / "long")
    for seed in (1, 2, 3):
        assert_same(runs / "small" / f"seed-{seed}", tmp_path / "long" / "small" / f"seed-{seed}")


def test_more_rounds_of_repeats_are_remembered(fedge: Fedge, tmp_path: Path, runs: Path) -> None:
    """Otherwise a second `resume`, such as after Ctrl-C in the first one, would undo the change."""
    finish(fedge, "run", write(tmp_path, changed(REPEATS, rounds=2)), "--runs", runs)
    finish(fedge, "resume", runs / "small", "--set", "rounds=5")
    finish(fedge, "resume", runs / "small")
    configs = [runs / "small" / "config.json", runs / "small" / "seed-1" / "config.json"]
    assert [json.loads(config.read_text())["rounds"] for config in configs] == [5, 5]


@pytest.mark.parametrize(
    ("change", "table"),
    [
        ("data.clients=20", "data"),
        ("seed=4", "seed"),
        ("model.name=nn", "model"),
        ("algorithm.name=scaffold", "algorithm.name"),
        ("personal.private=none", "personal"),
    ],
)
def test_another_experiment_is_refused(fedge: Fedge, tmp_path: Path, runs: Path, change: str, table: str) -> None:
    finish(fedge, "run", write(tmp_path, changed(SMALL, rounds=1)), "--runs", runs)
    before = snapshot(runs)
    ended = fedge("resume", runs / "small", "--set", change)
    assert ended.code == 2
    assert ended.err == f"error: {table}: cannot change when a run is resumed; start a new run instead\n"
    assert snapshot(runs) == before


@pytest.mark.parametrize(
    "change",
    [
        "selection.count=11",
        "edge.up_mbps=[1.0, 2.0]",
        "engine.dtype=float64",
    ],
)
def test_a_refused_change_leaves_everything_unchanged(fedge: Fedge, tmp_path: Path, runs: Path, change: str) -> None:
    settings = changed(SMALL, rounds=1, algorithm={"name": "scaffold", "local_steps": 2})
    finish(fedge, "run", write(tmp_path, settings), "--runs", runs)
    before = snapshot(runs)
    assert fedge("resume", runs / "small", "--set", change, "--set", "rounds=2").code in (2, 6)
    assert snapshot(runs) == before


def test_a_damaged_checkpoint_leaves_everything_unchanged(fedge: Fedge, tmp_path: Path, runs: Path) -> None:
    finish(fedge, "run", write(tmp_path, SMALL), "--runs", runs)
    state = runs / "small" / "checkpoint" / "state.safetensors"
    content = bytearray(state.read_bytes())
    content[-1] ^= 1
    state.write_bytes(content)
    before = snapshot(runs)
    ended = fedge("resume", runs / "small", "--set", "rounds=9")
    assert ended.code == 6
    assert f"{state} is damaged" in ended.err
    assert snapshot(runs) == before


DEEP = changed(SMALL, model={"name": "nn"}, algorithm={"local_steps": 10})


def test_divergence_is_reported_and_can_be_fixed(fedge: Fedge, tmp_path: Path, runs: Path) -> None:
    finish(fedge, "run", write(tmp_path, changed(DEEP, rounds=3)), "--runs", runs)
    run = runs / "small"
    ended = fedge("resume", run, "--set", "rounds=6", "--set", "algorithm.learning_rate=1e10")
    assert ended.code == 5
    assert "error: round 4, client " in ended.err
    assert "not finite" in ended.err
    assert f"fedge resume {run} --set algorithm.learning_rate=1e+09\n" in ended.err
    assert "Traceback" not in ended.err

    finish(fedge, "resume", run, "--set", "algorithm.learning_rate=0.1")
    finish(fedge, "run", write(tmp_path, DEEP), "--runs", tmp_path / "gentle")
    assert_same(run, tmp_path / "gentle" / "small")


def test_divergence_before_anything_was_saved(fedge: Fedge, tmp_path: Path, runs: Path) -> None:
    ended = fedge("run", write(tmp_path, changed(DEEP, algorithm={"learning_rate": 1e10})), "--runs", runs)
    assert ended.code == 5
    assert "error: round 1, client " in ended.err
    finish(fedge, "resume", runs / "small", "--set", "algorithm.learning_rate=0.1")
    finish(fedge, "run", write(tmp_path, DEEP), "--runs", tmp_path / "gentle")
    assert_same(runs / "small", tmp_path / "gentle" / "small")


def test_divergence_that_shows_a_round_later(fedge: Fedge, tmp_path: Path, runs: Path) -> None:
    """Two steps lead to weights that are finite, but too large to continue from."""
    steep = changed(DEEP, algorithm={"learning_rate": 1e10, "local_steps": 2})
    assert fedge("run", write(tmp_path, steep), "--runs", runs).code == 5
    finish(fedge, "resume", runs / "small", "--set", "algorithm.learning_rate=0.1")
    assert summary(runs / "small")["rounds"] == SMALL["rounds"]


def test_loss_that_is_infinite(fedge: Fedge, tmp_path: Path, runs: Path) -> None:
    """Weights of 1e37 still give uploads and gradients that are finite, but not a loss."""
    ended = fedge("run", write(tmp_path, changed(SMALL, algorithm={"learning_rate": 1e37})), "--runs", runs)
    assert ended.code == 5
    assert "error: round 1" in ended.err
    finish(fedge, "resume", runs / "small", "--set", "algorithm.learning_rate=0.1")
    assert summary(runs / "small")["rounds"] == SMALL["rounds"]


def test_fewer_rounds_than_were_trained(fedge: Fedge, tmp_path: Path, runs: Path) -> None:
    finish(fedge, "run", write(tmp_path, changed(SMALL, rounds=3)), "--runs", runs)
    before = snapshot(runs)
    ended = fedge("resume", runs / "small", "--set", "rounds=2")
    assert ended.code == 2
    assert ended.err == "error: rounds: expected at least the 3 rounds already trained, got 2\n"
    assert snapshot(runs) == before
