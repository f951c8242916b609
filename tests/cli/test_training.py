"""Commands end to end, on data included in the package."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file


def test_train_list_show_and_resume(fedge, experiment_file, tmp_path):
    runs = tmp_path / "runs"
    result = fedge("run", experiment_file, "--runs", runs, "--set", "seeds=[1,2]", "--format", "json")
    assert result.exit_code == 0, result.stderr
    (row,) = json.loads(result.stdout)["comparison"]
    assert (row["label"], row["seeds"], row["unfinished"]) == ("tiny", 2, 0)

    listed = json.loads(fedge("list", runs, "--format", "json").stdout)
    assert [(entry["seed"], entry["rounds"], entry["status"]) for entry in listed] == [
        (1, 3, "complete"),
        (2, 3, "complete"),
    ]
    shown = json.loads(fedge("show", runs / "tiny" / "seed-1", "--format", "json").stdout)
    assert [record["round"] for record in shown["rounds"]] == [1, 2, 3]
    assert row["accuracy"]["mean"] == pytest.approx(sum(entry["accuracy"] for entry in listed) / 2)

    resumed = fedge("resume", runs / "tiny", "--set", "rounds=4", "--format", "json")
    assert resumed.exit_code == 0, resumed.stderr
    assert [entry["rounds"] for entry in json.loads(resumed.stdout)["runs"]] == [4, 4]


def test_relative_weights_path_resolves_from_another_folder(fedge, experiment_file, tmp_path, monkeypatch):
    save_file({"1.bias": torch.zeros(10)}, tmp_path / "start.safetensors")
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path)
    result = fedge("run", experiment_file, "--runs", "runs", "--set", "model.weights=start.safetensors")
    assert result.exit_code == 0, result.stderr
    monkeypatch.chdir(tmp_path / "else")
    resumed = fedge("resume", "../runs/tiny", "--set", "rounds=4", "--format", "json")
    assert resumed.exit_code == 0, resumed.stderr
    assert [entry["rounds"] for entry in json.loads(resumed.stdout)["runs"]] == [4]


def test_printed_config_gives_the_same_result(fedge, experiment_file, tmp_path):
    full = tmp_path / "full.toml"
    full.write_text(fedge("config", experiment_file).stdout)
    accuracies = []
    for number, file in enumerate([experiment_file, full]):
        result = fedge("run", file, "--runs", tmp_path / str(number), "--quiet", "--format", "json")
        accuracies.append(json.loads(result.stdout)["runs"][0]["accuracy"])
    assert accuracies[0] == accuracies[1]


def test_model_that_does_not_fit(fedge, experiment_file, tmp_path):
    changes = ["--set", "data.name=synthetic", "--set", "model.name=mtfl_cnn"]
    result = fedge("run", experiment_file, "--runs", tmp_path / "runs", *changes)
    assert result.exit_code == 4
    assert result.stderr.startswith("error: ")
    assert not (tmp_path / "runs").exists()


@pytest.mark.full
def test_interrupt_and_resume(fedge, fedge_process, experiment_file, tmp_path):
    changes = ["--set", "rounds=1000000", "--set", "checkpoint.every=1"]
    process = fedge_process("run", experiment_file, *changes, cwd=tmp_path)
    try:
        wait_for(tmp_path / "runs" / "tiny" / "checkpoint" / "state.safetensors", process)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 130
    assert said.endswith("\ninterrupted; to resume: fedge resume runs/tiny\n")
    assert "Traceback" not in said

    path = tmp_path / "runs" / "tiny"
    (entry,) = json.loads(fedge("list", path, "--format", "json").stdout)
    assert entry["status"] == "unfinished"
    target = entry["rounds"] + 2
    result = fedge("resume", path, "--set", f"rounds={target}", "--format", "json")
    assert result.exit_code == 0, result.stderr
    (entry,) = json.loads(result.stdout)["runs"]
    assert (entry["status"], entry["rounds"]) == ("complete", target)


def wait_for(path: Path, process: subprocess.Popen[str], seconds: float = 60.0) -> None:
    """Wait until a process has written a file."""
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)
