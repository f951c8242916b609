"""When a target ends a run, and what schedules may use."""

from typing import Any

from fedge.config import TargetOptions
from fedge.core.fields import COSTS_TO_TARGET
from fedge.experiment.results import Results, seen_of
from fedge.schedules import Seen

FREE = dict.fromkeys(COSTS_TO_TARGET, 0)


def ends(values: list[dict[str, Any]], **target: Any) -> list[str | None]:
    """Return what ends the run after each of these rounds."""
    results, found = Results(TargetOptions(**target)), []
    for number, value in enumerate(values, start=1):
        results.note({"round": number, **FREE, **value}, FREE)
        found.append(results.ended_by)
    return found


def test_patience_counts_evaluations_without_improvement() -> None:
    accuracies = [0.5, 0.5, 0.6, 0.55, None, 0.6, 0.4]
    rounds = [
        {"accuracy": 0.1 * i} | ({} if v is None else {"validation_accuracy": v}) for i, v in enumerate(accuracies)
    ]
    # a tie is not an improvement; round 5 is not evaluated: after 0.6 in round 3, the third evaluation is round 7
    assert ends(rounds, patience=3) == [None] * 6 + ["patience"]
    assert ends(rounds, patience=2) == [None] * 5 + ["patience"] * 2
    assert ends(rounds, patience=4) == [None] * 7


def test_without_an_accuracy_the_loss_counts() -> None:
    losses = [{"loss": -float(i), "validation_loss": v} for i, v in enumerate([2.0, 1.0, 1.5, 1.0])]
    assert ends(losses, patience=2) == [None, None, None, "patience"]


def test_a_target_may_have_both() -> None:
    rounds = [{"accuracy": a, "validation_accuracy": 0.5} for a in (0.1, 0.9, 0.9)]
    assert ends(rounds, value=0.9, stop=True, patience=1) == [None, "target", "target"]
    assert ends(rounds, value=0.9, patience=1) == [None, "patience", "patience"]


def test_patience_is_restored_from_the_records() -> None:
    results = Results(TargetOptions(patience=2))
    results.review({"round": i, **FREE, "validation_accuracy": 0.5} for i in (1, 2))
    assert results.ended_by is None
    results.note({"round": 3, **FREE, "validation_accuracy": 0.5}, FREE)
    assert results.ended_by == "patience"


def test_schedules_see_the_validation_split_and_never_the_test_set() -> None:
    assert seen_of({"accuracy": 0.9, "loss": 0.1, "train_loss": 2.0}) == Seen(2.0, None, higher_is_better=False)
    record = {"accuracy": 0.9, "loss": 0.1, "validation_accuracy": 0.4, "validation_loss": 1.5}
    assert seen_of(record) == Seen(None, 0.4, higher_is_better=True)
    assert seen_of({"loss": 0.1, "validation_loss": 1.5}) == Seen(None, 1.5, higher_is_better=False)
