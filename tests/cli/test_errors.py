"""Error messages and exit codes of commands."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fedge.cli import errors
from fedge.core.errors import ConfigError, DataError, FedgeError, RunError


def test_one_problem_on_one_line():
    assert errors.written(RunError("no run at x")) == "error: no run at x"
    assert errors.written(ConfigError("rounds: is required")) == "error: rounds: is required"


def test_several_problems_as_a_list():
    error = ConfigError("rounds: is required", "seed: expected int, got 'a'")
    assert errors.written(error) == "error: 2 problems\n  - rounds: is required\n  - seed: expected int, got 'a'"


@pytest.mark.parametrize("kind", [FedgeError, *FedgeError.__subclasses__()])
def test_exit_code_matches_the_error(fedge, monkeypatch, kind):
    def fail(path: object) -> None:
        raise kind("this broke")

    monkeypatch.setattr("fedge.runs.find_runs", fail)
    result = fedge("show", "runs")
    assert result.exit_code == kind.exit_code
    assert result.stderr == "error: this broke\n"
    assert result.stdout == ""


def test_debugging_shows_the_traceback_as_well(monkeypatch):
    from typer.testing import CliRunner

    from fedge.cli import app

    def fail(path: object) -> None:
        raise DataError("this broke")

    monkeypatch.setattr("fedge.runs.find_runs", fail)
    result = CliRunner(env={"FEDGE_DEBUG": "1"}).invoke(app, ["show", "runs"])
    assert result.exit_code == 3
    assert "Traceback" in result.stderr
    assert result.stderr.endswith("error: this broke\n")


def test_a_bug_has_a_traceback_and_exit_code_1():
    code = f"""
import sys
sys.path[:0] = {sys.path!r}
sys.argv = ["fedge", "show", "runs"]
import fedge.runs
fedge.runs.find_runs = lambda path: 1 / 0
from fedge.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_closed_pipe_is_not_an_error(fedge_process):
    process = fedge_process("--help")
    process.stdout.close()  # before the command writes anything
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("format", ["text", "json"])
def test_full_disk(fedge_process, write_run, tmp_path, format):
    write_run(tmp_path / "a")
    with open("/dev/full", "w") as full:
        process = fedge_process("list", tmp_path, "--format", format, stdout=full)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 7
    assert said == "error: cannot write the result: No space left on device; redirect it elsewhere\n"


@pytest.mark.full
def test_file_name_that_is_not_utf8_can_be_printed(fedge_process, tmp_path):
    name = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.toml")
    process = fedge_process("config", name)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "\\udcff.toml" in said
