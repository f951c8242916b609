"""A summary of a run that does not require reading all its records: settings, results, last values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from fedge.core.effect import digest, omit, settings
from fedge.core.errors import FedgeError
from fedge.core.fields import OwnFields
from fedge.core.lock import holder, remote_holder
from fedge.core.metric_declaration import MetricDeclaration, declared_fields
from fedge.core.parts import short_name
from fedge.core.printable import printable
from fedge.runs import Run, files

STAMPED = (files.CONFIG, files.SUMMARY, files.ROUNDS)
"""The files whose stamps reveal a change of a run."""
Stamp = tuple[int, ...]
"""For each of these files its modification time in nanoseconds, size and inode; zeros if it is absent."""

MOST_BYTES = 1 << 20
"""Size limit of files that are read completely: the table holds settings and results of all runs."""
_LOGS = (files.ROUNDS, files.TRACES, files.EDGE, files.CLIENTS, files.EVENTS)
READ = frozenset((*STAMPED, *_LOGS, files.ENVIRONMENT, files.NAMES, files.STATUS, files.LOCK, files.REGISTRY))
"""The files that the page reads, which must be regular: a link may point outside the folder, and a pipe may never end.
"""


class RunEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run directory as the index stores it. `folder` is relative to the indexed folder, as bytes of the system."""

    folder: bytes
    stamp: Stamp
    problem: str | None = None
    odd: tuple[str, ...] = ()  # files that are not regular; then nothing was read
    holds_runs: bool = False  # a folder with one run per seed, not a run
    id: str | None = None
    sweep: bytes | None = None  # the folder of the sweep that it belongs to
    settings: dict[str, Any] = {}
    alike: str = ""  # digest, equal for runs that differ in the seed alone
    clock: str = "simulated"
    networked: bool = False
    metrics: tuple[MetricDeclaration, ...] = ()
    summary: dict[str, Any] | None = None
    last: dict[str, Any] = {}  # the last values found near the end of the records, by field
    started_s: float | None = None  # seconds since 1970

    @property
    def key(self) -> str:
        """The run's key in URLs."""
        return sha256(self.folder).hexdigest()[:16]

    @property
    def path(self) -> str:
        """The path below the indexed folder as printable text."""
        return printable(os.fsdecode(self.folder))

    @property
    def name(self) -> str:
        return str(self.settings.get("name") or self.path)

    @property
    def algorithm(self) -> str:
        return short_name(str(self.settings.get("algorithm.name", "")))

    @property
    def note_key(self) -> str:
        """The key of tags and notes; it survives renaming the folder."""
        return self.id or self.key

    @property
    def own_fields(self) -> OwnFields:
        return declared_fields(self.metrics)

    @property
    def round(self) -> int:
        found = self.last.get("round", 0)
        return found if isinstance(found, int) else 0

    @property
    def num_rounds(self) -> int | None:
        found = self.settings.get("rounds")
        return found if isinstance(found, int) else None

    @property
    def metric(self) -> str:
        """The metric that judges the run: the target's, otherwise accuracy or loss."""
        target = self.settings.get("target.metric")
        known = {**(self.summary or {}), **self.last}
        choices = [target] if isinstance(target, str) else []
        return next((name for name in (*choices, "accuracy", "loss", "train_loss") if name in known), "accuracy")


def stamp_of(folder: str) -> Stamp:
    """Return the stamp of a run directory."""
    found: list[int] = []
    for name in STAMPED:
        try:
            status = os.stat(f"{folder}/{name}", follow_symlinks=False)
            found += (status.st_mtime_ns, status.st_size, status.st_ino)
        except OSError:
            found += (0, 0, 0)
    return tuple(found)


def read_entry(folder: Path, relative: bytes, stamp: Stamp, sweep: bytes | None, odd: frozenset[str]) -> RunEntry:
    """Read a run directory: configuration, summary and the end of the records. `odd` are the non-regular files."""
    made: dict[str, Any] = {"folder": relative, "stamp": stamp, "sweep": sweep}
    if names := tuple(sorted(odd)):
        reason = f"{names[0]}: expected a regular file, got a symbolic link or a special file; replace it with a copy"
        return RunEntry(**made, odd=names, problem=reason)
    for name, size in ((files.CONFIG, stamp[1]), (files.SUMMARY, stamp[4]), (files.ENVIRONMENT, _size(folder))):
        if size > MOST_BYTES:
            return RunEntry(**made, problem=tell_size(name, size))
    run = Run(folder)
    try:
        if files.holds_repeats(folder, run.config):
            return RunEntry(**made, holds_runs=True)
        if run.problem is not None:
            return RunEntry(**made, problem=tell_problem(run.problem, folder))
        effective = run.effective
        return RunEntry(
            **made,
            id=run.id,
            settings=_plain(run.config),
            alike=digest(omit(effective, ("seed", "seeds"))),
            clock=effective["clock"],
            networked=(folder / files.REGISTRY).is_file(),
            metrics=run.mark.metrics,
            summary=run.summary,
            last=_last_values(run),
            started_s=_started(run),
        )
    except FedgeError as error:
        return RunEntry(**made, problem=tell_problem(str(error), folder))


def tell_size(name: str, size: int) -> str:
    return f"{name}: expected at most {MOST_BYTES:,} bytes, got {size:,}; shorten its texts"


def status_of(entry: RunEntry, root: Path) -> str:
    """`complete`, `running`, `elsewhere` (on another host), `unfinished` or `damaged`."""
    if entry.problem is not None:
        return "damaged"
    if entry.summary is not None:
        return "complete"
    lock = root / os.fsdecode(entry.folder) / files.LOCK
    if holder(lock) is not None:
        return "running"
    return "elsewhere" if remote_holder(lock) is not None else "unfinished"


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    return {path: value for path, value in settings(config) if value is not None}


def _last_values(run: Run) -> dict[str, Any]:
    return {name: value for record in run.tail for name, value in record.items() if value is not None}


def _size(folder: Path) -> int:
    try:
        return os.stat(f"{folder}/{files.ENVIRONMENT}").st_size
    except OSError:
        return 0


def _started(run: Run) -> float | None:
    with suppress(FedgeError, ValueError, OverflowError):
        started = run.environment.get("started")
        # in UTC, so that a time beyond the year 9999 counts as unknown
        return datetime.fromisoformat(started).astimezone(UTC).timestamp() if isinstance(started, str) else None
    return None


def tell_problem(problem: str, folder: Path) -> str:
    """Return a reason without the path above the folder, which a shared page should not reveal."""
    return printable(problem.replace(f"{folder}/", "").replace(str(folder), "the run"))
