"""What a run directory holds.

    config.json            the resolved configuration, and a `RunMark`; a directory that has it is a run
    environment.json       where it ran: versions, CPU, threads, commit, start
    names.json             names of classes and clients, if the data has any
    rounds.jsonl           one line for each round, written as it happens
    traces.jsonl           on request: what happened inside rounds, written after each
    edge.jsonl             on request: where clients were and when they did what, written after each
    clients.jsonl          at the end: one line for each client
    model.safetensors      at the end, and when a run is left between rounds: the trained tensors by name
    summary.json           at the end; a run that has it is complete
    registry.sqlite        networked runs: who has joined, and what became of each task
    events.jsonl           networked runs: what happened when; events.jsonl.1 and so on are older
    status.json            networked runs: where the run is, replaced once a second
    track/                 with [track]: what the tracker has told its tool, and by default what the tool writes
    lock                   names the process that writes the run, which holds a lock on this file
    code/                  copies of users' own files, as they were run
    checkpoint/
      state.safetensors    the last checkpoint
      kept.bin             private state of clients

Repeats over several seeds are a directory with a config.json that has `seeds`, and a run in each of seed-1/,
seed-2/, ...

JSON knows no NaN and no infinity: both are stored as null.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from fedge.core.errors import RunError, StorageError
from fedge.core.metric_declaration import MetricDeclaration
from fedge.core.storage import reading
from fedge.runs.formats import FORMAT, check_meanings, upgrade

CONFIG = "config.json"
ENVIRONMENT = "environment.json"
NAMES = "names.json"
ROUNDS = "rounds.jsonl"
TRACES = "traces.jsonl"
EDGE = "edge.jsonl"
CLIENTS = "clients.jsonl"
MODEL = "model.safetensors"
SUMMARY = "summary.json"
REGISTRY = "registry.sqlite"
EVENTS = "events.jsonl"
STATUS = "status.json"
LOCK = "lock"
TRACK = "track"
CHECKPOINT = "checkpoint"
STATE = "checkpoint/state.safetensors"
KEPT = "checkpoint/kept.bin"


def encode(value: object) -> bytes:
    """One line of JSON, without its end."""
    return _ENCODER.encode(value)


def encode_lines(values: Iterable[object]) -> bytes:
    """One line of JSON for each value."""
    return _ENCODER.encode_lines(values)


def encode_pretty(value: object) -> bytes:
    """JSON for people to read."""
    return msgspec.json.format(encode(value), indent=2) + b"\n"


def decode(file: Path, data: bytes) -> dict[str, Any]:
    """The JSON object that the bytes of a file hold."""
    try:
        found = msgspec.json.decode(data, type=dict[str, Any])
        place = next(_overflowing(found), None) if MANY_DIGITS.search(data) else None
    except (ValueError, RecursionError) as error:  # msgspec's own errors, and UnicodeDecodeError
        raise RunError(f"{file} is damaged: expected a JSON object, but {error}") from None
    if place is not None:
        raise RunError(f"{file} is damaged: {place}: expected a number of at most 300 digits; put back a copy of it")
    return found


MANY_DIGITS = re.compile(rb"[0-9]{300}")
"""JSON that may hold an integer which is larger than any float."""


def _overflowing(value: object, place: str = "") -> Iterator[str]:
    """Yield the paths of integers that are larger than any float."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _overflowing(inner, f"{place}.{key}".removeprefix("."))
    elif isinstance(value, int) and abs(value) >= 10**300:
        yield place


def check_types(file: Path, found: object, kind: type[msgspec.Struct]) -> None:
    """Raise a RunError that names file and field if a decoded object has values of other types than a struct's."""
    try:
        msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        raise RunError(f"{file} is damaged: {_located(error)}; put back a copy of it") from None


def _located(error: msgspec.ValidationError) -> str:
    """`algorithm: expected object, got int`"""
    reason, _, path = str(error).replace("`", "").partition(" - at ")
    path = path.replace("$.", "").replace("$", "")
    return f"{path}: {reason[:1].lower()}{reason[1:]}".removeprefix(": ")


def read_bytes(file: Path) -> bytes | None:
    """A file's content; None if there is no such file."""
    with reading(file):
        try:
            return file.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None


class CodeChange(msgspec.Struct, frozen=True):
    """A resumed run whose files had changed, which was accepted."""

    round: int  # the last one recorded before; those after the last checkpoint were trained again
    before: dict[str, str]  # hashes of the files by path


