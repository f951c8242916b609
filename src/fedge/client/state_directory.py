"""A client's state directory: which run it takes part in, and versions of its private state.

    lock                  names the process that uses the directory; that process holds a lock on this file
    client.json           the client's name, the server, the run, and the client's number in it
    private/RUN/          private state in one run: ROUND-EXCHANGE-ATTEMPT.fdg, in the format of core/message.py
    model.safetensors     the trained model, at the end

If the process ends at any moment, each file is complete or absent.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Self

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from fedge.core import message
from fedge.core.errors import RunError, StreamError
from fedge.core.layout import Tree
from fedge.core.lock import Lock
from fedge.core.placement import PIECE_BYTES
from fedge.core.safetensors_format import safetensors_chunks
from fedge.core.state_version import Version
from fedge.core.storage import reading, sync_folder, write_atomic, writing

MAX_VERSIONS = 3
"""The durable version, the base of an exchange, and the one that it writes."""
MAX_RUNS = 4
"""The number of runs whose private state is kept."""
_FORMAT = 1
_THEN = "start the client again"
_RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_FILE_NAME = re.compile(r"(\d{1,20})-(\d{1,20})-(\d{1,20})\.fdg\Z")


class MissingStateError(RunError):
    """The client lacks the private state that the server names."""


class ClientMark(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The contents of client.json."""

    format: int = _FORMAT
    name: str
    server: str = ""
    run: str | None = None  # the run that the client joined last; None if it has joined none
    number: Annotated[int, Meta(ge=0)] | None = None
    earlier: tuple[str, ...] = ()  # earlier runs whose private state is kept, latest first
    reset: bool = False  # the state was reset: versions before `reset_before` are replaced by the run's first state
    reset_before: Version | None = None  # the first version since then; None if there is none yet


class _VersionMark(Struct, frozen=True, forbid_unknown_fields=True):
    """The meta of a version's file, which identifies files that were copied from another client or run."""

    name: str
    run: str
    version: Version


