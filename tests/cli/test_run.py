"""`fedge run` and `fedge resume`, with fake training."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


class FakeTraining:
    """Stands in for `fedge.experiment`: records its arguments and writes a finished run."""

    def __init__(self, write_run: Callable[..., Path]) -> None:
        self.write_run = write_run
        self.started: list[str] = []
        self.resumed: list[tuple[Path, tuple[str, ...]]] = []
        self.error: BaseException | None = None

    def start(self, config: Any, runs: Path, progress: Any) -> Path:
        self.started.append(config.name)
        path = runs / config.name
        progress.notice("a notice")
        progress.begin(str(path), 1, 2)
        progress.round({"round": 1, "accuracy": 0.5})
        if self.error:
            raise self.error
        progress.end({})
        return self.write_run(path, name=config.name)

    def resume(self, path: Path, changes: Any, progress: Any, accept_code: bool = False) -> Path:
        self.resumed.append((path, tuple(changes)))
        return path


@pytest.fixture
def training(write_run, monkeypatch):
    fake = FakeTraining(write_run)
    monkeypatch.setattr("fedge.experiment.start.start", fake.start)
    monkeypatch.setattr("fedge.experiment.start.resume", fake.resume)
    return fake


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "kept"


def test_prints_the_comparison_and_the_run_directories(fedge, training, experiment_file, runs):
    result = fedge("run", experiment_file, "--runs", runs)
    assert result.exit_code == 0
    assert "tiny" in result.stdout
    assert "75" in result.stdout  # the last accuracy
    assert result.stdout.endswith(f"\nrun: {runs / 'tiny'}\n")
    assert result.stderr.splitlines()[:2] == ["a notice", f"{runs / 'tiny'}: round 0/2"]


def test_piped_output_has_no_control_characters(fedge, training, experiment_file, runs):
    result = fedge("run", experiment_file, "--runs", runs)
    assert not [char for char in result.output if ord(char) < 32 and char != "\n"]


def test_quiet(fedge, training, experiment_file, runs):
    result = fedge("run", experiment_file, "--runs", runs, "--quiet")
    assert (result.exit_code, result.output) == (0, "")
    assert training.started == ["tiny"]


@pytest.mark.parametrize("quiet", [["--quiet"], []])
def test_stdout_has_only_json(fedge, training, experiment_file, runs, quiet):
    found = json.loads(fedge("run", experiment_file, "--runs", runs, "--format", "json", *quiet).stdout)
    assert [row["label"] for row in found["comparison"]] == ["tiny"]
    assert [entry["path"] for entry in found["runs"]] == [str(runs / "tiny")]


def test_several_files_one_after_the_other(fedge, training, experiment_file, runs, tmp_path):
    other = tmp_path / "other.toml"
    other.write_text(experiment_file.read_text().replace('"tiny"', '"other"'))
    result = fedge("run", experiment_file, other, "--runs", runs, "--format", "json")
    assert training.started == ["tiny", "other"]
    assert [row["label"] for row in json.loads(result.stdout)["comparison"]] == ["tiny", "other"]


def test_all_files_are_checked_before_the_first_trains(fedge, training, experiment_file, runs, tmp_path):
    bad = tmp_path / "bad.toml"
    bad.write_text("rounds = 0")
    result = fedge("run", experiment_file, bad, tmp_path / "absent.toml", "--runs", runs)
    assert result.exit_code == 2
    assert training.started == []
    first, *problems = result.stderr.splitlines()
    assert first == f"error: {len(problems)} problems"
    assert f"  - {bad}: rounds: " in result.stderr
    assert result.stderr.count(f"{tmp_path / 'absent.toml'}: ") == 1


def test_changes_apply_to_every_file(fedge, training, experiment_file, runs):
    fedge("run", experiment_file, "--runs", runs, "--set", "name=changed")
    assert training.started == ["changed"]


def test_chart(fedge, training, experiment_file, runs, tmp_path):
    pytest.importorskip("vl_convert")
    chart = tmp_path / "chart.svg"
    assert fedge("run", experiment_file, "--runs", runs, "--chart", chart).exit_code == 0
    assert "upload (MB)" in chart.read_text()


@pytest.mark.parametrize(("suffix", "starts"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("html", b"<!DOCTYPE html>")])
def test_chart_in_every_format(fedge, training, experiment_file, runs, tmp_path, suffix, starts):
    pytest.importorskip("vl_convert")
    chart = tmp_path / f"chart.{suffix}"
    assert fedge("run", experiment_file, "--runs", runs, "--chart", chart).exit_code == 0
    assert chart.read_bytes().lstrip().startswith(starts)


def test_unsupported_chart_format_is_rejected_before_training(fedge, training, experiment_file, runs):
    result = fedge("run", experiment_file, "--runs", runs, "--chart", "chart.gif")
    assert result.exit_code == 2
    assert "chart.gif: a chart is saved as .svg, .png, .pdf or .html, got .gif" in result.stderr
    assert training.started == []


def test_sweep_file_is_rejected_with_the_right_command(fedge, training, experiment_file, runs):
    experiment_file.write_text(experiment_file.read_text() + "[sweep]\nworkers = 2\n")
    for command in (("run", experiment_file, "--runs", runs), ("config", experiment_file)):
        result = fedge(*command)
        assert result.exit_code == 2
        assert result.stderr == "error: sweep: this is a sweep; run it with `fedge sweep FILE`\n"
    assert training.started == []


def test_interrupt(fedge, training, experiment_file, runs):
    training.error = KeyboardInterrupt()
    result = fedge("run", experiment_file, "--runs", runs)
    assert result.exit_code == 130
    assert result.stderr.endswith(f"\ninterrupted; to resume: fedge resume {runs / 'tiny'}\n")


def test_resume(fedge, training, write_run, runs):
    path = write_run(runs / "tiny")
    result = fedge("resume", path, "--set", "rounds=9", "--set", "evaluate.every=2")
    assert result.exit_code == 0
    assert training.resumed == [(path, ("rounds=9", "evaluate.every=2"))]
    assert result.stdout.endswith(f"\nrun: {path}\n")


def test_resume_as_json_and_quiet(fedge, training, write_run, runs):
    path = write_run(runs / "tiny")
    found = json.loads(fedge("resume", path, "--quiet", "--format", "json").stdout)
    assert [entry["path"] for entry in found["runs"]] == [str(path)]
    assert fedge("resume", path, "--quiet").output == ""


@pytest.mark.parametrize(
    ("y", "problem"),
    [
        ("acuracy", "--y: no round has 'acuracy', did you mean 'accuracy'?"),
        ("user_accuracy", "--y: user_accuracy is not measured; set evaluate.user_accuracy=true"),
        ("f1", "--y: no round has 'f1'"),
    ],
)
def test_unknown_chart_metric_is_rejected_before_training(fedge, training, experiment_file, runs, tmp_path, y, problem):
    result = fedge("run", experiment_file, "--runs", runs, "--chart", tmp_path / "chart.svg", "--y", y)
    assert result.exit_code == 2
    assert problem in result.stderr
    assert training.started == []


def test_metric_declared_in_the_file_can_be_charted(fedge, training, experiment_file, runs, tmp_path):
    chart = ["--chart", tmp_path / "chart.svg", "--y", "f1", "--set", 'evaluate.metrics=["f1"]']
    fedge("run", experiment_file, "--runs", runs, *chart)
    assert training.started == ["tiny"]
