"""`fedge new`"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import fedge as library
from fedge.config import load
from fedge.core.schema import tag


@pytest.mark.full
def test_new_algorithm_passes_its_test(fedge, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = fedge("new", "algorithm", "half_step")
    assert said.stdout.splitlines() == [
        "wrote half_step.py",
        "wrote test_half_step.py",
        "next: algorithm.name = half_step.py:HalfStep",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_half_step.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
    text = (tmp_path / "half_step.py").read_text()
    assert "@" not in text
    assert max(map(len, text.splitlines())) <= 120
    listed = json.loads(fedge("info", "algorithms", "half_step.py:HalfStep", "--format", "json").stdout)
    assert "step" in [option["name"] for option in listed["options"]]


def test_new_experiment_runs_the_new_algorithm(fedge, tmp_path):
    said = json.loads(fedge("new", "experiment", "first", "--dir", tmp_path, "--format", "json").stdout)
    assert said == {"files": [f"{tmp_path}/first.toml"], "next": f"fedge run {tmp_path}/first.toml"}
    fedge("new", "algorithm", "half_step", "--dir", tmp_path)
    name = f"{tmp_path}/half_step.py:HalfStep"
    assert tag(type(load(tmp_path / "first.toml", [f"algorithm.name={name}"]).algorithm)) == name
    found = library.run(tmp_path / "first.toml", runs=tmp_path / "runs", rounds=2, **{"algorithm.name": name})
    assert isinstance(found, library.Run)
    assert found.status == "complete"


def test_existing_files_are_not_overwritten(fedge, tmp_path):
    (tmp_path / "test_mine.py").write_text("mine")
    result = fedge("new", "algorithm", "mine", "--dir", tmp_path)
    assert result.exit_code == 2
    assert f"{tmp_path}/test_mine.py: already exists" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["test_mine.py"]
    assert (tmp_path / "test_mine.py").read_text() == "mine"


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("algorithm", "half-step", "expected a lower-case Python module name"),
        ("algorithm", "../x", "expected a lower-case Python module name"),
        ("algorithm", "HalfStep", "expected a lower-case Python module name"),
        ("experiment", "../x", "name: "),
        ("experiment", "", "name: "),
    ],
)
def test_invalid_name(fedge, tmp_path, kind, name, expected):
    result = fedge("new", kind, name, "--dir", tmp_path / "new")
    assert result.exit_code == 2
    assert expected in result.stderr
    assert not Path(tmp_path / "new").exists()
