"""Sinks that write a run to a tracking tool: `fedge export` all at once, a tracker as it happens.

Each tool is an optional extra, imported when it is used.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fedge.core.effect import settings
from fedge.core.extras import need
from fedge.core.printable import printable
from fedge.track.export_names import accepted

Record = Mapping[str, Any]

MAX_BYTES = 120  # length of names: MLflow accepts 250, Weights & Biases 128, a folder 255
_NOT_IN_KEYS = r"[^\w.\- :]"  # MLflow also accepts some slashes, but not all
_NOT_IN_PROJECTS = r"[/\\#?%:]"  # of Weights & Biases
_BATCH = 100  # the most params that MLflow accepts in one call
_RUN_TAG = "fedge.run"


class SinkRun(NamedTuple):
    """A run as reported to a tool."""

    name: str
    config: Mapping[str, Any]
    id: str | None = None  # set for a run that may be resumed
    done: int = 0  # the last round reported before
    first_round: int = 1  # of this process: replaces what the tool has for this and later rounds
    started_ms: int | None = None  # now, if not known


class Sink(Protocol):
    """A run in one tool."""

    def open(self, run: SinkRun) -> int:
        """Begin or continue a run; return the last round that the tool already has."""

    def log(self, records: Sequence[Record], times_ms: Sequence[int] | None = None) -> None:
        """Report rounds and flush them; `times_ms` are the times of the rounds, by default now."""

    def close(self, summary: Mapping[str, Any] | None) -> None:
        """End the run; without a summary it is incomplete."""


class TensorBoardSink:
    """A folder of event files."""

    def __init__(self, folder: Path) -> None:
        need("tensorboard", "tensorboard")
        self._writer = import_module("tensorboard.summary.writer.event_file_writer").EventFileWriter
        self._events = import_module("tensorboard.compat.proto.event_pb2")
        self._summary = import_module("tensorboard.compat.proto.summary_pb2").Summary
        self._folder = folder

    def open(self, run: SinkRun) -> int:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file = self._writer(str(self._folder))
        last = min(run.done, run.first_round - 1)
        if run.done:  # hide later rounds reported by a killed run
            self._add(last + 1, file_version="brain.Event:2")
            start = self._events.SessionLog(status=self._events.SessionLog.START)
            self._add(last + 1, session_log=start)
        else:
            lines = (printable(f"    {key} = {value}") for key, value in settings(run.config))
            self._add(0, summary=self._summary(value=[_text("config", "\n".join(lines))]))
        return last

    def log(self, records: Sequence[Record], times_ms: Sequence[int] | None = None) -> None:
        for record in records:
            values = [self._summary.Value(tag=field, simple_value=value) for field, value in numbers(record)]
            self._add(record["round"], summary=self._summary(value=values))
        self._file.flush()

    def close(self, summary: Mapping[str, Any] | None) -> None:
        self._file.close()

    def _add(self, step: int, **content: Any) -> None:
        self._file.add_event(self._events.Event(step=step, wall_time=time.time(), **content))


class MlflowSink:
    """A run of an experiment at a tracking URI."""

    def __init__(self, uri: str, experiment: str, artifacts: str | None = None) -> None:
        for module in ("sqlalchemy", "alembic"):
            need(module, "mlflow")
        self._entities = import_module("mlflow.entities")
        self._client = need("mlflow.tracking", "mlflow").MlflowClient(uri)
        title = accepted(experiment, MAX_BYTES)
        known = self._client.get_experiment_by_name(title)
        self._experiment = known.experiment_id if known else self._client.create_experiment(title, artifacts)

    def open(self, run: SinkRun) -> int:
        known = []
        if run.id is not None:
            known = self._client.search_runs([self._experiment], f"tags.`{_RUN_TAG}` = '{run.id}'")
        if known:
            self._run = known[0].info.run_id
            self._client.update_run(self._run, status="RUNNING")
            return max((told.step for told in self._client.get_metric_history(self._run, "seconds")), default=0)
        tags = {} if run.id is None else {_RUN_TAG: run.id}
        made = self._client.create_run(
            self._experiment, start_time=run.started_ms, tags=tags, run_name=accepted(run.name, 250)
        )
        self._run = made.info.run_id
        params = [
            self._entities.Param(_key(key), printable(str(value)))
            for key, value in settings(run.config)
            if value is not None
        ]
        for start in range(0, len(params), _BATCH):
            self._client.log_batch(self._run, params=params[start : start + _BATCH])
        return 0

    def log(self, records: Sequence[Record], times_ms: Sequence[int] | None = None) -> None:
        times_ms = times_ms or [int(time.time() * 1000)] * len(records)
        metrics = [
            self._entities.Metric(_key(field), value, time_ms, record["round"])
            for record, time_ms in zip(records, times_ms, strict=True)
            for field, value in numbers(record)
        ]
        for start in range(0, len(metrics), _BATCH):
            self._client.log_batch(self._run, metrics=metrics[start : start + _BATCH])

    def close(self, summary: Mapping[str, Any] | None) -> None:
        self._client.set_terminated(self._run, status="FINISHED" if summary is not None else "KILLED")


class WandbSink:
    """A run of a project, offline or not."""

    def __init__(self, folder: Path, project: str, mode: str = "offline") -> None:
        self._wandb = need("wandb", "wandb")
        folder.mkdir(parents=True, exist_ok=True)
        self._options = {"dir": str(folder), "project": accepted(project, MAX_BYTES, _NOT_IN_PROJECTS), "mode": mode}

    def open(self, run: SinkRun) -> int:
        quiet = {"console": "off", "silent": True, "disable_git": True}
        quiet |= {"x_disable_meta": True, "x_disable_stats": True}
        options = self._options | {"config": dict(run.config), "reinit": "finish_previous"}
        if run.id is not None:
            options |= {"id": run.id, "resume": "allow"}
        name = accepted(run.name, MAX_BYTES)
        self._run = self._wandb.init(name=name, settings=self._wandb.Settings(**quiet), **options)
        return max(run.done, int(self._run.step) - 1)  # it knows steps only if online

    def log(self, records: Sequence[Record], times_ms: Sequence[int] | None = None) -> None:
        for record in records:
            self._run.log(dict(numbers(record)), step=record["round"])

    def close(self, summary: Mapping[str, Any] | None) -> None:
        for key, value in (summary or {}).items():
            self._run.summary[key] = value
        self._run.finish(exit_code=0 if summary is not None else 1)


def numbers(record: Record) -> Iterator[tuple[str, float]]:
    """Yield the numeric fields of a round's record."""
    for field, value in record.items():
        if field != "round" and isinstance(value, int | float):
            yield field, float(value)


@contextmanager
def quiet_tools() -> Iterator[None]:
    """Disable the tools' telemetry inside this context, without overriding environment variables already set."""
    values = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "WANDB_ERROR_REPORTING": "false"}
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _text(name: str, text: str) -> Any:
    """Return a text in the format of TensorBoard's text plugin."""
    proto = import_module("tensorboard.compat.proto.summary_pb2")
    tensors = import_module("tensorboard.compat.proto.tensor_pb2")
    plugin = proto.SummaryMetadata.PluginData(plugin_name="text")
    tensor = tensors.TensorProto(dtype="DT_STRING", string_val=[text.encode()])
    tensor.tensor_shape.dim.add(size=1)
    metadata = proto.SummaryMetadata(plugin_data=plugin)
    return proto.Summary.Value(tag=f"{name}/text_summary", metadata=metadata, tensor=tensor)


def _key(name: str) -> str:
    """Return the name of a setting or field in a form that MLflow accepts."""
    return accepted(name, 250, _NOT_IN_KEYS)
