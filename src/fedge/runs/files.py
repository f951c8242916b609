"""The files of a run directory, and how they are encoded.

    config.json            the resolved configuration, and a `RunMark`; a directory that has it is a run
    environment.json       where it ran: versions, CPU, threads, commit, start
    names.json             names of classes and clients, if the data has any
    rounds.jsonl           one line per round, written as it happens
    traces.jsonl           on request: measurements inside rounds, written after each
    edge.jsonl             on request: places and timelines of clients, written after each round
    clients.jsonl          at the end: one line per client
    model.safetensors      at the end, and when a run stops between rounds: the trained tensors by name
    summary.json           at the end; a run that has it is complete
    registry.sqlite        networked runs: the clients that joined, and the state of each task
    events.jsonl           networked runs: what happened when; events.jsonl.1 and so on are older
    status.json            networked runs: current status, replaced once a second
    track/                 with [track]: what the tracker has sent, and by default the tool's own files
    lock                   names the process that writes the run; that process holds a lock on this file
    code/                  copies of user files, as they were run
    checkpoint/
      state.safetensors    the last checkpoint
      kept.bin             private state of clients

Repeats over several seeds are a directory with a config.json that has `seeds`, and a run in each of seed-1/,
seed-2/, ...

JSON has neither NaN nor infinity: both are stored as null.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

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

S = TypeVar("S", bound=msgspec.Struct)


def encode(value: object) -> bytes:
    """Return a value as one line of JSON, without a newline."""
    return _ENCODER.encode(value)


def encode_lines(values: Iterable[object]) -> bytes:
    """Return one line of JSON per value, each with a newline."""
    return _ENCODER.encode_lines(values)


def encode_pretty(value: object) -> bytes:
    """Return indented JSON."""
    return msgspec.json.format(encode(value), indent=2) + b"\n"


def decode(file: Path, data: bytes) -> dict[str, Any]:
    """Return the JSON object in the bytes of a file. Raises RunError if they are damaged."""
    try:
        found = msgspec.json.decode(data, type=dict[str, Any])
        place = next(_overflowing(found), None) if has_many_digits(data) else None
    except (ValueError, RecursionError) as error:  # msgspec's errors and UnicodeDecodeError
        raise RunError(f"{file} is damaged: expected a JSON object, but {error}") from None
    if place is not None:
        raise RunError(f"{file} is damaged: {place}: expected a number of at most 300 digits; put back a copy of it")
    return found


_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"0" * 9)


def has_many_digits(data: bytes) -> bool:
    """Return whether JSON may contain an integer larger than any float. A regular expression takes 20 times as long."""
    return b"0" * 300 in data.translate(_DIGITS_TO_ZERO)


def _overflowing(value: object, place: str = "") -> Iterator[str]:
    """Yield the paths of integers larger than any float."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _overflowing(inner, f"{place}.{key}".removeprefix("."))
    elif isinstance(value, int) and abs(value) >= 10**300:
        yield place


def check_types(file: Path, found: object, kind: type[msgspec.Struct]) -> None:
    """Raise a RunError that names file and field if a decoded object does not match a struct's types."""
    try:
        msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        raise RunError(f"{file} is damaged: {_located(error)}; put back a copy of it") from None


def _located(error: msgspec.ValidationError) -> str:
    """Return an error such as `algorithm: expected object, got int`."""
    reason, _, path = str(error).replace("`", "").partition(" - at ")
    path = path.replace("$.", "").replace("$", "")
    return f"{path}: {reason[:1].lower()}{reason[1:]}".removeprefix(": ")


def read_bytes(file: Path) -> bytes | None:
    """Return a file's content; None if there is no such file."""
    with reading(file):
        try:
            return file.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None


def whole_lines(data: bytes) -> bytes:
    """Return the complete lines; the rest is a line being written."""
    return data[: data.rfind(b"\n") + 1]


def read_struct(file: Path, kind: type[S], remedy: str) -> S | None:
    """Return the struct in a small file of the run; None if there is no file. RunError ends with the remedy."""
    data = read_bytes(file)
    try:
        return None if data is None else msgspec.json.decode(data, type=kind)
    except (ValueError, RecursionError) as error:  # msgspec's errors and UnicodeDecodeError
        raise RunError(f"{file} is damaged: {error}; {remedy}") from None


class CodeChange(msgspec.Struct, frozen=True):
    """An accepted change of user files when a run was resumed."""

    round: int  # the last recorded round; those after the last checkpoint were trained again
    before: dict[str, str]  # hashes of the files by path


