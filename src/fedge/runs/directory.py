"""A run directory, open for writing."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from fedge.core.errors import RunError
from fedge.core.layout import Tree
from fedge.core.lock import Lock
from fedge.core.metric_declaration import MetricDeclaration
from fedge.core.parts import Sources
from fedge.core.safetensors_format import safetensors_chunks
from fedge.core.storage import sync_folder, write_all, write_atomic, writing
from fedge.runs import files
from fedge.runs.checkpoint import Checkpoint, chunks, load
from fedge.runs.code import check_code, copy_code, hash_code
from fedge.runs.data_names import NO_NAMES, DataNames
from fedge.runs.environment import environment as surroundings
from fedge.runs.files import CodeChange, RunMark
from fedge.runs.kept import KeptStore

_START_AGAIN = "start again, or choose another folder with `--runs`"


class RunDirectory:
    """Made by `create` or `open`; this process alone writes to it until `close`.

    A run that was there already is restored before anything else is done with it: what it recorded after
    its last checkpoint goes, and will come again.
    """

    def __init__(self, path: Path, then: str) -> None:
        self.path = path
        self.config: dict[str, Any] = {}
        self._mark = RunMark()
        self._then = then  # what to do once a problem with the disk is solved
        self._kept: KeptStore | None = None
        self._kept_index: Tree | None = None  # that of the checkpoint restored
        with writing(path, then):
            (path / files.CHECKPOINT).mkdir(parents=True, exist_ok=True)
            self._lock = Lock(path / files.LOCK)
            try:
                self._rounds = _Log(path / files.ROUNDS)
                self._traces = _Log(path / files.TRACES, on_request=True)
                self._edge = _Log(path / files.EDGE, on_request=True)
            except OSError:
                self._lock.release()
                raise

    @classmethod
    def create(
        cls,
        path: Path,
        config: Mapping[str, Any],
        environment: Mapping[str, Any] | None = None,
        without_effect: Iterable[str] = (),
        sources: Sources | None = None,
        metrics: Iterable[MetricDeclaration] = (),
        names: DataNames = NO_NAMES,
    ) -> Self:
        """A new run, with the paths of the settings that do not affect its results, and users' files by their path.

        `metrics` are those that it records beside the fields of every run, `names` those that its charts use. Its
        configuration is written last, since a directory without one is no run.
        """
        run = cls(path, _START_AGAIN)
        try:
            with writing(path, _START_AGAIN):
                _refuse_existing(path)
                where = surroundings() if environment is None else environment
                write_atomic(path / files.ENVIRONMENT, files.encode_pretty(where))
                if names != NO_NAMES:
                    write_atomic(path / files.NAMES, files.encode_pretty(names))
                copy_code(path, sources or {})
                mark = RunMark(_new_id(), 0, tuple(without_effect), hash_code(sources or {}), metrics=tuple(metrics))
                run._write_config(config, mark)
                sync_folder(path.parent)
        except BaseException:
            run.close()
            raise
        run._then = _resume(path)
        return run

    @classmethod
    def open(cls, path: Path) -> Self:
        """A run that is there already."""
        config, _ = files.read_config(path)
        if files.holds_repeats(path, config):
            first = files.seed_path(path, config["seeds"][0])
            raise RunError(f"{path} holds repeats, not one run; open one of them, such as {first}")
        run = cls(path, _resume(path))
        try:  # again, as another process may have written it until the lock was held
            run.config, run._mark = files.read_config(path)
        except BaseException:
            run.close()
            raise
        return run

    @property
    def facts(self) -> dict[str, Any]:
        """What was noted of how it runs."""
        found = files.read_environment(self.path).get("engine")
        return found if isinstance(found, dict) else {}

    def note(self, facts: Mapping[str, Any]) -> None:
        """Write down how it runs, beside where."""
        where = {**files.read_environment(self.path), "engine": {**self.facts, **facts}}
        with writing(self.path / files.ENVIRONMENT, self._then):
            write_atomic(self.path / files.ENVIRONMENT, files.encode_pretty(where))

    def kept_store(self, template: Tree) -> KeptStore:
        """Where clients of this run keep their private state; from now on part of every checkpoint."""
        self._kept = KeptStore(template, self.path / files.KEPT, self._then)
        if self._kept_index is not None:
            self._kept.restore(self._kept_index)
        return self._kept

    def append(self, record: Mapping[str, Any]) -> None:
        """Record a round, for all to see at once."""
        with writing(self._rounds.path, self._then):
            self._rounds.append(files.encode_lines([record]))

    def append_traces(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Record what was seen inside a round."""
        data = files.encode_lines(lines)
        with writing(self._traces.path, self._then):
            self._traces.append(data)

    def append_edge(self, line: Mapping[str, Any]) -> None:
        """Record where clients were in a round, and when they did what."""
        with writing(self._edge.path, self._then):
            self._edge.append(files.encode_lines([line]))

    def save(self, state: Tree, meta: Mapping[str, Any]) -> None:
        """Make this moment the one that a resumed run goes on from. Until it is, the last one is."""
        if self._kept is not None:
            self._kept.flush()
        index = self._kept.index() if self._kept is not None else {}
        with writing(self.path / files.STATE, self._then):
            self._sync()
            checkpoint = Checkpoint(state, index, dict(meta), *(log.length for log in self._logs))
            write_atomic(self.path / files.STATE, chunks(checkpoint))
        if self._kept is not None:
            self._kept.committed()

    def change(
        self, config: Mapping[str, Any], without_effect: Iterable[str] = (), metrics: Iterable[MetricDeclaration] = ()
    ) -> None:
        """Continue with another configuration. A run that was complete no longer is.

        Metrics that it recorded before stay declared.
        """
        self._reopen()
        declared = {each.name: each for each in (*self._mark.metrics, *metrics)}
        mark = replace(self._mark, without_effect=tuple(without_effect), metrics=tuple(declared.values()))
        self._write_config(config, mark)

    def change_code(self, sources: Sources, accept: bool, round: int) -> None:
        """Continue with these users' files; a RunError if they are others than before and this is not accepted.

        `round` is the last one recorded. A run that noted no files takes these for its own.
        """
        before, code = self._mark.code, hash_code(sources)
        if before == code:
            return
        if before and not accept:
            check_code(self.path, before, code)
        with writing(self.path, self._then):
            copy_code(self.path, sources)
        changes = (*self._mark.code_changes, CodeChange(round, before)) if before else self._mark.code_changes
        self._write_config(self.config, replace(self._mark, code=code, code_changes=changes))

    def restore(self) -> tuple[Tree, dict[str, Any]] | None:
        """Go back to the last checkpoint; None, and back to the start, if there is none.

        The generation of the records grows twice. Before the cut, so that no follower takes the cut log for the one
        that it knows; and after it, for followers that read the log in between.
        """
        checkpoint = load(self.path / files.STATE)
        lengths = dict.fromkeys(self._logs, 0)
        if checkpoint is not None:
            known = checkpoint.round_bytes, checkpoint.trace_bytes, checkpoint.edge_bytes
            lengths = dict(zip(self._logs, known, strict=True))
        for log, length in lengths.items():
            log.check(length)
        if checkpoint is not None:
            self._kept_index = checkpoint.kept
            if self._kept is not None:
                self._kept.restore(checkpoint.kept)
        self._reopen()
        self._begin_generation()
        for log, length in lengths.items():
            with writing(log.path, self._then):
                log.cut(length)
        self._begin_generation()
        return None if checkpoint is None else (checkpoint.state, checkpoint.meta)

    def write_clients(self, clients: Iterable[Mapping[str, Any]]) -> None:
        """Say what each client did; before the summary, which makes the run complete."""
        with writing(self.path / files.CLIENTS, self._then):
            write_atomic(self.path / files.CLIENTS, files.encode_lines(clients))

    def write_model(self, tensors: Tree) -> None:
        """Write the trained tensors by their names, as any safetensors library reads them."""
        with writing(self.path / files.MODEL, self._then):
            write_atomic(self.path / files.MODEL, safetensors_chunks(tensors, {"format": "pt"}))

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Say what the run came to. With that it is complete."""
        with writing(self.path / files.SUMMARY, self._then):
            self._sync()
            write_atomic(self.path / files.SUMMARY, files.encode_pretty(summary))

    def close(self) -> None:
        """Let others have it."""
        if self._kept is not None:
            self._kept.close()
        for log in self._logs:
            log.close()
        self._lock.release()

    @property
    def _logs(self) -> tuple[_Log, ...]:
        """In the order of their lengths in a checkpoint."""
        return self._rounds, self._traces, self._edge

    def _begin_generation(self) -> None:
        mark = replace(self._mark, id=self._mark.id or _new_id(), generation=self._mark.generation + 1)
        self._write_config(self.config, mark)

    def _write_config(self, config: Mapping[str, Any], mark: RunMark) -> None:
        with writing(self.path / files.CONFIG, self._then):
            write_atomic(self.path / files.CONFIG, files.encode_config(config, mark))
        self.config, self._mark = dict(config), mark

    def _sync(self) -> None:
        for log in self._logs:
            log.sync()

    def _reopen(self) -> None:
        """Take away what only a complete run has; the summary, which makes it complete, first."""
        for name in (files.SUMMARY, files.CLIENTS, files.MODEL):
            with writing(self.path / name, self._then):
                (self.path / name).unlink(missing_ok=True)
                sync_folder(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Log:
    """A file of lines that only grows, but for going back to a length that it had."""

    def __init__(self, path: Path, on_request: bool = False) -> None:
        """What is written on request is there only from its first line on."""
        self.path = path
        self._file = None if on_request and not path.exists() else self._open()
        self.length = os.fstat(self._file.fileno()).st_size if self._file else 0

    def append(self, lines: bytes) -> None:
        if self._file is None:
            self._file = self._open()
            sync_folder(self.path.parent)
        try:
            write_all(self._file.fileno(), lines)
        except OSError:
            self._file.truncate(self.length)  # no half line
            raise
        self.length += len(lines)

    def check(self, length: int) -> None:
        """A RunError if it is shorter."""
        if self.length < length:
            raise RunError(
                f"{self.path} is damaged: expected at least the {length} bytes it had at the last checkpoint, "
                f"got {self.length}; put back a copy of the run directory, or start the run again"
            )

    def cut(self, length: int) -> None:
        if self._file is not None:
            self._file.truncate(length)
        self.length = length

    def sync(self) -> None:
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _open(self) -> FileIO:
        return self.path.open("ab", buffering=0)


def create_repeats(path: Path, config: Mapping[str, Any]) -> None:
    """A directory for one run per seed of the configuration, each to be created at its `seed_path`."""
    with writing(path, _START_AGAIN):
        path.mkdir(parents=True, exist_ok=True)
        _refuse_existing(path)
        write_atomic(path / files.CONFIG, files.encode_config(config))


def change_repeats(path: Path, config: Mapping[str, Any]) -> None:
    """Another configuration for the runs that are still to be created."""
    with writing(path, _resume(path)):
        write_atomic(path / files.CONFIG, files.encode_config(config))


def _refuse_existing(path: Path) -> None:
    if (path / files.CONFIG).exists():
        raise RunError(
            f"there is a run at {path} already; continue it with `fedge resume {path}`, or choose another folder"
        )
    if (path / files.STATE).exists():
        raise RunError(f"{path} has the remains of a run: {files.STATE} without {files.CONFIG}; choose another folder")


def _new_id() -> str:
    return secrets.token_hex(8)


def _resume(path: Path) -> str:
    return f"continue with `fedge resume {path}`"
