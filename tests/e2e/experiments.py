"""Experiments that train quickly, and functions that read their runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from fedge.core.progress import Silent
from fedge.runs.checkpoint import load
from fedge.runs.read import Run

Settings = dict[str, Any]

SMALL: Settings = {
    "name": "small",
    "seed": 3,
    "rounds": 6,
    "data": {"name": "digits", "clients": 10},
    "model": {"name": "logistic"},
    "algorithm": {"name": "fedavg", "local_steps": 2},
    "selection": {"count": 3},
    "checkpoint": {"every": 1},
}
"""A small default experiment that is fast."""

_CLOCK = ("seconds",)  # fields that differ between two runs of the same experiment


class Stopping(Silent):
    """Ends a run after round 5, which is recorded, while the last checkpoint is of an earlier round."""

    def round(self, record: Mapping[str, Any]) -> None:
        if record["round"] == 5:
            raise KeyboardInterrupt


def changed(settings: Settings, **changes: Any) -> Settings:
    """Return settings with changes; a table is merged by key, unless its name changes."""
    merged = dict(settings)
    for name, value in changes.items():
        before = merged.get(name)
        keeps = isinstance(before, dict) and isinstance(value, dict) and "name" not in value
        merged[name] = {**before, **value} if keeps else value
    return merged


def write(folder: Path, settings: Settings) -> Path:
    """Write an experiment file and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "experiment.toml"
    file.write_text(tomli_w.dumps(settings))
    return file


def records(run: Path) -> list[dict[str, Any]]:
    """Return the records of all rounds, without measured times."""
    lines = (run / "rounds.jsonl").read_text().splitlines()
    return [_timeless(json.loads(line)) for line in lines]


def summary(run: Path) -> dict[str, Any]:
    """Return the results of a run, without measured times."""
    return _timeless(json.loads((run / "summary.json").read_text()))


def assert_same(run: Path, undisturbed: Path) -> None:
    """Check that two complete runs have bit-identical results."""
    assert records(run) == records(undisturbed)
    assert summary(run) == summary(undisturbed)
    assert (run / "clients.jsonl").read_bytes() == (undisturbed / "clients.jsonl").read_bytes()
    assert Run(run).config == Run(undisturbed).config
    assert dict(_saved(run)) == dict(_saved(undisturbed))


def snapshot(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """Return modification time and content of all files in a folder, except locks, which may be held and released."""
    files = [file for file in folder.rglob("*") if file.is_file() and file.name != "lock"]
    return {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in files}


def kept(run: Path) -> dict[int, bytes]:
    """Return the clients' private state at the last checkpoint."""
    checkpoint = load(run / "checkpoint" / "state.safetensors")
    assert checkpoint is not None
    if not checkpoint.kept:
        return {}
    rows = (run / "checkpoint" / "kept.bin").read_bytes()
    size = int(checkpoint.kept["row_bytes"])
    places = zip(checkpoint.kept["clients"].tolist(), checkpoint.kept["rows"].tolist(), strict=True)
    return {client: rows[row * size : (row + 1) * size] for client, row in places}


def _saved(run: Path) -> Iterator[tuple[str, Any]]:
    """Return everything in the last checkpoint."""
    checkpoint = load(run / "checkpoint" / "state.safetensors")
    assert checkpoint is not None
    for name, tensor in checkpoint.state.items():
        yield name, (tensor.dtype, tuple(tensor.shape), tensor.numpy().tobytes())
    yield "meta", _timeless(checkpoint.meta)
    yield "kept", kept(run)


def _timeless(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in _CLOCK}
