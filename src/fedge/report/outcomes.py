"""What a whole run came to, as one number, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median

from fedge.core.errors import ConfigError
from fedge.core.schema import nearest
from fedge.report.groups import RunView, has
from fedge.report.quantities import BYTES, COSTS, NUMBER, SECONDS, Quantity, metric

_SUFFIX = "_to_target"
_OF_ROUNDS: dict[str, Callable[[Sequence[float]], float]] = {"mean_": fmean, "median_": median}
_LOWER = ("loss", "bytes", "steps", "flops", "seconds", "energy", "rounds", "divergence", "distance", "gap")


def outcome(run: RunView, field: str) -> float | None:
    """A field of the summary, `bytes_to_target` (up and down), or the mean_ or median_ over rounds of a record's field.

    None: not measured, the target not reached, or the run not finished.
    """
    if run.summary is None:
        return None
    if field == "bytes_to_target":
        up, down = (run.summary.get(f"bytes_{way}_to_target") for way in ("up", "down"))
        return None if up is None or down is None else float(up + down)
    for prefix, average in _OF_ROUNDS.items():
        if field.startswith(prefix):
            name = field.removeprefix(prefix)
            values = [record[name] for record in run.rounds if has(record, name)]
            return float(average(values)) if values else None
    value = run.summary.get(field)
    return float(value) if isinstance(value, int | float) else None


def check_outcome(runs: Sequence[RunView], field: str) -> None:
    """A ConfigError that names the nearest if no run can have this outcome."""
    if is_to_target(field) and field in _known(runs):
        return  # known, and perhaps reached by no run: that is a result too
    if all(outcome(run, field) is None for run in runs):
        known = sorted(_known(runs))
        raise ConfigError(f"no finished run has {field!r}{nearest(field, known)}; there are: {', '.join(known)}")


def describe(field: str) -> Quantity:
    """How an outcome is called and read."""
    name = field.removesuffix(_SUFFIX)
    found = _quantity(name)
    return Quantity(f"{found.title} to target", found.units) if is_to_target(field) else found


def is_to_target(field: str) -> bool:
    return field.endswith(_SUFFIX)


def lower_is_better(field: str) -> bool:
    """Costs, losses and spreads; of an accuracy, more is better."""
    return field.endswith("_std") or ("accuracy" not in field and any(word in field for word in _LOWER))


def _quantity(name: str) -> Quantity:
    for prefix in _OF_ROUNDS:
        if name.startswith(prefix):
            inner = _quantity(name.removeprefix(prefix))
            return Quantity(f"{prefix[:-1]} {inner.title} of a round", inner.units)
    if name == "bytes":
        return Quantity("upload + download", BYTES)
    if name == "seconds":
        return Quantity("real time", SECONDS)
    if name == "rounds":
        return Quantity("rounds", NUMBER)
    return COSTS.get(name) or metric(name)


def _known(runs: Iterable[RunView]) -> set[str]:
    found = {name for run in runs for name, value in (run.summary or {}).items() if not isinstance(value, str)}
    return found | ({"bytes_to_target"} if "bytes_up_to_target" in found else set())