class StateDirectory:
    """A state directory, locked by this process until `close`."""

    def __init__(self, path: Path, name: str, server: str = "", reset: bool = False) -> None:
        """Open or create the directory of the client of this name; with `reset`, discard its private state.

        Raises RunError if another process uses the directory, if it belongs to another client, or if client.json is
        damaged.
        """
        self.path = path
        with writing(path, _THEN):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            sync_folder(path.parent)
            self._lock = Lock(path / "lock")
        try:
            self._mark = self._load(name, reset)
            mark = replace(self._mark, server=server or self._mark.server)
            self._save(ClientMark(name=name, server=mark.server, reset=True) if reset else mark)
            self._delete_forgotten_runs()
        except BaseException:
            self.close()
            raise

    @property
    def run(self) -> str | None:
        """The id of the run that the client joined last; None if it has joined none, or was reset."""
        return self._mark.run

    @property
    def number(self) -> int | None:
        """The client's number in that run."""
        return self._mark.number

    def begin(self, run: str, number: int) -> None:
        """Join a run as client `number`. In a run that is new to the client, it has no private state.

        Raises StreamError for an invalid run id, and RunError if the client has private state in this run under another
        number. Without private state a new number is accepted: the old one may have been given to another client.
        """
        if not _RUN_ID.match(run):
            raise StreamError(f"expected the id of a run, up to 64 letters and digits, got {run[:100]!r}")
        if run == self._mark.run and number != self._mark.number and self._folder.exists() and self.versions():
            raise RunError(
                f"{self.path} belongs to client {self._mark.number} of run {run}, "
                f"but the server now calls it client {number}; "
                "if the server has lost its registry, start the client with --reset-state"
            )
        mark = self._mark
        if mark.run not in (None, run):
            known = [mark.run, *(other for other in mark.earlier if other != run)]
            mark = replace(mark, earlier=tuple(known[: MAX_RUNS - 1]), reset=False, reset_before=None)
        folder = self._private / run
        with writing(folder, _THEN):
            folder.mkdir(parents=True, exist_ok=True)
            sync_folder(self._private)
            sync_folder(self.path)
        self._save(replace(mark, run=run, number=number))
        self._delete_forgotten_runs()

    def versions(self) -> list[Version]:
        """Return the versions of private state in this run, oldest first."""
        with reading(self._folder):
            names = [entry.name for entry in self._folder.iterdir()]
        return sorted(Version(*map(int, found.groups())) for name in names if (found := _FILE_NAME.match(name)))

    def read(self, version: Version | None) -> Tree | None:
        """Return a version of the private state; None for the run's initial state and for versions that were reset.

        Raises MissingStateError if the client does not have it, RunError if it is damaged.
        """
        if version is None:
            return None
        file = self._file(version)
        with reading(file):
            try:
                opened = file.open("rb", buffering=0)
            except FileNotFoundError:
                self._check_reset(version)
                return None
            with opened:
                reader = message.Reader(_VersionMark, os.fstat(opened.fileno()).st_size)
                try:
                    while piece := opened.read(PIECE_BYTES):
                        reader.feed(piece)
                    mark, tree = reader.finish()
                except StreamError as error:
                    raise RunError(
                        f"{file} is damaged: {error}; put back a copy, or start the client with --reset-state"
                    ) from None
        if mark != _VersionMark(self._mark.name, self._run, version):
            raise RunError(
                f"{file} is version {_written(mark.version)} of client {mark.name!r} in run {mark.run!r}; "
                "put back the right file, or start the client with --reset-state"
            )
        return tree

    def write(self, version: Version, tree: Tree) -> None:
        """Store private state durably under a version. Raises StorageError; nothing has changed then."""
        file = self._file(version)
        write_atomic(file, message.chunks(_VersionMark(self._mark.name, self._run, version), tree), _THEN)
        if self._mark.reset and self._mark.reset_before is None:
            self._save(replace(self._mark, reset_before=version))

    def trim(self, keep: Collection[Version]) -> None:
        """Delete all versions of this run except these, and leftovers of interrupted writes."""
        if len(keep) > MAX_VERSIONS:
            raise ValueError(f"expected at most {MAX_VERSIONS} versions to keep, got {len(keep)}")
        kept = {self._file(version).name for version in keep}
        with writing(self._folder, _THEN):
            for entry in self._folder.iterdir():
                if entry.name not in kept and _FILE_NAME.match(entry.name.removesuffix(".part")):
                    entry.unlink()

    def write_model(self, tree: Tree, metadata: dict[str, str] | None = None) -> Path:
        """Store the trained model, durably, and return its path."""
        file = self.path / "model.safetensors"
        write_atomic(file, safetensors_chunks(tree, metadata or {}), _THEN)
        return file

    def close(self) -> None:
        """Release the directory."""
        self._lock.release()

    @property
    def _private(self) -> Path:
        return self.path / "private"

    @property
    def _run(self) -> str:
        if self._mark.run is None:
            raise ValueError("private state belongs to a run: call `begin` first")
        return self._mark.run

    @property
    def _folder(self) -> Path:
        return self._private / self._run

    def _file(self, version: Version) -> Path:
        if min(version) < 0:
            raise StreamError(f"expected a version of private state, three numbers from 0, got {_written(version)}")
        return self._folder / f"{_written(version)}.fdg"

    def _check_reset(self, version: Version) -> None:
        """Raise a MissingStateError unless a reset discarded the missing version."""
        before = self._mark.reset_before
        if self._mark.reset and (before is None or version < before):
            return
        found = ", ".join(map(_written, self.versions())) or "none"
        raise MissingStateError(
            f"the server asks for version {_written(version)} of this client's private state, but {self._folder} has "
            f"{found}; put back a newer copy of {self.path}, or start the client with --reset-state, "
            "which begins with fresh private state"
        )

    def _load(self, name: str, reset: bool) -> ClientMark:
        file = self.path / "client.json"
        with reading(file):
            try:
                data = file.read_bytes()
            except FileNotFoundError:
                if self._private.exists() and not reset:
                    raise RunError(
                        f"{file} is missing, but there is private state beside it; put back a copy of it, "
                        "or start the client with --reset-state"
                    ) from None
                return ClientMark(name=name)
        try:
            mark = msgspec.json.decode(data, type=ClientMark)
        except (ValueError, RecursionError) as error:
            raise RunError(f"{file} is damaged: {error}; put back a copy of it, or choose another --state") from None
        if mark.format != _FORMAT:
            raise RunError(f"{file} has format {mark.format}, and this fedge reads format {_FORMAT}; use a newer fedge")
        if mark.name != name:
            raise RunError(
                f"{self.path} is the state directory of client {mark.name!r}, but this client is {name!r}; "
                "choose another --state"
            )
        if mark.run is not None and not _RUN_ID.match(mark.run):
            raise RunError(f"{file} is damaged: run: expected the id of a run; put back a copy of it")
        return mark

    def _save(self, mark: ClientMark) -> None:
        if mark != self._mark or not (self.path / "client.json").exists():
            data = msgspec.json.format(msgspec.json.encode(mark), indent=2) + b"\n"
            write_atomic(self.path / "client.json", data, _THEN)
        self._mark = mark

    def _delete_forgotten_runs(self) -> None:
        """Delete private state of runs that client.json does not name, including leftovers of a killed process."""
        with writing(self._private, _THEN):
            for folder in self._private.iterdir() if self._private.exists() else ():
                if folder.name not in (self._mark.run, *self._mark.earlier):
                    shutil.rmtree(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _written(version: Version) -> str:
    return "-".join(map(str, version))
