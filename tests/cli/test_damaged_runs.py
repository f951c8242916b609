"""A damaged or foreign run directory is reported with file and field; the runs next to it are still shown."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedge.api.functions import run
from fedge.core.errors import RunError
from fedge.runs.checkpoint import Checkpoint, chunks, load
from fedge.runs.read import Run
from mutations import mutate, watched

SETTINGS: dict[str, Any] = {
    "name": "bad",
    "seed": 3,
    "rounds": 3,
    "data": {"name": "digits", "clients": 10},
    "model": {"name": "logistic"},
    "algorithm": {"name": "fedavg", "local_steps": 2},
    "selection": {"count": 3},
    "checkpoint": {"every": 1},
    "evaluate": {"user_accuracy": True},
    "target": {"value": 0.1},
    "edge": {"clock": "cells", "cells": 4, "record": True},
    "trace": {"clients": 2},
    "engine": {"name": "loop"},
}
FILES = ("config.json", "summary.json", "environment.json", "rounds.jsonl", "clients.jsonl", "edge.jsonl")
VALUES = (None, True, 0, -5, 1e308, 2**70, 10**400, "text", "", [], {}, [1], {"a": 1}, [[[]]])
NESTED = b'{"name": ' + b"[" * 100_000
STATE = "checkpoint/state.safetensors"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    run(SETTINGS, runs=folder)
    run(SETTINGS | {"name": "good", "seed": 4}, runs=folder)
    return folder


@pytest.fixture
def runs(trained: Path, tmp_path: Path) -> Path:
    """A good run, and one called `bad` for tests to damage."""
    return Path(shutil.copytree(trained, tmp_path / "runs"))


def corrupt(file: Path, rng: random.Random) -> None:
    """Change bytes of a file, or a value in its JSON."""
    data = file.read_bytes()
    draw = rng.random()
    if file.suffix == ".safetensors" or draw < 0.3:
        file.write_bytes(mutate(data, rng))
    elif draw < 0.35:
        file.write_bytes(NESTED)
    else:
        lines = [data] if file.suffix == ".json" else data.splitlines()
        objects = [json.loads(line) for line in lines]
        number = rng.randrange(len(objects))
        places = list(_places(objects[number]))
        table, key = rng.choice(places)
        if rng.random() < 0.2:
            del table[key]
        else:
            table[key] = rng.choice(VALUES)
        file.write_text("".join(json.dumps(each) + "\n" for each in objects))


def _places(value: Any) -> list[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [(value, key) for key in keys] + [place for key in keys for place in _places(value[key])]


@pytest.mark.parametrize("num_cases", [15, pytest.param(800, marks=pytest.mark.full)])
def test_corrupted_files(fedge: Callable[..., Any], trained: Path, runs: Path, num_cases: int) -> None:
    rng = random.Random(15)
    damaged = 0
    for case in range(num_cases):
        shutil.rmtree(runs)
        shutil.copytree(trained, runs)
        bad = runs / "bad"
        corrupt(bad / rng.choice([*FILES, STATE]), rng)
        commands: list[list[object]] = [
            ["list", runs],
            ["show", runs],
            ["show", bad],
            ["report", runs, "-o", runs / "report.md"],
            ["export", runs, "--to", "csv", "-o", runs / "all.csv"],
            ["export", runs, "--to", "hfl-json", "-o", runs / "hfl"],
            ["resume", bad, "--set", "rounds=4", "--quiet"],
        ]
        if case % 10 == 0:  # drawing is slow
            commands = [["plot", runs, "--kind", kind, "-o", runs / "c.svg"] for kind in ("curves", "users", "latency")]
            commands += [["plot", bad, "--kind", kind, "-o", runs / "c.svg"] for kind in ("grid", "timeline")]
            commands += [["show", runs, "--chart", runs / "c.svg"], ["show", bad, "--chart", runs / "c.svg"]]
        for command in rng.sample(commands, 2):
            with watched():
                result = fedge(*command)  # unexpected exceptions propagate
            about_both = command[1] == runs
            assert result.exit_code in ((0,) if about_both else (0, 2, 3, 4, 5, 6)), (command, result.stderr)
            if about_both and command[0] in ("list", "show"):
                assert "good" in result.stdout
            damaged += result.exit_code == 6 or "is damaged" in result.stderr
    assert damaged > num_cases / 3


@pytest.mark.parametrize(
    ("name", "field", "value", "expected"),
    [
        ("config.json", "algorithm", 5, "algorithm: expected object, got int"),
        ("config.json", "target", {"metric": 3}, "target.metric: expected str, got int"),
        ("config.json", "seeds", "1", "seeds: expected array | null, got str"),
        ("config.json", "metrics", [{"name": "f1"}], "metrics[0]: object missing required field better"),
        ("config.json", "metrics", [{"name": "\x1b[31m", "better": "lower"}], "metrics[0].name: expected str matching"),
        ("config.json", "metrics", [{"name": "f1", "better": "up"}], "metrics[0].better: invalid enum value 'up'"),
        ("summary.json", "accuracy", [0.5], "accuracy: expected a number, got [0.5]"),
        ("summary.json", "bytes_up_to_target", {}, "bytes_up_to_target: expected a number, got {}"),
        ("summary.json", "ended_by", 3, "ended_by: expected text, got 3"),
        ("rounds.jsonl", "round", -5, "round: expected int >= 1"),
        ("rounds.jsonl", "round", 2**60, "round: expected int <= 9007199254740992"),
        ("rounds.jsonl", "mine", [10**400], "mine.0: expected a number of at most 300 digits"),
        ("summary.json", "mine", 10**400, "mine: expected a number of at most 300 digits"),
        ("rounds.jsonl", "accuracy", "0.5", "accuracy: expected bool | float | null, got str"),
        ("rounds.jsonl", "clock", 1, "clock: expected str | null, got int"),
    ],
)
def test_wrong_types(fedge: Callable[..., Any], runs: Path, name: str, field: str, value: Any, expected: str) -> None:
    file = runs / "bad" / name
    *others, last = file.read_text().splitlines() if name == "rounds.jsonl" else [file.read_text()]
    file.write_text("\n".join([*others, json.dumps(json.loads(last) | {field: value})]) + "\n")
    result = fedge("show", runs / "bad")
    assert result.exit_code == 6
    assert f"{file} is damaged: {expected}" in result.stderr
    listed = fedge("list", runs)
    assert listed.exit_code == 0
    assert [line.split()[1] for line in listed.stdout.splitlines()[2:]] == ["damaged", "complete"]


EARLY = [{"round": number, "filler": "x" * 100} for number in range(1, 301)]
"""Length of records that exceeds the tail which is read to inspect a run."""


@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize(
    "command",
    [
        ("list",),
        ("show",),
        ("show", "--chart", "c.svg"),
        ("report", "-o", "r.md"),
        ("export", "--to", "csv", "-o", "r.csv"),
        ("export", "--to", "hfl-json", "-o", "hfl"),
        ("plot", "-o", "c.svg"),
        ("resume", "--set", "rounds=400"),
    ],
    ids=" ".join,
)
def test_a_record_without_a_round(
    fedge: Callable[..., Any], runs: Path, monkeypatch: pytest.MonkeyPatch, place: str, command: tuple[str, ...]
) -> None:
    """Both for a record in the tail that is read to inspect a run, and for one before it."""
    monkeypatch.chdir(runs.parent)
    file = runs / "bad" / "rounds.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines += [lines[-1] | record for record in EARLY[len(lines) :]]
    for line in lines:
        line.pop("accuracy", None)  # `list` then searches all records for it
    del lines[0 if place == "first" else -1]["round"]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    name, *options = command
    expected = "rounds.jsonl is damaged: object missing required field round"
    alone = fedge(name, runs / "bad", *options)
    assert expected in alone.stderr
    assert str(file) in alone.stderr
    if name == "resume":
        assert alone.exit_code == 6
        return
    assert alone.exit_code == (0 if name == "list" else 6)
    both = fedge(name, runs, *options)
    assert both.exit_code == 0
    assert expected in both.stderr
    if name in ("list", "show"):
        assert "good" in both.stdout


def test_wrong_types_of_the_environment(fedge: Callable[..., Any], runs: Path) -> None:
    file = runs / "bad" / "environment.json"
    file.write_text('{"started": [], "engine": 5}')
    with pytest.raises(RunError, match=r"environment\.json is damaged: started: expected str \| null, got array"):
        _ = Run(runs / "bad").environment
    assert fedge("report", runs, "-o", runs / "report.md").exit_code == 0
    assert fedge("resume", runs / "bad", "--set", "rounds=4", "--quiet").exit_code == 0


def test_nested_json(fedge: Callable[..., Any], runs: Path) -> None:
    for name in FILES:
        (runs / "bad" / name).write_bytes(NESTED + b"\n")
    assert "good" in fedge("show", runs).stdout
    (runs / "bad" / "config.json").write_text('{"format": 1, "data": ' + '{"a": ' * 500 + "1" + "}" * 501)
    assert "nested deeper than 30" in fedge("list", runs).stderr


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda state, meta: meta.update(round=-5), "expected int >= 0 - at meta.round"),
        (lambda state, meta: meta.update(totals={}), "meta.totals: expected messages"),
        (lambda state, meta: meta.update(metrics=[]), "meta.metrics"),
        (
            lambda state, meta: state.update({"server.base.x": torch.zeros(7)}),
            "server.base.x: expected torch.float32 of shape [7850], got torch.float32 of shape [7]",
        ),
        (
            lambda state, meta: state.update({"server.base.x": state["server.base.x"].double()}),
            "server.base.x: expected torch.float32 of shape [7850], got torch.float64 of shape [7850]",
        ),
        (lambda state, meta: state.pop("world.seconds"), "world.seconds is missing"),
        (lambda state, meta: state.update({"world.y": torch.zeros(1)}), "world.y is unknown"),
        (
            lambda state, meta: state.update({"users.accuracy": torch.zeros(1)}),
            "users.accuracy: expected one row per entry",
        ),
    ],
)
def test_checkpoint_of_another_run(
    fedge: Callable[..., Any], runs: Path, change: Callable[[Any, Any], object], expected: str
) -> None:
    file = runs / "bad" / STATE
    found = load(file)
    assert found is not None
    change(found.state, found.meta)
    file.write_bytes(b"".join(bytes(part) for part in chunks(Checkpoint(*found))))
    result = fedge("resume", runs / "bad", "--set", "rounds=5")
    assert result.exit_code == 6
    assert f"{file} is not a checkpoint of this run: " in result.stderr.replace("\n", "")
    assert expected.casefold() in result.stderr.casefold()
