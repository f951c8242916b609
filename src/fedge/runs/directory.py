"""A run directory, open for writing."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping
from io import FileIO
from pathlib import Path
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
    """A run directory, made by `create` or `open` and locked by this process until `close`.

    Call `restore` first on an existing run: it discards records written after the last checkpoint, and those rounds
    are trained again.
    """

    def __init__(self, path: Path, then: str) -> None:
        self.path = path
        self.config: dict[str, Any] = {}
        self._mark = RunMark()
        self._then = then  # advice in disk errors: what to do once the problem is solved
        self._kept: KeptStore | None = None
        self._kept_index: Tree | None = None  # from the restored checkpoint
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
        """Create a run directory. Raises RunError if there is a run already.

        `without_effect` has the paths of settings that do not affect results, `sources` the user files by path,
        `metrics` the additional recorded fields, and `names` the names for charts. The configuration is written last:
        a directory without it is not a run.
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
        """Open an existing run. Raises RunError if there is none, or if the directory holds repeats."""
        config, _ = files.read_config(path)
        if files.holds_repeats(path, config):
            first = files.seed_path(path, config["seeds"][0])
            raise RunError(f"{path} holds repeats, not one run; open one of them, such as {first}")
        run = cls(path, _resume(path))
        try:  # read again: another process may have written before the lock was held
            run.config, run._mark = files.read_config(path)
        except BaseException:
            run.close()
            raise
        return run

    @property
    def facts(self) -> dict[str, Any]:
        """Recorded facts about how the run executes, such as its engine."""
        found = files.read_environment(self.path).get("engine")
        return found if isinstance(found, dict) else {}

    def note(self, facts: Mapping[str, Any]) -> None:
        """Add facts about how the run executes to environment.json."""
        where = {**files.read_environment(self.path), "engine": {**self.facts, **facts}}
        write_atomic(self.path / files.ENVIRONMENT, files.encode_pretty(where), self._then)

    def kept_store(self, template: Tree) -> KeptStore:
        """Return the store of the clients' private state. From now on it is part of every checkpoint."""
        self._kept = KeptStore(template, self.path / files.KEPT, self._then)
        if self._kept_index is not None:
            self._kept.restore(self._kept_index)
        return self._kept

    def append(self, record: Mapping[str, Any]) -> None:
        """Append the record of a round, visible to readers at once."""
        self._append(self._rounds, [record])

    def append_traces(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Append the traces of a round."""
        self._append(self._traces, lines)

    def append_edge(self, line: Mapping[str, Any]) -> None:
        """Append the timeline of a round: the clients' places and phases."""
        self._append(self._edge, [line])

    def save(self, state: Tree, meta: Mapping[str, Any]) -> None:
        """Write a checkpoint atomically. If it fails, the previous checkpoint stays valid."""
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
        """Replace the configuration of the run. A complete run becomes unfinished.

        Metrics that it recorded before stay declared.
        """
        self._reopen()
        declared = {each.name: each for each in (*self._mark.metrics, *metrics)}
        mark = replace(self._mark, without_effect=tuple(without_effect), metrics=tuple(declared.values()))
        self._write_config(config, mark)

    def change_code(self, sources: Sources, accept: bool, round: int) -> None:
        """Continue with these user files. Raises RunError if they have changed, unless `accept`.

        `round` is the last one recorded. A run without recorded files adopts these.
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
        """Go back to the last checkpoint and return (state, meta); if there is none, back to the start, returning None.

        The generation of the records increases twice: before truncating, so that no follower mistakes the truncated log
        for the one it knows, and after it, for followers that read the log in between.
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
        """Write one line per client. Call it before `write_summary`, which makes the run complete."""
        write_atomic(self.path / files.CLIENTS, files.encode_lines(clients), self._then)

    def write_model(self, tensors: Tree) -> None:
        """Write the trained tensors by name, as a standard safetensors file."""
        write_atomic(self.path / files.MODEL, safetensors_chunks(tensors, {"format": "pt"}), self._then)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write the run's results, which makes it complete."""
        with writing(self.path / files.SUMMARY, self._then):
            self._sync()
            write_atomic(self.path / files.SUMMARY, files.encode_pretty(summary))

    def close(self) -> None:
        """Close all files and release the lock."""
        if self._kept is not None:
            self._kept.close()
        for log in self._logs:
            log.close()
        self._lock.release()

    @property
    def _logs(self) -> tuple[_Log, ...]:
        """The logs, in the order of their lengths in a checkpoint."""
        return self._rounds, self._traces, self._edge

    def _append(self, log: _Log, lines: Iterable[Mapping[str, Any]]) -> None:
        data = files.encode_lines(lines)
        with writing(log.path, self._then):
            log.append(data)

    def _begin_generation(self) -> None:
        mark = replace(self._mark, id=self._mark.id or _new_id(), generation=self._mark.generation + 1)
        self._write_config(self.config, mark)

    def _write_config(self, config: Mapping[str, Any], mark: RunMark) -> None:
        write_atomic(self.path / files.CONFIG, files.encode_config(config, mark), self._then)
        self.config, self._mark = dict(config), mark

    def _sync(self) -> None:
        for log in self._logs:
            log.sync()

    def _reopen(self) -> None:
        """Delete the files that only a complete run has, first the summary, which marks it complete."""
        for name in (files.SUMMARY, files.CLIENTS, files.MODEL):
            with writing(self.path / name, self._then):
                (self.path / name).unlink(missing_ok=True)
                sync_folder(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Log:
    """An append-only file of lines, which can be truncated to an earlier length."""

    def __init__(self, path: Path, on_request: bool = False) -> None:
        """Open the file; with `on_request`, it is created only when its first line is written."""
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
        """Raise a RunError if the file is shorter than this."""
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
    """Create a directory for one run per seed; each run is created later at its `seed_path`."""
    with writing(path, _START_AGAIN):
        path.mkdir(parents=True, exist_ok=True)
        _refuse_existing(path)
        write_atomic(path / files.CONFIG, files.encode_config(config))


def change_repeats(path: Path, config: Mapping[str, Any]) -> None:
    """Replace the configuration for runs that are not created yet."""
    with writing(path, _resume(path)):
        write_atomic(path / files.CONFIG, files.encode_config(config))


def _refuse_existing(path: Path) -> None:
    if (path / files.CONFIG).exists():
        raise RunError(
            f"there is already a run at {path}; resume it with `fedge resume {path}`, or choose another folder"
        )
    if (path / files.STATE).exists():
        raise RunError(f"{path} has the remains of a run: {files.STATE} without {files.CONFIG}; choose another folder")


def _new_id() -> str:
    return secrets.token_hex(8)


def _resume(path: Path) -> str:
    return f"resume with `fedge resume {path}`"