class RunMark(msgspec.Struct, frozen=True):
    """What config.json holds in addition to settings. The defaults are for repeats and older runs."""

    id: str | None = None  # random, made with the run and never changed
    generation: Annotated[int, msgspec.Meta(ge=0)] = 0  # of rounds.jsonl: incremented whenever it is truncated
    without_effect: tuple[str, ...] = ()  # paths of the settings that do not affect results
    code: dict[str, str] = {}  # SHA-256 of each user file, and of the modules it imports from its folder, by path
    code_changes: tuple[CodeChange, ...] = ()
    metrics: tuple[MetricDeclaration, ...] = ()  # recorded fields added by `evaluate.metrics`


class _KnownTarget(msgspec.Struct):
    metric: str
    value: float | None = None


class _KnownSettings(msgspec.Struct):
    """The settings, if present, that all readers of runs rely on; they treat the others as opaque data."""

    name: str | None = None
    seed: int | None = None
    seeds: list[int] | None = None
    rounds: int | None = None
    algorithm: dict[str, Any] = {}
    target: _KnownTarget | None = None


_MAX_DEPTH = 30


def _is_shallow(config: dict[str, Any]) -> bool:
    nested: list[Any] = [config]
    for _ in range(_MAX_DEPTH):
        inner = [each for outer in nested for each in (outer.values() if isinstance(outer, dict) else outer)]
        nested = [each for each in inner if isinstance(each, dict | list)]
        if not nested:
            return True
    return False


def read_config(path: Path) -> tuple[dict[str, Any], RunMark]:
    """Return the settings of a run or of repeats, and its mark. Values that an older format implied are filled in.

    Raises RunError if config.json is missing, damaged or of a newer format.
    """
    config, format = _read_settings(path)
    marks = {name: config.pop(name) for name in RunMark.__struct_fields__ if name in config}
    file = path / CONFIG
    check_types(file, config, _KnownSettings)
    check_types(file, marks, RunMark)
    if not _is_shallow(config):
        raise RunError(f"{file} is damaged: its tables are nested deeper than {_MAX_DEPTH}; put back a copy of it")
    return upgrade(config, format), msgspec.convert(marks, RunMark)


def check_resumable(path: Path) -> None:
    """Raise a RunError if a run or repeats of an older format cannot be resumed with their original meaning."""
    config, format = _read_settings(path)
    check_meanings(str(path), config, format, name_version(path))


def _read_settings(path: Path) -> tuple[dict[str, Any], int]:
    """Return the contents of config.json without its format, and the format."""
    file = path / CONFIG
    data = read_bytes(file)
    if data is None:
        raise RunError(f"no run at {path}: expected {CONFIG} in it; `fedge list` shows all runs")
    config = decode(file, data)
    found = config.pop("format", None)
    if type(found) is not int or found < 1:
        raise RunError(f"{path} is not a run of fedge: expected a format number in {CONFIG}, got {found!r}")
    if found > FORMAT:
        raise RunError(
            f"{path} has format {found}, and this fedge reads up to format {FORMAT}; "
            f"use fedge {name_version(path)} or newer"
        )
    return config, found


def encode_config(config: Mapping[str, Any], mark: RunMark | None = None) -> bytes:
    """Return the bytes of config.json for `read_config`; repeats have no mark."""
    return encode_pretty({**config, "format": FORMAT, **(msgspec.structs.asdict(mark) if mark else {})})


def holds_repeats(path: Path, config: Mapping[str, Any]) -> bool:
    """Return whether the directory with this configuration holds one run per seed in subdirectories."""
    return bool(config.get("seeds")) and not (path / ROUNDS).exists()


def seed_path(path: Path, seed: int) -> Path:
    """Return the run directory of one repeat."""
    return path / f"seed-{seed}"


def read_environment(path: Path) -> dict[str, Any]:
    """Return a run's environment; empty if it cannot be read, since no result depends on it."""
    try:
        return decode(path / ENVIRONMENT, read_bytes(path / ENVIRONMENT) or b"")
    except (RunError, StorageError):
        return {}


def name_version(path: Path) -> str:
    """Return the version of fedge that wrote a run, or a phrase for it.

    Between releases the version stays the same while formats change, so the version in use is never named.
    """
    version = read_environment(path).get("fedge")
    own = getattr(sys.modules["fedge"], "__version__", None)
    return version if isinstance(version, str) and version != own else "of the version that wrote it"


def _plain(value: object) -> object:
    import numpy as np  # imported here because it is slow and rarely needed

    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"expected a JSON value or a numpy scalar, got {type(value).__name__}")


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)
