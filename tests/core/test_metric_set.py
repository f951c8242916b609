"""Trials of metrics before a run, and checks of the sums that clients send."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, nan
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from fedge.core.errors import ConfigError, TrainingError
from fedge.core.metric import Metric, snake_case
from fedge.core.metric_set import MetricSet
from fedge.metrics.included import F1, Perplexity, Rmse, TopK

Count = Callable[[Tensor, Tensor], Any]
Value = Callable[[Mapping[str, Tensor]], Any]


def size(outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    return {"n": torch.tensor([float(len(targets))], dtype=torch.float64)}


def written(count: Count = size, value: Value = lambda sums: 0.5, **declared: Any) -> Metric:
    """A metric as a user may write it."""

    class Own(Metric):
        low: ClassVar[float] = declared.get("low", 0.0)
        high: ClassVar[float] = declared.get("high", 1.0)
        better: ClassVar[Any] = declared.get("better", "higher")
        per_sample: ClassVar[tuple[float, float]] = declared.get("per_sample", (-inf, inf))

        def count(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
            return count(outputs, targets)  # type: ignore[no-any-return]

        def value(self, sums: Mapping[str, Tensor]) -> float:
            return value(sums)  # type: ignore[no-any-return]

    return Own()


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def fail(*args: Any) -> Any:
    raise RuntimeError("oh no")


def change(outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    outputs += 1
    return size(outputs, targets)


WRONG: dict[str, tuple[Metric, str]] = {
    "mean": (
        written(lambda outputs, targets: {"mean": double(float(outputs.double().mean()))}),
        r"its sums must add up over samples, but mean\[0\] of 24 samples is .*, a difference of .*; return sums, not",
    ),
    "maximum": (written(lambda outputs, targets: {"most": outputs.double().amax(0)}), r"its sums must add up"),
    "float32": (written(lambda outputs, targets: {"n": torch.ones(1)}), r"'n' is torch\.float32 of shape \[1\]"),
    "matrix": (written(lambda outputs, targets: {"n": torch.ones(1, 2).double()}), r"'n' is torch\.float64 of shape"),
    "number": (written(lambda outputs, targets: {"n": 1.0}), r"'n' is 1\.0"),
    "nothing": (written(lambda outputs, targets: None), r"count must return a dictionary of named vectors, got None"),
    "a vector": (written(lambda outputs, targets: double(1)), r"count must return a dictionary of named vectors"),
    "name": (written(lambda outputs, targets: {"a.b": double(1)}), r"a vector's name must consist of .*, got 'a\.b'"),
    "length": (
        written(lambda outputs, targets: {"all": outputs.double().flatten()}),
        r"count must return the same names and lengths for any samples; got \{'all': 3\}, expected \{'all': 72\}",
    ),
    "size": (written(lambda outputs, targets: {"n": torch.zeros(1 << 21).double()}), r"expected at most 32 vectors"),
    "changes": (written(change), r"count modifies its arguments"),
    "fails": (written(fail), r"failed: RuntimeError: oh no; it was tried on random outputs \[24, 3\] and targets"),
    "value fails": (written(value=fail), r"failed: RuntimeError: oh no"),
    "value beyond": (written(value=lambda sums: 1.5), r"value returns 1\.5 .*, expected a number from 0 to 1"),
    "nan": (written(value=lambda sums: nan), r"value returns nan for random outputs"),
    "text": (written(value=lambda sums: "high"), r"value returns 'high' for random outputs"),
    "direction": (written(better="up"), r"better must be 'higher' or 'lower', got 'up'"),
    "range": (written(low=1.0, high=0.0), r"low must be below high, got 1\.0 and 0\.0"),
    "limits": (written(per_sample=(0.0, 0.5)), r"n of 24 samples has numbers from 24 to 24, but per_sample"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_metric_that_cannot_be_used_is_named(name: str) -> None:
    metric, message = WRONG[name]
    with pytest.raises(ConfigError, match=rf"^evaluate\.metrics: mine.*{message}"):
        MetricSet({"mine": metric}, "classes", 3)


@pytest.mark.parametrize(
    ("metric", "task"), [(Rmse(), "classes"), (F1(), "values"), (Perplexity(), "labels"), (TopK(k=2), "values")]
)
def test_a_metric_for_another_task_is_rejected(metric: Metric, task: Any) -> None:
    with pytest.raises(
        ConfigError, match=rf"^evaluate\.metrics: {metric.recorded_as} is a metric for .* data is {task};"
    ):
        MetricSet({metric.recorded_as: metric}, task, 4)


SHARES = {"mine": written(size, lambda sums: float(sums["n"][0]) / 100, per_sample=(0.0, 1.0))}


def test_values_of_sums() -> None:
    metrics = MetricSet(SHARES)
    assert metrics.lengths == {"mine.n": 1}
    assert metrics.values({"mine.n": double(50)}) == {"mine": 0.5}
    assert metrics.values({"mine.n": double(100 * (1 + 1e-12))}) == {"mine": 1.0}  # up to rounding
    assert metrics.values(metrics.undefined()) == {}  # for outputs that are not finite
    with pytest.raises(TrainingError, match=r"^evaluate\.metrics: mine is 2, expected a number from 0 to 1$"):
        metrics.values({"mine.n": double(200)})


@pytest.mark.parametrize(
    ("claimed", "problem"),
    [
        (double(5), None),
        (double(0), None),
        (double(5, 1), "its sum 'mine.n' has 2 numbers, expected 1"),
        (double(nan), "its sum 'mine.n' is not finite"),
        (double(inf), "its sum 'mine.n' is not finite"),
        (double(-1), "its sum 'mine.n' is impossible: it has numbers from -1 to -1, expected 0 to 5"),
        (double(6), "its sum 'mine.n' is impossible: it has numbers from 6 to 6, expected 0 to 5"),
    ],
)
def test_claims_of_a_client_are_checked(claimed: Tensor, problem: str | None) -> None:
    assert MetricSet(SHARES).problem({"mine.n": claimed}, 5.0) == problem


def test_sums_that_contradict_each_other_are_rejected() -> None:
    metrics = MetricSet({"f1": F1()}, "classes", 2)
    sums = {"f1.hits": double(2, 2), "f1.predicted": double(1, 1), "f1.true": double(1, 1)}
    assert metrics.problem(sums, 2.0) == "its sums are impossible: they give f1 = 2, expected a number from 0 to 1"


def test_declarations_are_plain() -> None:
    (declared,) = MetricSet({"perplexity": Perplexity()}, "classes", 4).declarations
    assert (declared.name, declared.better, declared.low, declared.high) == ("perplexity", "lower", 1.0, None)
    fields = MetricSet({"top2": TopK(k=2)}, "classes", 4).fields
    assert [(name, field.write(0.5)) for name, field in fields.items()] == [
        ("top2", "50.00%"),
        ("validation_top2", "50.00%"),
    ]


@pytest.mark.parametrize(
    ("name", "snake"), [("BalancedAccuracy", "balanced_accuracy"), ("AUC", "auc"), ("MyF1", "my_f1"), ("mine", "mine"),
                        ("ROCAuc", "roc_auc")],
)  # fmt: skip
def test_class_names_become_snake_case(name: str, snake: str) -> None:
    assert snake_case(name) == snake
