"""`fedge sweep`, mostly with training that takes no time."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from rich.console import Console

from fedge.cli.sweep import SweepLines, SweepPicture
from fedge.sweeps.board import Board
from fedge.sweeps.worker import Ended, Heard

GRID = ["--set", "algorithm.learning_rate=[0.1,0.5]"]
SPLIT = ["--set", "data.validation=0.1"]
NAMES = ["learning_rate-0.1", "learning_rate-0.5"]
LABELS = ["η = 0.1", "η = 0.5"]  # in the table


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "kept"


@pytest.fixture
def training(write_run, monkeypatch):
    """Instead of training, leave a finished run; by its learning rate, fail."""

    def work(run, connection, output, parent, num_processes):
        rate = run.config["algorithm"]["learning_rate"]
        measured = {"accuracy": 1 - rate, "validation_accuracy": rate}  # the test set would choose the other way round
        connection.send(Heard(1, measured, 1.0))
        if rate > 1:
            connection.send(Ended(f"{rate:g} is too fast", 5 if rate < 10 else 3))
        else:
            write_run(run.path, [rate], {"rounds": 3, **measured}, **run.config)
            connection.send(Ended())

    monkeypatch.setattr("fedge.sweeps.run_pool.work", work)


def test_ends_with_the_best_first_and_where_the_runs_are(fedge, training, experiment_file, runs):
    result = fedge("sweep", experiment_file, *GRID, *SPLIT, "--runs", runs)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.index(LABELS[1]) < result.stdout.index(LABELS[0])
    assert result.stdout.endswith(f"\nsweep: {runs / 'tiny'}\n")
    ended = [line for line in result.stderr.splitlines() if ": complete" in line]
    assert [line.split()[0] for line in ended] == ["1/2", "2/2"]
    assert "validation accuracy 50.00%" in result.stderr


def test_without_a_split_points_stay_in_order_and_are_labelled(fedge, training, experiment_file, runs):
    result = fedge("sweep", experiment_file, *GRID, "--runs", runs)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.index(LABELS[0]) < result.stdout.index(LABELS[1])
    assert "learning_rate-0.1: complete, test set accuracy 90.00%" in result.stderr
    assert "best" not in result.stderr
    assert "test set: points are not ranked by it; to find the best, set data.validation\n" in result.stdout
    found = json.loads(fedge("sweep", experiment_file, *GRID, "--runs", runs, "--format", "json").stdout)
    assert (found["metric"], found["measured_on"]) == ("accuracy", "test set")
    assert [row["label"] for row in found["comparison"]] == LABELS


def test_piped_output_has_no_control_characters(fedge, training, experiment_file, runs):
    result = fedge("sweep", experiment_file, *GRID, "--runs", runs)
    assert not [char for char in result.output if ord(char) < 32 and char != "\n"]


def test_quiet_and_json(fedge, training, experiment_file, runs):
    result = fedge("sweep", experiment_file, *GRID, *SPLIT, "--runs", runs, "--quiet")
    assert (result.exit_code, result.output) == (0, "")
    found = json.loads(fedge("sweep", experiment_file, *GRID, *SPLIT, "--runs", runs, "--format", "json").stdout)
    assert (found["metric"], found["measured_on"]) == ("validation_accuracy", "validation split")
    assert found["sweep"] == str(runs / "tiny")
    assert found["failures"] == []
    assert [row["label"] for row in found["comparison"]] == LABELS[::-1]
    assert [entry["path"] for entry in found["runs"]] == [str(runs / "tiny" / name) for name in NAMES]


@pytest.mark.parametrize(("rates", "code"), [("[0.1,2.0]", 5), ("[0.1,2.0,20.0]", 1)])
def test_failures_are_named_with_their_reason_and_make_the_exit_code(
    fedge, training, experiment_file, runs, rates, code
):
    result = fedge("sweep", experiment_file, "--set", f"algorithm.learning_rate={rates}", "--runs", runs)
    assert result.exit_code == code
    assert "failed: learning_rate-2: 2 is too fast\n" in result.stderr
    count = rates.count(",")
    assert f"error: {count} of {count + 1} runs failed; the same command tries them again\n" in result.stderr
    assert "η = 0.1" in result.stdout


def test_failures_as_json(fedge, training, experiment_file, runs):
    result = fedge(
        "sweep", experiment_file, "--set", "algorithm.learning_rate=[0.1,2.0]", "--runs", runs, "-q", "--format", "json"
    )
    assert json.loads(result.stdout)["failures"] == [
        {"name": "learning_rate-2", "reason": "2 is too fast", "exit_code": 5}
    ]


def test_plan_says_what_it_would_be_and_does_nothing(fedge, experiment_file, runs):
    args = ["sweep", experiment_file, *GRID, "--set", "seeds=[1,2,3]", "--runs", runs, "--plan"]
    assert fedge(*args).stdout.splitlines() == [*NAMES, "", "2 points, 6 runs"]
    found = json.loads(fedge(*args, "--format", "json").stdout)
    assert found["num_runs"] == 6
    assert found["points"][1] == {"name": NAMES[1], "values": {"algorithm.learning_rate": 0.5}, "problems": []}
    assert not runs.exists()


def test_missing_key_names_the_nearest(fedge, experiment_file, runs):
    result = fedge("sweep", experiment_file, "--set", "algorithm.learning_rte=[0.1,0.5]", "--runs", runs)
    assert result.exit_code == 2
    assert "algorithm.learning_rte: unknown key, did you mean 'learning_rate'?" in result.stderr
    assert not runs.exists()


MANY = ["--set", "algorithm.batch_size={start=1,stop=100000,step=1}"]


def test_many_runs_without_a_terminal_need_a_yes(fedge, experiment_file, runs):
    result = fedge("sweep", experiment_file, *MANY, "--runs", runs)
    assert result.exit_code == 2
    assert "100,000 runs" in result.stderr
    assert "--yes" in result.stderr
    assert not runs.exists()


@pytest.mark.parametrize(("answer", "code"), [(True, 0), (False, 2)])
def test_many_runs_are_asked_for_on_a_terminal(fedge, training, experiment_file, runs, monkeypatch, answer, code):
    asked = []

    def confirm(text, err):
        asked.append(text)
        return answer

    monkeypatch.setattr("fedge.cli.sweep._MANY", 1)
    monkeypatch.setattr("fedge.cli.sweep._can_ask", lambda: True)
    monkeypatch.setattr("typer.confirm", confirm)
    assert fedge("sweep", experiment_file, *GRID, "--runs", runs).exit_code == code
    assert asked == ["This sweep makes 2 runs. Start them?"]
    assert runs.exists() == answer


def test_many_runs_with_a_yes(fedge, training, experiment_file, runs, monkeypatch):
    monkeypatch.setattr("fedge.cli.sweep._MANY", 1)
    assert fedge("sweep", experiment_file, *GRID, "--runs", runs, "--yes").exit_code == 0


def test_interrupted_it_says_how_to_go_on(fedge, experiment_file, runs, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedge.sweeps.execute.RunPool.run", interrupt)
    monkeypatch.setattr("sys.argv", ["fedge", "sweep", "my grid.toml"])
    result = fedge("sweep", experiment_file, *GRID, "--runs", runs)
    assert result.exit_code == 130
    assert result.stderr == "interrupted: fedge sweep 'my grid.toml' goes on\n"


@pytest.fixture
def board():
    board = Board("validation_accuracy", iter([0.0, *[30.0] * 9]).__next__)
    board.place(["a", "b", "c"], 10)
    board.hear("a", 10, {"validation_accuracy": 0.5})
    board.end("a")
    board.hear("b", 5, {"validation_accuracy": 0.25})
    return board


def test_the_picture_has_the_whole_the_best_and_what_is_under_way(board):
    screen = io.StringIO()
    picture = SweepPicture(Console(file=screen, force_terminal=True, width=100))
    picture.show(board)
    picture.close()
    shown = screen.getvalue()
    # 15 rounds took 30 s, 15 are to come
    assert "1/3 complete, 1 running, 0:30 left" in shown
    assert "best validation accuracy 50.00% (a)" in shown
    assert "round 5/10" in shown
    assert "25.00%" in shown


def test_lines_come_now_and_then(board, monkeypatch, capsys):
    lines = SweepLines()
    lines.show(board)
    assert capsys.readouterr().err == ""
    later = time.monotonic() + 11
    monkeypatch.setattr("fedge.cli.sweep.time.monotonic", lambda: later)
    lines.show(board)
    lines.show(board)
    assert capsys.readouterr().err == "1/3 complete, 1 running, best validation accuracy 50.00% (a), 0:30 left\n"


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_stopped_in_any_way_the_same_command_goes_on(fedge, fedge_process, experiment_file, tmp_path, number):
    command = ["sweep", experiment_file, *GRID, "--set", "rounds=300", "--set", "checkpoint.every=1"]
    process = fedge_process(*command, cwd=tmp_path)
    folder = tmp_path / "runs" / "tiny"
    try:
        wait_for(folder / NAMES[1] / "checkpoint" / "state.safetensors", process)
        # the lock of a run that has ended already is empty
        workers = [int(((folder / name / "lock").read_text().split() or ["0"])[0]) for name in NAMES]
        process.send_signal(number)
        process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == {signal.SIGINT: 130}.get(number, -number)
    deadline = time.monotonic() + 10
    while any(worker and Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < deadline, "a worker outlived the sweep"
        time.sleep(0.05)

    result = fedge(*command, "--runs", tmp_path / "runs", "--format", "json")
    assert result.exit_code == 0, result.stderr
    calm = fedge(*command, "--runs", tmp_path / "calm", "--format", "json")
    for name in NAMES:
        assert records(folder / name) == records(tmp_path / "calm" / "tiny" / name)
        assert len(records(folder / name)) == 300
    assert json.loads(result.stdout)["comparison"] == json.loads(calm.stdout)["comparison"]
    assert os.listdir(folder).count("sweep.json") == 1


def records(run: Path) -> list[dict[str, object]]:
    """What was recorded, but for the time that it really took."""
    lines = map(json.loads, (run / "rounds.jsonl").read_text().splitlines())
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def wait_for(path: Path, process: subprocess.Popen[str], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.01)
