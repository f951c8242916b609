"""Runs that are advanced round by round, and their callbacks."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import fedge
from fedge.core.lock import holder


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def experiment(**changes: Any) -> fedge.Experiment:
    settings = {"data": "digits", "clients": 5, "model": "logistic", "algorithm": "fedavg", "engine": "loop"}
    return fedge.Experiment(**{**settings, **changes})


def is_free(run: str) -> bool:
    return holder(Path(run, "lock")) is None


def test_records_are_those_of_a_run() -> None:
    records = list(experiment().rounds(3))
    run = experiment(name="whole").run(3, progress=False)
    ignored = {"seconds": 0.0}
    assert [record | ignored for record in records] == [record | ignored for record in run.rounds]
    assert fedge.Run("runs/run").summary | ignored == run.summary | ignored  # type: ignore[operator]


@pytest.mark.parametrize("engine", ["loop", "pool"])
def test_break_releases_the_lock_and_restores_threads(engine: str) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.set_float32_matmul_precision("high")
    try:
        for _record in experiment(engine={"name": engine, "workers": 1}).rounds(5):
            assert not is_free("runs/run")
            assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == (2, "high")
            break
        del _record
        gc.collect()
        assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == (2, "high")
    finally:
        torch.set_num_threads(before)
        torch.set_float32_matmul_precision("highest")
    assert is_free("runs/run")
    run = fedge.Run("runs/run")
    assert (run.status, len(run.rounds), run.summary) == ("unfinished", 1, None)
    assert set(run.weights) == {"1.weight", "1.bias"}
    assert run.state()["server.base.x"].shape == (7850,)  # the round is saved, to be resumed from


def test_close() -> None:
    rounds = experiment().rounds(5)
    assert not Path("runs").exists()  # nothing is done before the first round
    next(rounds)
    assert rounds.run.status == "running"
    rounds.close()
    rounds.close()
    assert is_free("runs/run")
    assert list(rounds) == []


@pytest.mark.full
def test_a_script_that_still_holds_closed_rounds_exits_silently(folder: Path) -> None:
    code = (
        "import fedge\n"
        "settings = dict(data='digits', clients=5, model='logistic', algorithm='fedavg', engine='loop')\n"
        "rounds = fedge.Experiment(**settings).rounds(1)\n"
        "with rounds:\n    next(rounds)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, check=True)
    assert "Exception ignored" not in done.stderr


def test_error_in_with_block_closes() -> None:
    def fail() -> None:
        with experiment().rounds(5) as rounds:
            for record in rounds:
                record["round"] / 0

    with pytest.raises(ZeroDivisionError):
        fail()
    assert is_free("runs/run")


def test_stop() -> None:
    with experiment().rounds(5) as rounds:
        rounds.stop()  # nothing to stop yet
        for record in rounds:
            if record["round"] == 2:
                rounds.stop()
    summary = fedge.Run("runs/run").summary
    assert summary is not None
    assert (summary["rounds"], summary["ended_by"]) == (2, "callback")


class Patience(fedge.Callback):
    """Records all calls, and ends the run in a given round."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.heard: list[tuple[str, int]] = []

    def on_round(self, record: dict[str, Any]) -> bool:
        self.heard.append(("round", record["round"]))
        return bool(record["round"] == self.last)

    def on_evaluate(self, record: dict[str, Any]) -> None:
        self.heard.append(("evaluate", record["round"]))


def test_callbacks_receive_rounds_and_can_stop() -> None:
    patience, heard = Patience(4), []
    run = experiment(evaluate={"every": 2}).run(
        9, callbacks=[patience, lambda record: heard.append(record["round"])], progress=False
    )
    rounds = [("round", 1), ("round", 2), ("evaluate", 2), ("round", 3), ("round", 4), ("evaluate", 4)]
    assert patience.heard == rounds
    assert heard == [1, 2, 3, 4]
    assert run.summary is not None
    assert (run.status, run.summary["rounds"], run.summary["ended_by"]) == ("complete", 4, "callback")


def test_a_callback_may_raise_stop() -> None:
    def stop(record: dict[str, Any]) -> None:
        raise fedge.Stop

    run = experiment().run(9, callbacks=[stop], progress=False)
    assert (run.status, len(run.rounds)) == ("complete", 1)


def test_stop_ends_one_seed_only() -> None:
    runs = experiment().run(9, seeds=[1, 2], callbacks=[Patience(2)], progress=False)
    assert [len(run.rounds) for run in runs] == [2, 2]


def test_failing_callback_leaves_a_resumable_run() -> None:
    def fail(record: dict[str, Any]) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        experiment().run(3, callbacks=[fail], progress=False)
    assert is_free("runs/run")
    assert len(experiment().run(3, resume=True, progress=False).rounds) == 3


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([3], "expected an object with on_round or on_evaluate, or a function, got int"),
        ([fedge.Callback], r"got the class Callback; write Callback\(\.\.\.\)"),
        (print, r"expected a list, got builtin_function_or_method; write callbacks=\[\.\.\.\]"),
    ],
)
def test_invalid_callback(given: Any, problem: str, folder: Path) -> None:
    """Rejected before anything is trained."""
    with pytest.raises(fedge.ConfigError, match=f"callbacks: .*{problem}"):
        experiment().run(1, callbacks=given, progress=False)
    assert not (folder / "runs").exists()


def test_rounds_reject_several_seeds(folder: Path) -> None:
    (folder / "a.toml").write_text('seeds = [1, 2]\ndata = "digits"\nmodel = "logistic"\nalgorithm = "fedavg"\n')
    with pytest.raises(fedge.ConfigError, match=r"rounds\(\) trains a single run"):
        fedge.Experiment.from_file("a.toml").rounds(3)
