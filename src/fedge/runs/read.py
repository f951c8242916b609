"""Read runs in any state, without locking or changing them."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from fedge.core.effect import digest, omit
from fedge.core.errors import FedgeError, RunError
from fedge.core.fields import FIELDS, NO_OWN_FIELDS, OwnFields, is_text
from fedge.core.lock import holder
from fedge.core.metric_declaration import declared_fields
from fedge.core.schema import show
from fedge.core.storage import reading
from fedge.runs import files
from fedge.runs.data_names import DataNames, read_names

if TYPE_CHECKING:
    from fedge.core.layout import Tree

Status = Literal["complete", "running", "unfinished", "damaged"]

_LINES = msgspec.json.Decoder(dict[str, Any])
_CLIENT = msgspec.defstruct(
    "_CLIENT", [("client", Annotated[int, msgspec.Meta(ge=0)]), ("user_accuracy", float | None, None)]
)
_TAIL_BYTES = 8_192


def _record_kind(own: OwnFields = NO_OWN_FIELDS) -> type[msgspec.Struct]:
    """Return the type of a round's record in a run with these additional fields."""
    fields = {**own, **{field.name: field for field in FIELDS if field.name != "round"}}
    return msgspec.defstruct(
        "_RECORD",
        [
            ("round", Annotated[int, msgspec.Meta(ge=1, le=2**53)]),
            *(
                (name, str | None if field.role == "label" else float | bool | None, None)
                for name, field in fields.items()
            ),
        ],
    )


_RECORD = _record_kind()


class _Surroundings(msgspec.Struct):
    """The fields of environment.json that readers rely on."""

    fedge: str | None = None
    started: str | None = None
    engine: dict[str, Any] | None = None


class RunRecords:
    """A run directory, read lazily and then cached; make a new object to see later changes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def config(self) -> dict[str, Any]:
        """The configuration of the run."""
        return self._config_and_mark[0]

    @property
    def mark(self) -> files.RunMark:
        """The entries of config.json besides the settings."""
        return self._config_and_mark[1]

    @property
    def id(self) -> str | None:
        """16 random hex digits, unique to the run; None in runs of older versions."""
        return self.mark.id

    @property
    def code(self) -> dict[str, str]:
        """The SHA-256 of each user file that the run was made with, by path; copies are in `code/`."""
        return self.mark.code

    @cached_property
    def own_fields(self) -> OwnFields:
        """The additional fields that the run's own metrics record, as it declares them."""
        return declared_fields(self.mark.metrics)

    @cached_property
    def effective(self) -> dict[str, Any]:
        """The configuration without the settings that do not affect results.

        It also has `clock`, whether seconds are `simulated` or `measured`: the two must not be averaged together.
        """
        found = omit(self.config, self.mark.without_effect)
        return found | {"clock": "measured" if (self.path / files.REGISTRY).is_file() else "simulated"}

    @property
    def digest(self) -> str:
        """The digest of the settings that affect results."""
        return digest(self.effective)

    @cached_property
    def environment(self) -> dict[str, Any]:
        """The environment in which the run was started."""
        found = self._object(files.ENVIRONMENT) or {}
        files.check_types(self.path / files.ENVIRONMENT, found, _Surroundings)
        return found

    @cached_property
    def names(self) -> DataNames:
        """The names of classes and clients, for charts."""
        return read_names(self.path)

    @cached_property
    def rounds(self) -> list[dict[str, Any]]:
        """The records of all rounds so far."""
        return decode_records(self.path / files.ROUNDS, self._whole_lines(files.ROUNDS), self.own_fields)

    def last(self, field: str) -> Any:
        """Return the last measured value of a field; None if never measured. Reads all records only if needed."""
        found = _last(self.tail, field)
        return _last(self.rounds, field) if found is None else found

    def round_lines(self) -> bytes:
        """Return the stored records of all rounds as JSON lines, for callers with their own decoder."""
        return self._whole_lines(files.ROUNDS)

    @cached_property
    def traces(self) -> list[dict[str, Any]]:
        """The traces recorded so far; empty unless `[trace]` is set."""
        return self._lines(files.TRACES)

    @cached_property
    def edge(self) -> list[dict[str, Any]]:
        """The places and timelines of clients, round by round; empty unless `edge.record` is set."""
        return self._lines(files.EDGE)

    @cached_property
    def clients(self) -> list[dict[str, Any]]:
        """One record per client; empty until the run is complete."""
        return decode_lines(self.path / files.CLIENTS, self._whole_lines(files.CLIENTS), _CLIENT)

    @cached_property
    def summary(self) -> dict[str, Any] | None:
        """The run's results; None until it is complete."""
        found = self._object(files.SUMMARY)
        if found is not None:
            _check_summary(self.path / files.SUMMARY, found)
        return found

    def state(self) -> Tree:
        """Return the server's state at the last checkpoint. Raises RunError if there is none."""
        from fedge.runs.checkpoint import load

        checkpoint = load(self.path / files.STATE)
        if checkpoint is None:
            raise RunError(f"{self.path} has no checkpoint yet: expected {files.STATE}; let the run continue")
        return checkpoint.state

    @cached_property
    def problem(self) -> str | None:
        """Why the run cannot be read; None if it can.

        Only the end of long records is checked, which is where a crash leaves damage: reading everything is slow. For
        damage further up, `rounds` raises.
        """
        try:
            if files.holds_repeats(self.path, self.config):
                return f"{self.path} holds repeats, not one run"
            _ = self.tail, self.summary
        except FedgeError as error:
            return str(error)
        return None

    @property
    def status(self) -> Status:
        if self.problem is not None:
            return "damaged"
        if holder(self.path / files.LOCK) is not None:
            return "running"
        return "unfinished" if self.summary is None else "complete"

    @cached_property
    def _config_and_mark(self) -> tuple[dict[str, Any], files.RunMark]:
        return files.read_config(self.path)

    @cached_property
    def tail(self) -> list[dict[str, Any]]:
        """The records of the last rounds: those that fit 8 KiB."""
        file = self.path / files.ROUNDS
        with reading(file):
            try:
                with file.open("rb") as opened:
                    start = max(0, os.fstat(opened.fileno()).st_size - _TAIL_BYTES)
                    opened.seek(start)
                    data = opened.read()
            except (FileNotFoundError, NotADirectoryError):
                return []
        first = data.find(b"\n") + 1 if start else 0  # skip the partial first line
        return decode_records(file, files.whole_lines(data[first:]), self.own_fields)

    def _object(self, name: str) -> dict[str, Any] | None:
        data = files.read_bytes(self.path / name)
        return None if data is None else files.decode(self.path / name, data)

    def _lines(self, name: str) -> list[dict[str, Any]]:
        return decode_lines(self.path / name, self._whole_lines(name))

    def _whole_lines(self, name: str) -> bytes:
        return files.whole_lines(files.read_bytes(self.path / name) or b"")


