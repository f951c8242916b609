"""Check that a checkpoint belongs to a run: its entries have the names, types and shapes that the run needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from fedge.core.errors import RunError
from fedge.core.layout import Tree

_Count = Annotated[int, Meta(ge=0)]
_LEDGER = {"ledger.ids", "ledger.accounts", "ledger.joules", "users.ids", "users.accuracy"}


class CheckpointMeta(msgspec.Struct):
    """The plain values of a run's checkpoint."""

    round: _Count
    totals: dict[str, float]
    metrics: dict[str, dict[str, float | None]]
    seconds: Annotated[float, Meta(ge=0)]
    void_rounds: _Count
    num_clients: _Count = 0
    schedule: dict[str, dict[str, Any]] = {}


def check_checkpoint(
    file: Path, tensors: Tree, meta: Mapping[str, Any], fresh: Tree, totals: Mapping[str, Any]
) -> None:
    """Raise a RunError that names file and field unless the run, whose initial state is `fresh`, can use it."""
    try:
        found = msgspec.convert(meta, CheckpointMeta)
    except msgspec.ValidationError as error:
        raise _foreign(file, str(error).replace("`", "").replace("$.", "meta.")) from None
    if found.totals.keys() != totals.keys():
        raise _foreign(file, f"meta.totals: expected {', '.join(totals)}, got {', '.join(found.totals)}")
    if found.metrics.keys() != {"last", "best"}:
        raise _foreign(file, f"meta.metrics: expected last and best, got {', '.join(found.metrics)}")
    for name in [*fresh, *_LEDGER]:
        if name not in tensors:
            raise _foreign(file, f"{name} is missing")
    for name, value in tensors.items():
        expected = fresh.get(_of_base(name))
        if (
            expected is None and name not in _LEDGER and not name.startswith("server.")
        ):  # the server's state may gain entries
            raise _foreign(file, f"{name} is unknown")
        if expected is not None and (value.dtype != expected.dtype or not _fits(value.shape, expected.shape)):
            raise _foreign(
                file,
                f"{name}: expected {expected.dtype} of shape {list(expected.shape)}, "
                f"got {value.dtype} of shape {list(value.shape)}",
            )
    for ids, *others in (("ledger.ids", "ledger.accounts", "ledger.joules"), ("users.ids", "users.accuracy")):
        for name in others:
            if tensors[ids].ndim != 1 or tensors[name].shape[:1] != tensors[ids].shape:
                raise _foreign(file, f"{name}: expected one row per entry of {ids}")


def _of_base(name: str) -> str:
    """Return the name of the same entry in the base state; a cell's state has the same entries."""
    server, _, rest = name.partition(".")
    cell, _, entry = rest.partition(".")
    return f"{server}.base.{entry}" if server == "server" and cell.isdecimal() else name


def _fits(found: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    """Return whether shapes match; one row may have grown to a row per client."""
    return found == expected or (expected[:1] == (1,) and found[1:] == expected[1:])


def _foreign(file: Path, reason: str) -> RunError:
    return RunError(
        f"{file} is not a checkpoint of this run: {reason}; "
        "put back a copy of the run directory, or start the run again"
    )
