"""The tracker process: reads the run directory, reports to a tool, and ends with the run."""

from __future__ import annotations

import os
import select
import time
from pathlib import Path

import msgspec

from fedge.core.errors import RunError
from fedge.core.lock import Lock
from fedge.core.storage import write_atomic
from fedge.core.track_options import Tracking, TrackMlflow, TrackTensorBoard
from fedge.runs import Cursor, Run, follow
from fedge.runs.files import TRACK, encode_pretty
from fedge.track.export_names import accepted
from fedge.track.sinks import MAX_BYTES, MlflowSink, Sink, SinkRun, TensorBoardSink, WandbSink

NEWS, END = b".", b"!"
"""Messages of a run to its tracker: a round was recorded; the run is complete."""
_PAUSE_S = 0.5  # between two reads: rounds of a fast run are reported in batches
_LOCK_S = 30.0


class Job(msgspec.Struct):
    """The arguments of a tracker process."""

    path: str
    first_round: int
    parent: int
    options: Tracking


class _Told(msgspec.Struct):
    """What was already reported, stored in the run directory, so that a resumed run continues from there."""

    place: str  # tool and destination; another destination starts from round 1
    round: int = 0


def follow_run(job: Job, pipe: int) -> None:
    """Report all rounds to the tool, until the run ends or its process is gone."""
    path = Path(job.path)
    folder = path / TRACK
    folder.mkdir(exist_ok=True)
    lock = _wait_for_lock(folder / "lock")  # the tracker of a killed run may still be reporting
    try:
        place, sink = _choose(job.options, path, folder)
        told = _read_told(folder / "told.json", place)
        run = Run(path)
        name = path.name if path.name == run.config.get("name") else f"{path.parent.resolve().name}/{path.name}"
        last = sink.open(SinkRun(name, run.config, run.id, told.round, job.first_round))
        cursor: Cursor | None = None
        message = NEWS
        while message == NEWS:
            message = _listen(pipe, job.parent)
            found = follow(path, cursor)
            cursor = found.cursor
            new = [record for record in found.records if record["round"] > last]
            if new:
                sink.log(new)
                last = new[-1]["round"]
                write_atomic(folder / "told.json", encode_pretty(_Told(place, last)))
        sink.close(Run(path).summary if message == END else None)
    finally:
        lock.release()


def _listen(pipe: int, parent: int) -> bytes:
    """Wait for a message. Returns END if the run is complete, b"" if its process is gone, else NEWS."""
    deadline = time.monotonic() + _PAUSE_S
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([pipe], [], [], left)[0]:
            break
        data = os.read(pipe, 65536)
        if END in data:
            return END
        if not data:
            return b""
        time.sleep(min(0.05, max(0.0, deadline - time.monotonic())))
    # workers forked by the run may hold the pipe open after it has ended
    return NEWS if os.getppid() == parent else b""


def _choose(options: Tracking, path: Path, folder: Path) -> tuple[str, Sink]:
    """Return a string that identifies tool and destination, and the tool's sink."""
    if isinstance(options, TrackTensorBoard):
        own = folder
        if options.folder:
            run = Run(path)
            own = Path(options.folder) / accepted(f"{run.config.get('name')}-{(run.id or '')[:6]}", MAX_BYTES)
        return f"tensorboard {own.resolve()}", TensorBoardSink(own)
    if isinstance(options, TrackMlflow):
        uri = options.uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Path('mlflow.db').resolve()}"
        artifacts = None
        if uri.startswith("sqlite:///"):
            artifacts = Path(uri.removeprefix("sqlite:///")).with_suffix(".artifacts").resolve().as_uri()
        return f"mlflow {uri}", MlflowSink(uri, options.experiment, artifacts)
    where = Path(options.folder) if options.folder else folder
    return f"wandb {options.mode} {where.resolve()}", WandbSink(where, options.project, options.mode)


def _read_told(file: Path, place: str) -> _Told:
    try:
        told = msgspec.json.decode(file.read_bytes(), type=_Told)
    except (OSError, msgspec.MsgspecError):
        return _Told(place)
    return told if told.place == place else _Told(place)


def _wait_for_lock(file: Path) -> Lock:
    deadline = time.monotonic() + _LOCK_S
    while True:
        try:
            return Lock(file)
        except RunError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
