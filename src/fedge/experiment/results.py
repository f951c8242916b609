"""Results of a run so far, and the costs to reach its target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fedge.config import TargetOptions
from fedge.core.fields import COSTS_TO_TARGET, METRICS, NO_OWN_FIELDS, TO_TARGET, OwnFields, describe
from fedge.schedules import Plateau, Seen


class Results:
    """The last and the best value of each metric, and the totals when the target was first reached."""

    def __init__(self, target: TargetOptions | None, own: OwnFields = NO_OWN_FIELDS) -> None:
        """`own` are the fields of the run's own metrics."""
        self._target, self._own = target, own
        self.metrics: dict[str, dict[str, float]] = {"last": {}, "best": {}}
        self._to_target: dict[str, float] | None = None
        self._plateau = Plateau()

    @property
    def ended_by(self) -> str | None:
        """Why the target options end the run now: `target` or `patience`; None if they do not."""
        target = self._target
        if target and target.stop and self._to_target is not None:
            return "target"
        return "patience" if target and target.patience and self._plateau.waited >= target.patience else None

    def note(self, record: Mapping[str, Any], totals: Mapping[str, float]) -> None:
        """Add a round's record; `totals` include it."""
        last, best = self.metrics["last"], self.metrics["best"]
        for name in (*METRICS, *self._own):
            if name in record:
                last[name] = record[name]
                best[name] = min(best.get(name, record[name]), record[name], key=describe(name, self._own).rank)
        self._update(record, totals)

    def review(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Recompute the costs to the target from the records: the target may have changed since they were written."""
        spent = dict.fromkeys(COSTS_TO_TARGET, 0)
        for record in records:
            spent = {name: before + (record.get(name) or 0) for name, before in spent.items()}
            self._update(record, spent)

    def _update(self, record: Mapping[str, Any], totals: Mapping[str, float]) -> None:
        """Check whether a round reached the target, and whether the validation metric still improves."""
        self._plateau = self._plateau.after(seen_of(record))
        if self._to_target is None and self._target and self._target.reached(record, self._own):
            self._to_target = {"rounds": record["round"], **{name: totals[name] for name in COSTS_TO_TARGET}}

    def summary(self) -> dict[str, Any]:
        """Return the fields of a summary that concern metrics."""
        best = {f"best_{name}": value for name, value in self.metrics["best"].items()}
        return {**self.metrics["last"], **best}

    def costs_to_target(self) -> dict[str, float | None]:
        """Return the totals when the target was first reached; None if it was not."""
        reached = self._to_target or {}
        return {name + TO_TARGET: reached.get(name) for name in ("rounds", *COSTS_TO_TARGET)}


def seen_of(record: Mapping[str, Any]) -> Seen:
    """Return the part of a round's record that schedules and patience may use: never the test set."""
    metric = "validation_accuracy" if "validation_accuracy" in record else "validation_loss"
    return Seen(record.get("train_loss"), record.get(metric), higher_is_better=describe(metric).better == "higher")
