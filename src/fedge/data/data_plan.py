"""What a server tells its clients about their data. It is sent to other machines, so it contains no paths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from fedge.core.anchor import PATHS, map_texts
from fedge.core.effect import digest, omit, paths_without_effect
from fedge.core.errors import DataError
from fedge.core.parts import short_name
from fedge.core.printable import printable
from fedge.core.registered import Task
from fedge.core.schema import show
from fedge.data.normalise import Scaling

Size = Annotated[int, Meta(ge=0, lt=1 << 53)]
Shape = Annotated[tuple[Annotated[int, Meta(ge=1)], ...], Meta(min_length=1, max_length=8)]
Outputs = Annotated[int, Meta(ge=1, le=10_000_000)]
Share = Annotated[float, Meta(ge=0, lt=1)]
_MAX_INPUT = 1 << 27


class DataPlan(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The server's requirements for data.

    Clients with parts of the server's data set compare `settings`; clients with their own data match the other fields.
    """

    shape: Shape
    num_outputs: Outputs
    task: Task
    seed: Size  # of the partition and the validation split
    settings: dict[str, Any] | None = None  # of the data set that is divided over clients; None: each has its own data
    words: bool = False  # inputs are integers
    classes: tuple[str, ...] = ()  # names, in the order of the model's outputs; () if matched by index
    columns: tuple[str, ...] = ()  # names of inputs, in the model's order; () if matched by position
    target: str | None = None  # the column to predict
    test_fraction: Share = 0.0  # share of a client's samples for its test set, if it has none
    validation: Share | None = None
    scaling: Scaling | None = None  # normalisation of inputs
    sums: bool = False  # the scaling is computed from the clients' sums before round 1

    def __post_init__(self) -> None:
        check_shape(self.shape)


def check_shape(shape: Iterable[int]) -> None:
    """Raise a ValueError if an input would be too large for a client, since the server may be malicious."""
    if prod(shape) > _MAX_INPUT:
        raise ValueError(f"shape: expected at most {_MAX_INPUT} numbers in an input, got {list(shape)}")


def travelling_settings(options: Struct) -> dict[str, Any]:
    """Return the settings of a data set that determine the clients' data, without paths, which differ by machine."""
    plain = omit(msgspec.to_builtins(options), paths_without_effect(options))
    found = {key: value for key, value in plain.items() if key not in PATHS}
    found = dict(map_texts(found, lambda text, key: short_name(text)))
    if found.get("options"):  # of a user's function: their content is private
        found["options"] = digest(found["options"])
    return found


def check_settings(server: Mapping[str, Any], own: Mapping[str, Any], whose: str) -> None:
    """Raise a DataError that names the first setting in which a client's data set differs from the server's."""
    try:
        theirs, ours = _flat(server, "data"), _flat(own, "data")
    except RecursionError:
        raise DataError(f"{whose}: its data settings or the server's are nested too deeply") from None
    for path in sorted(theirs.keys() | ours.keys(), key=lambda path: (path != "data.name", path)):
        if theirs.get(path) != ours.get(path):
            raise DataError(
                printable(
                    f"{path}: the server has {show(theirs.get(path))}, {whose} has {show(ours.get(path))}; "
                    "both must divide the same data set in the same way"
                )
            )


def _flat(settings: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in settings.items():
        path = f"{prefix}.{key}"
        found |= _flat(value, path) if isinstance(value, Mapping) else {path: value}
    return found
