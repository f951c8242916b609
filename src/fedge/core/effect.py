"""Which settings affect a run's results: declared by each option, read by resume, grouping and digests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from fedge.core.schema import fields_of

NO_EFFECT: Final = {"affects_results": False}
"""The `extra` of an option's outermost `Meta`: results are the same, bit for bit, whatever its value.

Every other option counts as affecting results. A declaration inside a list of tables is not read.
"""


def paths_without_effect(options: Struct, prefix: str = "") -> list[str]:
    """Return the paths, such as `engine.workers`, of the options that declare `NO_EFFECT`."""
    found = []
    for field in fields_of(type(options)):
        path, value = f"{prefix}{field.encode_name}", getattr(options, field.name)
        if not _affects_results(field.type):
            found.append(path)
        elif isinstance(value, Struct):
            found += paths_without_effect(value, f"{path}.")
    return found


def settings(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all settings with their paths, such as `algorithm.learning_rate`."""
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def omit(settings: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """Return the settings without those at the given paths; paths that do not exist are ignored."""
    left = dict(settings)
    for path in paths:
        key, _, rest = path.partition(".")
        if not rest:
            left.pop(key, None)
        elif isinstance(inner := left.get(key), Mapping):
            left[key] = omit(inner, [rest])
    return left


def digest(settings: Mapping[str, Any]) -> str:
    """Return the SHA-256, in hex, of plain settings; the order of their keys does not matter."""
    return sha256(msgspec.json.encode(settings, order="deterministic")).hexdigest()


def _affects_results(kind: object) -> bool:
    notes = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
    extras = (note.extra or {} for note in notes if isinstance(note, Meta))
    return not any(NO_EFFECT.items() <= extra.items() for extra in extras)
