"""Matching of a client's classes and columns with the server's, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from re import fullmatch
from typing import NamedTuple

import torch
from torch import Tensor

from fedge.core.errors import DataError
from fedge.core.printable import printable
from fedge.core.registered import Task
from fedge.data.clients import Samples
from fedge.data.data_plan import DataPlan

_MOST = 12  # names listed in an error


class DataForm(NamedTuple):
    """Shape, task and names of some data."""

    shape: tuple[int, ...]
    num_outputs: int
    task: Task
    classes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


class Fitting(NamedTuple):
    """How samples are rearranged for the server; None where no change is needed."""

    columns: Tensor | None  # for each of the server's columns the index of the client's column
    classes: Tensor | None  # the server's index of each class; for labels, the client's index of each label
    task: Task

    def __call__(self, samples: Samples) -> Samples:
        x, y = samples
        if self.columns is not None:
            x = x.index_select(1, self.columns)
        if self.classes is not None:
            y = self.classes[y] if self.task == "classes" else y.index_select(1, self.classes)
        return Samples(x, y)


def fit(form: DataForm, plan: DataPlan, whose: str) -> Fitting:
    """Return how to rearrange a client's data for the server; a DataError that lists names if they do not match.

    A client may lack some classes, but no columns.
    """
    if form.task != plan.task:
        raise DataError(f"{whose}: the server predicts {plan.task}, but the targets here are {form.task}")
    columns = _match_columns(form, plan, whose)
    if form.shape != plan.shape:
        raise DataError(f"{whose}: expected inputs of shape {list(plan.shape)}, got {list(form.shape)}")
    if plan.task == "classes":
        classes = _match_classes(form, plan, whose)
    elif plan.classes or form.classes:
        classes = order_of(plan.classes, form.classes, f"{whose}: targets")
    else:
        classes = None
        if form.num_outputs != plan.num_outputs:
            raise DataError(f"{whose}: expected {plan.num_outputs} targets per sample, got {form.num_outputs}")
    return Fitting(columns, classes, plan.task)


def _match_columns(form: DataForm, plan: DataPlan, whose: str) -> Tensor | None:
    if not plan.columns and not form.columns:
        return None
    if not plan.columns:
        raise DataError(
            f"{whose}: the columns have names, but the server has none, so their order cannot be checked; "
            "set data.columns on the server"
        )
    if not form.columns:
        raise DataError(
            f"{whose}: the server matches columns by name ({_few(plan.columns)}), but this data has no names; "
            "give them as `columns`"
        )
    return order_of(plan.columns, form.columns, f"{whose}: columns")


def order_of(wanted: Sequence[str], found: Sequence[str], what: str) -> Tensor | None:
    """Return the index of each wanted name among those found; None if the order is the same."""
    _check_distinct(found, what)
    places = {name: place for place, name in enumerate(found)}
    if missing := [name for name in wanted if name not in places]:
        raise DataError(f"{what}: missing {_few(missing)}; expected {_few(wanted)}, got {_few(found)}")
    if unknown := sorted(set(found) - set(wanted)):
        raise DataError(f"{what}: unknown {_few(unknown)}; expected {_few(wanted)}; remove the others")
    return None if tuple(wanted) == tuple(found) else torch.tensor([places[name] for name in wanted])


def _match_classes(form: DataForm, plan: DataPlan, whose: str) -> Tensor | None:
    """Return the server's index for each of the client's classes; classes without names are matched by index."""
    if not plan.classes and not form.classes:
        if form.num_outputs > plan.num_outputs:
            raise DataError(
                f"{whose}: expected classes from 0 to {plan.num_outputs - 1}, got class {form.num_outputs - 1}"
            )
        return None
    found = form.classes or tuple(map(str, range(min(form.num_outputs, plan.num_outputs + 1))))
    _check_distinct(found, f"{whose}: classes")
    named = {name: number for number, name in enumerate(plan.classes)}
    numbers = [named.get(name) if named else _number(name, plan.num_outputs) for name in found]
    if unknown := [name for name, number in zip(found, numbers, strict=True) if number is None]:
        expected = _few(plan.classes) or f"0 to {plan.num_outputs - 1}, since the server sets no data.classes"
        raise DataError(f"{whose}: unknown classes {_few(unknown)}; expected {expected}")
    return None if numbers == list(range(len(numbers))) else torch.tensor(numbers)


def _number(name: str, num_outputs: int) -> int | None:
    return int(name) if fullmatch("0|[1-9][0-9]{0,8}", name) and int(name) < num_outputs else None


def _check_distinct(names: Sequence[str], what: str) -> None:
    if twice := [name for name, count in Counter(names).items() if count > 1][:1]:
        raise DataError(f"{what}: names must be unique, got {_few(twice)} twice")


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(repr(printable(name[:60])) for name in names[:_MOST])
    return f"{shown} and {len(names) - _MOST} more" if len(names) > _MOST else shown
