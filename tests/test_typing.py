"""Type checkers accept programs that use the API, and reject wrong ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "own_model.py"
WRONG = """\
import fedge

experiment = fedge.Experiment(data="digits", model="logistic", algorithm=fedge.FedAvg(), algoritm=1)
run = experiment.run(rounds="3")
runs: fedge.Run = experiment.run(seeds=[1, 2])
fedge.FedAvg(learning_rat=0.1)
fedge.Run("a").sumary
"""

pytestmark = pytest.mark.full


def check(tool: str, *args: object) -> subprocess.CompletedProcess[str]:
    pytest.importorskip(tool)
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", tool, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)


def wrong_lines(said: str, file: Path) -> set[int]:
    """Return the lines of a file in which errors were found."""
    lines = [line.strip() for line in said.splitlines() if file.name in line and "error" in line]
    return {int(line.partition(f"{file.name}:")[2].partition(":")[0]) for line in lines}


def test_mypy(tmp_path: Path) -> None:
    done = check("mypy", "--strict", EXAMPLE)
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    assert wrong_lines(check("mypy", "--strict", wrong).stdout, wrong) == {3, 4, 5, 6, 7}


def test_basedpyright(tmp_path: Path) -> None:
    settings = tmp_path / "pyrightconfig.json"
    settings.write_text(f'{{"typeCheckingMode": "standard", "extraPaths": ["{ROOT / "src"}"]}}')
    example = tmp_path / "example.py"
    example.write_text(EXAMPLE.read_text())
    done = check("basedpyright", "--pythonpath", sys.executable, "--project", settings, example)
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    assert wrong_lines(
        check("basedpyright", "--pythonpath", sys.executable, "--project", settings, wrong).stdout, wrong
    ) == {3, 4, 5, 6, 7}