class RunMark(msgspec.Struct, frozen=True):
    """What config.json holds beside the settings. The defaults stand for repeats, and for runs from before it."""

    id: str | None = None  # random, made with the run and never changed
    generation: Annotated[int, msgspec.Meta(ge=0)] = 0  # of rounds.jsonl: grows whenever that is cut
    without_effect: tuple[str, ...] = ()  # paths of the settings that do not affect results
    code: dict[str, str] = {}  # SHA-256 of each user's file, and of what it imports from its folder, by path
    code_changes: tuple[CodeChange, ...] = ()
    metrics: tuple[MetricDeclaration, ...] = ()  # what `evaluate.metrics` adds to the recorded fields


class _KnownTarget(msgspec.Struct):
    metric: str
    value: float | None = None


class _KnownSettings(msgspec.Struct):
    """The settings that readers of any run rely on, if they are there; others are data to them."""

    name: str | None = None
    seed: int | None = None
    seeds: list[int] | None = None
    rounds: int | None = None
    algorithm: dict[str, Any] = {}
    target: _KnownTarget | None = None


_MAX_DEPTH = 30


def _is_shallow(value: object, depth: int = 0) -> bool:
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return depth < _MAX_DEPTH and all(_is_shallow(each, depth + 1) for each in inner)
    return True


def read_config(path: Path) -> tuple[dict[str, Any], RunMark]:
    """Return the settings of a run, or of repeats, and the run's mark; what an older format implied is written out."""
    config, format = _read_settings(path)
    marks = {name: config.pop(name) for name in RunMark.__struct_fields__ if name in config}
    file = path / CONFIG
    check_types(file, config, _KnownSettings)
    check_types(file, marks, RunMark)
    if not _is_shallow(config):
        raise RunError(f"{file} is damaged: its tables are nested deeper than {_MAX_DEPTH}; put back a copy of it")
    return upgrade(config, format), msgspec.convert(marks, RunMark)


def check_resumable(path: Path) -> None:
    """Raise a RunError if a run, or repeats, of an older format cannot be resumed as they were made."""
    config, format = _read_settings(path)
    check_meanings(str(path), config, format, name_version(path))


def _read_settings(path: Path) -> tuple[dict[str, Any], int]:
    """Return what config.json holds beside its format, and the format."""
    file = path / CONFIG
    data = read_bytes(file)
    if data is None:
        raise RunError(f"no run at {path}: expected {CONFIG} in it; `fedge list` shows the runs there are")
    config = decode(file, data)
    found = config.pop("format", None)
    if type(found) is not int or found < 1:
        raise RunError(f"{path} is no run of fedge: expected a format number in {CONFIG}, got {found!r}")
    if found > FORMAT:
        raise RunError(
            f"{path} has format {found}, and this fedge reads up to format {FORMAT}; "
            f"use fedge {name_version(path)} or newer"
        )
    return config, found


def encode_config(config: Mapping[str, Any], mark: RunMark | None = None) -> bytes:
    """Return the bytes that `read_config` reads; repeats have no mark."""
    return encode_pretty({**config, "format": FORMAT, **(msgspec.structs.asdict(mark) if mark else {})})


def holds_repeats(path: Path, config: Mapping[str, Any]) -> bool:
    """Whether the directory with this configuration has its runs, one for each seed, below it."""
    return bool(config.get("seeds")) and not (path / ROUNDS).exists()


def seed_path(path: Path, seed: int) -> Path:
    """The run directory of one repeat."""
    return path / f"seed-{seed}"


def read_environment(path: Path) -> dict[str, Any]:
    """Where a run was started, and how it runs; nothing, if that cannot be read: no run hangs on it."""
    try:
        return decode(path / ENVIRONMENT, read_bytes(path / ENVIRONMENT) or b"")
    except (RunError, StorageError):
        return {}


def name_version(path: Path) -> str:
    """Return the version of fedge that wrote a run, or words for it.

    Between releases the number stays the same while formats change: a user is not sent to the version in use.
    """
    version = read_environment(path).get("fedge")
    own = getattr(sys.modules["fedge"], "__version__", None)
    return version if isinstance(version, str) and version != own else "of the version that wrote it"


def _plain(value: object) -> object:
    import numpy as np  # here, since it takes long and few values need it

    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"expected a value that JSON knows, or a numpy scalar; got {type(value).__name__}")


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)
