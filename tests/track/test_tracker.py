"""Live tracking: what is reported to the tools, and that no failure of a tool stops a run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedge import config as configuration
from fedge.core.progress import Silent
from fedge.experiment import start as experiment
from fedge.runs import Run

RAW: dict[str, Any] = {
    "name": "first",
    "rounds": 4,
    "data": {"name": "digits", "clients": 4},
    "model": "logistic",
    "algorithm": {"name": "fedavg", "local_steps": 1},
    "engine": {"name": "loop"},
    "checkpoint": {"every": 1},
}
PATIENCE_S = 120.0


class Notices(Silent):
    """Records notices for the user; may end the run after a round."""

    def __init__(self, last: int | None = None) -> None:
        self.texts: list[str] = []
        self._last = last

    def notice(self, text: str) -> None:
        self.texts.append(text)

    def round(self, record: Any) -> None:
        if record["round"] == self._last:
            raise KeyboardInterrupt


def train(folder: Path, track: dict[str, Any], **changes: Any) -> list[str]:
    """Train, and return the notices of the tracker."""
    heard = Notices()
    config = configuration.parse(RAW | {"track": {"wait_s": PATIENCE_S} | track} | changes)
    experiment.start(config, folder / "runs", heard)
    return [text for text in heard.texts if text.startswith("track:")]


def scalars(folder: Path, name: str = "loss") -> list[int]:
    """Return the rounds for which TensorBoard shows a field."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="needs the extra")
    found = reader.EventAccumulator(str(folder))
    found.Reload()
    return [event.step for event in found.Scalars(name)]


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "the condition did not hold in time"
        time.sleep(0.05)


def fake(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """Replace TensorBoard by a fake tool."""
    (folder / "fake").mkdir()
    (folder / "fake" / "tensorboard.py").write_text(body)
    monkeypatch.syspath_prepend(str(folder / "fake"))


def test_every_round_is_reported_to_tensorboard(tmp_path: Path) -> None:
    assert train(tmp_path, {"name": "tensorboard"}) == []
    assert scalars(tmp_path / "runs" / "first" / "track") == [1, 2, 3, 4]


@pytest.mark.full
def test_every_round_is_reported_to_mlflow_once(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    tracking = pytest.importorskip("mlflow.tracking", reason="needs the extra `mlflow`")
    uri = f"sqlite:///{tmp_path / 'm.db'}"
    assert train(tmp_path, {"name": "mlflow", "uri": uri}) == []
    experiment.resume(tmp_path / "runs" / "first", ["rounds=6"], Silent())
    client = tracking.MlflowClient(uri)
    (known,) = [one for one in client.search_experiments() if one.name == "fedge"]
    (run,) = client.search_runs([known.experiment_id])
    assert [metric.step for metric in client.get_metric_history(run.info.run_id, "loss")] == [1, 2, 3, 4, 5, 6]
    assert run.info.status == "FINISHED"


@pytest.mark.full
def test_every_round_is_reported_to_wandb_once(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="needs the extra `wandb`")
    assert train(tmp_path, {"name": "wandb"}) == []
    run = tmp_path / "runs" / "first"
    experiment.resume(run, ["rounds=6"], Silent())
    told = json.loads((run / "track" / "told.json").read_text())
    assert told["round"] == 6
    parts = sorted((run / "track" / "wandb").glob(f"offline-run-*-{Run(run).id}/*.wandb"))
    assert [_steps(part) for part in parts] == [[1, 2, 3, 4], [5, 6]]


def _steps(file: Path) -> list[int]:
    """Return the steps in the file of an offline run: each history item has the name `_step`, a length and a number."""
    data = file.read_bytes()
    found = re.finditer(rb"_step\x82\x01(.)", data, re.DOTALL)
    return sorted({int(data[each.end() : each.end() + each[1][0]]) for each in found})


def test_a_resumed_run_is_reported_once_and_may_change_its_tracker(tmp_path: Path) -> None:
    raw = RAW | {"track": {"name": "tensorboard", "wait_s": PATIENCE_S}, "checkpoint": {"every": 2}}
    with pytest.raises(KeyboardInterrupt):
        experiment.start(configuration.parse(raw), tmp_path / "runs", Notices(last=3))
    run = tmp_path / "runs" / "first"
    experiment.resume(run, [], Silent())
    assert scalars(run / "track") == [1, 2, 3, 4]
    # at a new destination, all recorded rounds are reported
    experiment.resume(run, ["rounds=5", f"track.folder={tmp_path / 'events'}"], Silent())
    (own,) = (tmp_path / "events").iterdir()
    assert scalars(own) == [1, 2, 3, 4, 5]
    experiment.resume(run, ["rounds=6", "track="], Silent())
    assert scalars(own) == [1, 2, 3, 4, 5]
    assert Run(run).last("round") == 6


def test_results_do_not_depend_on_tracking(tmp_path: Path) -> None:
    train(tmp_path, {"name": "tensorboard"})
    train(tmp_path, {"name": "tensorboard", "folder": str(tmp_path / "events")})
    first, second = Run(tmp_path / "runs" / "first"), Run(tmp_path / "runs" / "first-2")
    assert first.digest == second.digest


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise ImportError", "this needs tensorboard, which is not installed; pip install 'fedge[tensorboard]'"),
        ("raise RuntimeError('no use')", "RuntimeError: no use"),
        ("import os; os._exit(7)", "ended with code 7"),
    ],
)
def test_a_failing_tracker_causes_one_notice(tmp_path: Path, monkeypatch, body: str, reason: str) -> None:
    fake(tmp_path, monkeypatch, body)
    assert train(tmp_path, {"name": "tensorboard"}) == [f"track: tensorboard: {reason}; the run continues without it"]
    assert Run(tmp_path / "runs" / "first").status == "complete"


@pytest.mark.full
def test_a_hanging_tracker_is_ended(tmp_path: Path, monkeypatch) -> None:
    pid = tmp_path / "pid"
    fake(tmp_path, monkeypatch, f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(9999)")
    (notice,) = train(tmp_path, {"name": "tensorboard", "wait_s": 5})
    assert "did not finish within track.wait_s = 5 s after the run" in notice
    assert Run(tmp_path / "runs" / "first").status == "complete"
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


@pytest.mark.full
def test_a_killed_run_resumes_without_reporting_a_round_twice(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "first"
    raw = RAW | {"rounds": 100_000, "track": {"name": "tensorboard"}, "engine": {"name": "pool", "workers": 2}}
    code = "import sys, json, fedge; fedge.run(json.loads(sys.argv[1]), runs=sys.argv[2])"
    process = subprocess.Popen([sys.executable, "-c", code, json.dumps(raw), str(run.parent)])
    try:
        told = run / "track" / "told.json"
        wait_until(lambda: told.exists() and json.loads(told.read_bytes())["round"] > 5)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    rounds = (Run(run).last("round") or 0) + 3
    heard = Notices()
    experiment.resume(run, [f"rounds={rounds}", "engine.workers=1", f"track.wait_s={PATIENCE_S}"], heard)
    assert [text for text in heard.texts if text.startswith("track:")] == []
    assert scalars(run / "track") == list(range(1, rounds + 1))
