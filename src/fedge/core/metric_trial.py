"""A trial of each metric on random outputs before a run starts: its sums must add up over samples."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import TypeVar

import torch
from torch import Tensor

from fedge.core.errors import ConfigError, FedgeError, TrainingError
from fedge.core.keys import generator
from fedge.core.metric import WHERE, Metric, is_within
from fedge.core.registered import Task
from fedge.core.schema import show

MAX_NUMBERS = 1 << 20
"""Maximum size of the sums of one metric: 8 MB from each client asked."""
MAX_VECTORS = 32
NUM_SAMPLES = 24
_SLACK = 1e-9  # relative tolerance for rounding
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")

T = TypeVar("T")


def try_out(name: str, metric: Metric, task: Task, num_outputs: int, dtype: torch.dtype) -> dict[str, int]:
    """Return the lengths of a metric's vectors; raises ConfigError, which names the metric, if it cannot be used."""
    _check_declaration(name, metric)
    outputs, targets = _probe(task, num_outputs, dtype)

    def count(part: slice) -> dict[str, Tensor]:
        given = outputs[part].clone(), targets[part].clone()
        found = guarded(name, lambda: metric.count(*given))
        if problem := problem_of_forms(found):
            raise ConfigError(f"{WHERE}: {name}: {problem}")
        if not (torch.equal(given[0], outputs[part]) and torch.equal(given[1], targets[part])):
            raise ConfigError(f"{WHERE}: {name}: count modifies its arguments; work on a copy")
        return found

    try:
        whole = count(slice(None))
        for cut in (1, NUM_SAMPLES // 2):
            _check_parts(name, whole, [count(part) for part in (slice(cut), slice(cut, None))], cut)
        _check_limits(name, metric, whole)
        value = guarded(name, lambda: metric.value(whole))
    except TrainingError as error:
        shapes = f"{list(outputs.shape)} and targets {list(targets.shape)}"
        raise ConfigError(f"{error}; it was tried on random outputs {shapes}") from error
    if isinstance(value, bool) or not isinstance(value, int | float) or not metric.contains(value):
        raise ConfigError(f"{WHERE}: {name}: value returns {show(value)} for random outputs, expected {metric.range}")
    return {key: len(vector) for key, vector in whole.items()}


def guarded(name: str, work: Callable[[], T]) -> T:
    """Call code that a user may have written; raises TrainingError, which names the metric, if it fails."""
    try:
        return work()
    except FedgeError:
        raise
    except Exception as error:  # a user's code may raise anything
        raise TrainingError(f"{WHERE}: {name} failed: {type(error).__name__}: {error}") from error


def problem_of_forms(vectors: object, lengths: Mapping[str, int] | None = None) -> str | None:
    """Return what is wrong with a result of `count`: not named vectors, or not of these lengths; None if valid."""
    if not isinstance(vectors, Mapping) or not vectors:
        return f"count must return a dictionary of named vectors, got {show(vectors)}"
    for name, vector in vectors.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            return f"a vector's name must consist of letters, digits and _, got {show(name)}"
        if not isinstance(vector, Tensor) or vector.dtype != torch.float64 or vector.dim() != 1 or not len(vector):
            got = f"{vector.dtype} of shape {list(vector.shape)}" if isinstance(vector, Tensor) else show(vector)
            return f"count must return one-dimensional tensors of float64; {name!r} is {got}"
    found = {name: len(vector) for name, vector in vectors.items()}
    if lengths is not None and found != lengths:
        return f"count must return the same names and lengths for any samples; got {found}, expected {dict(lengths)}"
    if len(found) > MAX_VECTORS or sum(found.values()) > MAX_NUMBERS:
        return (
            f"expected at most {MAX_VECTORS} vectors with {MAX_NUMBERS:,} numbers in total, got {len(found)} vectors "
            f"with {sum(found.values()):,}"
        )
    return None


def _check_declaration(name: str, metric: Metric) -> None:
    """Raise ConfigError if the metric's declaration is not usable."""
    problem = None
    if metric.better not in ("higher", "lower"):
        problem = f"better must be 'higher' or 'lower', got {show(metric.better)}"
    elif not metric.low < metric.high:
        problem = f"low must be below high, got {show(metric.low)} and {show(metric.high)}"
    elif not metric.per_sample[0] <= metric.per_sample[1]:
        problem = f"per_sample must be (least, most), got {show(metric.per_sample)}"
    if problem:
        raise ConfigError(f"{WHERE}: {name}: {problem}")


def _check_parts(name: str, whole: Mapping[str, Tensor], parts: Sequence[Mapping[str, Tensor]], cut: int) -> None:
    lengths = {key: len(vector) for key, vector in whole.items()}
    for part in parts:
        if problem := problem_of_forms(part, lengths):
            raise ConfigError(f"{WHERE}: {name}: {problem}")
    for key, vector in whole.items():
        together = parts[0][key] + parts[1][key]
        off = (vector - together).abs()
        if not bool((off <= _SLACK * max(1.0, float(vector.abs().max()))).all()):
            place = int(off.nan_to_num(nan=inf).argmax())
            raise ConfigError(
                f"{WHERE}: {name}: its sums must add up over samples, but {key}[{place}] of {NUM_SAMPLES} samples is "
                f"{float(vector[place]):g}, and of the first {cut} plus the others {float(together[place]):g}, a "
                f"difference of {float(off[place]):g}; return sums, not means"
            )


def _check_limits(name: str, metric: Metric, whole: Mapping[str, Tensor]) -> None:
    """Raise ConfigError if a metric violates its own limits: every honest client would be rejected."""
    low, high = (NUM_SAMPLES * limit for limit in metric.limits)
    for key, vector in whole.items():
        least, most = float(vector.min()), float(vector.max())
        if not (is_within(least, low, high) and is_within(most, low, high)):
            raise ConfigError(
                f"{WHERE}: {name}: {key} of {NUM_SAMPLES} samples has numbers from {least:g} to {most:g}, but "
                f"per_sample = {metric.per_sample} allows {low:g} to {high:g}"
            )


def _probe(task: Task, num_outputs: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return random outputs and targets, the same on every call."""
    rng, shape = generator(0, "metrics"), (NUM_SAMPLES, num_outputs)
    outputs = torch.from_numpy(rng.standard_normal(shape)).to(dtype)
    if task == "classes":
        return outputs, torch.from_numpy(rng.integers(0, num_outputs, NUM_SAMPLES))
    targets = rng.integers(0, 2, shape) if task == "labels" else rng.standard_normal(shape)
    return outputs, torch.from_numpy(targets).to(dtype)
