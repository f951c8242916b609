import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy
import pytest
import torch

from fedge.runs.environment import environment


def test_versions_and_hardware_are_recorded() -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    found = environment()
    assert found["python"] == platform.python_version()
    assert found["torch"] == torch.__version__
    assert found["numpy"] == numpy.__version__
    assert found["num_threads"] == torch.get_num_threads()
    assert found["cpu"]
    assert isinstance(found["fedge"], str)
    assert before <= datetime.fromisoformat(found["started"]) <= datetime.now(UTC)
    assert msgspec.json.decode(msgspec.json.encode(found)) == found


def test_commit_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    assert environment()["commit"] is None
    who = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
    for command in (["init", "-q"], [*who, "commit", "-q", "--allow-empty", "-m", "empty"]):
        subprocess.run(["git", *command], check=True)
    commit = environment()["commit"]
    assert len(commit) == 40
    assert int(commit, 16) >= 0


def test_without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert environment()["commit"] is None