Run = RunRecords
"""Short name within the package; the public `fedge.Run` has more methods."""


def find_runs(path: Path) -> list[Run]:
    """Return the run at a path, or all runs below it, sorted by path. Raises RunError if it is not a directory.

    A directory that looks like a run but cannot be read is included, with the status `damaged` and a `problem`.
    """
    if not path.is_dir():
        raise RunError(f"no directory at {path}: expected a run, or a directory with runs in it")
    runs = []
    for folder, subfolders, names in os.walk(path):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        run = Run(Path(folder))
        if not {files.CONFIG, files.ENVIRONMENT, files.ROUNDS} & set(names) or _holds_repeats(run):
            continue
        runs.append(run)
        if run.problem is None:
            subfolders.clear()
    return sorted(runs, key=lambda run: run.path)


def _holds_repeats(run: Run) -> bool:
    try:
        return files.holds_repeats(run.path, run.config)
    except FedgeError:
        return False


def _last(records: list[dict[str, Any]], field: str) -> Any:
    return next((record[field] for record in reversed(records) if record.get(field) is not None), None)


def decode_records(file: Path, lines: bytes, own: OwnFields = NO_OWN_FIELDS) -> list[dict[str, Any]]:
    """Return the records of rounds in complete lines of a file. RunError names a field of the wrong type.

    `own` are the fields of the run's own metrics.
    """
    return decode_lines(file, lines, _record_kind(own) if own else _RECORD)


def decode_lines(file: Path, lines: bytes, kind: type[msgspec.Struct] | None = None) -> list[dict[str, Any]]:
    """Return the objects in complete lines of a file. Raises RunError if one is not a JSON object or not of a kind."""
    try:
        if kind is not None:
            msgspec.json.Decoder(kind).decode_lines(lines)  # checks types without building dictionaries, much faster
        if not files.has_many_digits(lines):
            return _LINES.decode_lines(lines)
    except (ValueError, RecursionError):  # its offset counts from the first line; decoding each line names the line
        pass
    found = [files.decode(file, line) for line in lines.split(b"\n")[:-1]]
    if kind is not None:
        for line in found:
            files.check_types(file, line, kind)
    return found


def _check_summary(file: Path, found: dict[str, Any]) -> None:
    for name, value in found.items():
        expected = "text" if is_text(name) else "a number"
        if value is not None and not isinstance(value, str if expected == "text" else (int, float)):
            raise RunError(f"{file} is damaged: {name}: expected {expected}, got {show(value)}; put back a copy of it")
