"""What is known of a run without reading all its records: settings, results, the last values."""

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
"""The files by which a change of a run is noticed."""
Stamp = tuple[int, ...]
"""Of each of these files the time of its last change in nanoseconds, its size and its inode; zeros if it is absent."""

MOST_BYTES = 1 << 20
"""Of a file that is read and shown as a whole: the table holds settings and results of all runs."""
_LOGS = (files.ROUNDS, files.TRACES, files.EDGE, files.CLIENTS, files.EVENTS)
READ = frozenset((*STAMPED, *_LOGS, files.ENVIRONMENT, files.NAMES, files.STATUS, files.LOCK, files.REGISTRY))
"""The files that the page reads, which must be regular: a link leads elsewhere, and a pipe may never end."""


class RunEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run directory as the index stores it. `folder` is relative to the indexed folder, as bytes of the system."""

    folder: bytes
    stamp: Stamp
    problem: str | None = None
    odd: tuple[str, ...] = ()  # files that are not regular, so that nothing was read
    holds_runs: bool = False  # repeats over seeds: no run, but a folder of runs
    id: str | None = None
    sweep: bytes | None = None  # the folder of the sweep that it belongs to
    settings: dict[str, Any] = {}
    alike: str = ""  # equal for runs that differ in the seed alone
    clock: str = "simulated"
    networked: bool = False
    metrics: tuple[MetricDeclaration, ...] = ()
    summary: dict[str, Any] | None = None
    last: dict[str, Any] = {}  # the last value of each field near the end of the records
    started_s: float | None = None  # since 1970

    @property
    def key(self) -> str:
        """The run in addresses."""
        return sha256(self.folder).hexdigest()[:16]

    @property
    def path(self) -> str:
        """For people: below the indexed folder, whatever its bytes are."""
        return printable(os.fsdecode(self.folder))

    @property
    def name(self) -> str:
        return str(self.settings.get("name") or self.path)

    @property
    def algorithm(self) -> str:
        return short_name(str(self.settings.get("algorithm.name", "")))

    @property
    def note_key(self) -> str:
        """By which tags and notes are stored: it stays when a folder is renamed."""
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
        """What it is judged by: the target's metric, or else accuracy or loss."""
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
    """Read a run directory: configuration, summary and the end of the records. `odd` are files that are not regular."""
    made: dict[str, Any] = {"folder": relative, "stamp": stamp, "sweep": sweep}
    if names := tuple(sorted(odd)):
        reason = f"{names[0]} is a symbolic link or no regular file, which the page does not read; replace it by a copy"
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
    return f"{name} has {size:,} bytes, and the page reads at most {MOST_BYTES:,}; shorten its texts"


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
        # in UTC, so that a time beyond the year 9999 there counts as unknown
        return datetime.fromisoformat(started).astimezone(UTC).timestamp() if isinstance(started, str) else None
    return None


def tell_problem(problem: str, folder: Path) -> str:
    """Return a reason without the path above the folder: a shared page need not tell where it lies."""
    return printable(problem.replace(f"{folder}/", "").replace(str(folder), "the run"))
