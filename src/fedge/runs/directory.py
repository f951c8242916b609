"""A run directory, open for writing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fedge.core.errors import RunError
from fedge.core.layout import Tree
from fedge.runs import files
from fedge.runs.checkpoint import Checkpoint, load, pack
from fedge.runs.environment import environment as surroundings
from fedge.runs.kept import KeptStore
from fedge.runs.lock import Lock
from fedge.runs.storage import sync_folder, write_all, write_atomic, writing

_START_AGAIN = "start again, or choose another folder with `--runs`"


class RunDirectory:
    """Made by `create` or `open`; this process alone writes to it until `close`.

    A run that was there already is restored before anything else is done with it: what it recorded after
    its last checkpoint goes, and will come again.
    """

    def __init__(self, path: Path, config: Mapping[str, Any], then: str) -> None:
        self.path = path
        self.config = dict(config)
        self._then = then  # what to do once a problem with the disk is solved
        self._kept: KeptStore | None = None
        self._kept_index: Tree | None = None  # that of the checkpoint restored
        with writing(path, then):
            (path / files.CHECKPOINT).mkdir(parents=True, exist_ok=True)
            self._lock = Lock(path / files.LOCK)
            try:
                self._rounds = (path / files.ROUNDS).open("ab", buffering=0)
            except OSError:
                self._lock.release()
                raise
        self._round_bytes = os.fstat(self._rounds.fileno()).st_size

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Any], environment: Mapping[str, Any] | None = None) -> Self:
        """A new run. Its configuration is written last, since a directory without one is no run."""
        run = cls(path, config, _START_AGAIN)
        try:
            with writing(path, _START_AGAIN):
                _refuse_existing(path)
                where = surroundings() if environment is None else environment
                write_atomic(path / files.ENVIRONMENT, files.encode_pretty(where))
                write_atomic(path / files.CONFIG, files.encode_config(config))
                sync_folder(path.parent)
        except BaseException:
            run.close()
            raise
        run._then = _resume(path)
        return run

    @classmethod
    def open(cls, path: Path) -> Self:
        """A run that is there already."""
        config = files.read_config(path)
        if files.holds_repeats(path, config):
            first = files.seed_path(path, config["seeds"][0])
            raise RunError(f"{path} holds repeats, not one run; open one of them, such as {first}")
        return cls(path, config, _resume(path))

    def kept_store(self, template: Tree) -> KeptStore:
        """Where clients of this run keep their private state; from now on part of every checkpoint."""
        self._kept = KeptStore(template, self.path / files.KEPT, self._then)
        if self._kept_index is not None:
            self._kept.restore(self._kept_index)
        return self._kept

    def append(self, record: Mapping[str, Any]) -> None:
        """Record a round, for all to see at once."""
        line = files.encode(record) + b"\n"
        with writing(self.path / files.ROUNDS, self._then):
            try:
                write_all(self._rounds.fileno(), line)
            except OSError:
                self._rounds.truncate(self._round_bytes)  # no half line
                raise
        self._round_bytes += len(line)

    def save(self, state: Tree, meta: Mapping[str, Any]) -> None:
        """Make this moment the one that a resumed run goes on from. Until it is, the last one is."""
        if self._kept is not None:
            self._kept.flush()
        index = self._kept.index() if self._kept is not None else {}
        with writing(self.path / files.STATE, self._then):
            os.fsync(self._rounds.fileno())
            write_atomic(self.path / files.STATE, pack(Checkpoint(state, index, dict(meta), self._round_bytes)))
        if self._kept is not None:
            self._kept.committed()

    def change(self, config: Mapping[str, Any]) -> None:
        """Go on with another configuration. A run that was complete no longer is."""
        self._reopen()
        with writing(self.path / files.CONFIG, self._then):
            write_atomic(self.path / files.CONFIG, files.encode_config(config))
        self.config = dict(config)

    def restore(self) -> tuple[Tree, dict[str, Any]] | None:
        """Go back to the last checkpoint; None, and back to the start, if there is none."""
        checkpoint = load(self.path / files.STATE)
        expected = 0 if checkpoint is None else checkpoint.round_bytes
        rounds = self.path / files.ROUNDS
        if self._round_bytes < expected:
            raise RunError(
                f"{rounds} is damaged: expected at least the {expected} bytes it had at the last checkpoint, "
                f"got {self._round_bytes}; put back a copy of the run directory, or start the run again"
            )
        if checkpoint is not None:
            self._kept_index = checkpoint.kept
            if self._kept is not None:
                self._kept.restore(checkpoint.kept)
        self._reopen()
        with writing(rounds, self._then):
            self._rounds.truncate(expected)
        self._round_bytes = expected
        return None if checkpoint is None else (checkpoint.state, checkpoint.meta)

    def write_clients(self, clients: Iterable[Mapping[str, Any]]) -> None:
        """Say what each client did; before the summary, which makes the run complete."""
        with writing(self.path / files.CLIENTS, self._then):
            write_atomic(self.path / files.CLIENTS, files.encode_lines(clients))

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Say what the run came to. With that it is complete."""
        with writing(self.path / files.SUMMARY, self._then):
            os.fsync(self._rounds.fileno())
            write_atomic(self.path / files.SUMMARY, files.encode_pretty(summary))

    def close(self) -> None:
        """Let others have it."""
        if self._kept is not None:
            self._kept.close()
        self._rounds.close()
        self._lock.release()

    def _reopen(self) -> None:
        """Take away what only a complete run has; the summary, which makes it complete, first."""
        for name in (files.SUMMARY, files.CLIENTS):
            with writing(self.path / name, self._then):
                (self.path / name).unlink(missing_ok=True)
                sync_folder(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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


def _resume(path: Path) -> str:
    return f"continue with `fedge resume {path}`"
