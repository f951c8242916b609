"""Fixtures: calling the command, and runs to call it on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fedge.cli import app

UNSET = ("FEDGE_DEBUG", "FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS")
"""Environment variables that affect output; the last three force colour even into pipes."""

EXPERIMENT = """
name = "tiny"
rounds = 3

[data]
name = "digits"
clients = 10

[model]
name = "logistic"

[algorithm]
name = "fedavg"
local_steps = 2

[selection]
count = 2
"""


@pytest.fixture
def fedge() -> Callable[..., Result]:
    """Call `fedge` with these arguments; unexpected exceptions propagate."""
    runner = CliRunner(env={"NO_COLOR": "1", **dict.fromkeys(UNSET)})

    def call(*args: object) -> Result:
        return runner.invoke(app, [str(arg) for arg in args], prog_name="fedge", catch_exceptions=False)

    return call


@pytest.fixture
def fedge_process() -> Callable[..., subprocess.Popen[str]]:
    """Start `fedge` as a separate process."""
    # Tests in the background ignore Ctrl-C, and child processes would inherit that.
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{listen}; import sys; sys.path[:0] = {sys.path!r}; from fedge.cli import main; main()"

    def start(*args: object, **options: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code, *map(str, args)]
        env = {name: value for name, value in os.environ.items() if name not in UNSET}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, text=True, env=env, **pipes | options)

    return start


@pytest.fixture
def experiment_file(tmp_path: Path) -> Path:
    """An experiment file that trains almost instantly."""
    file = tmp_path / "tiny.toml"
    file.write_text(EXPERIMENT)
    return file


@pytest.fixture
def write_run() -> Callable[..., Path]:
    """Write a run directory without training."""

    def write(
        path: Path,
        accuracies: Sequence[float] = (0.5, 0.75),
        summary: dict[str, Any] | None = None,
        complete: bool = True,
        **config: Any,
    ) -> Path:
        path.mkdir(parents=True)
        settings = {"format": 1, "name": "made", "seed": 1, "rounds": 2, "algorithm": {"name": "fedavg"}}
        (path / "config.json").write_text(json.dumps(settings | config))
        records = [
            {"round": i, "accuracy": accuracy, "train_loss": 1 / i, "bytes_up": 3_000_000, "sim_seconds": 7.5}
            for i, accuracy in enumerate(accuracies, 1)
        ]
        (path / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        if complete:
            (path / "summary.json").write_text(json.dumps(summary or {"rounds": len(records)}))
        return path

    return write
