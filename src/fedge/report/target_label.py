"""The position of a target's label: at an end of its rule where no curve crosses it."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import NamedTuple

import numpy as np

from fedge.report.series import Series
from fedge.report.style import HEIGHT
from fedge.report.text_width import text_width

SIZE = 9
"""Font size of the label in pixels."""
_CLEAR = 4  # sufficient distance in pixels between label and curve
_SAMPLES = 60  # points of a label at which its distance to a curve is measured


class LabelPlace(NamedTuple):
    """An end of the rule, and a side of it."""

    right: bool
    below: bool


def place_label(lines: Sequence[Series], target: float, text: str, width: float, logs: tuple[bool, bool]) -> LabelPlace:
    """Return the first place without a mean curve nearby, otherwise the one farthest from all curves.

    `width` is that of the chart without its axis, in pixels; `logs` states whether x and y are logarithmic.
    """
    places = [LabelPlace(right, below) for right in (False, True) for below in (False, True)]
    gaps = [_gap(lines, target, text_width(text, SIZE) / width, place, logs) for place in places]
    clear = (place for place, gap in zip(places, gaps, strict=True) if gap >= _CLEAR)
    return next(clear, places[gaps.index(max(gaps))])


def _gap(lines: Sequence[Series], target: float, part: float, place: LabelPlace, logs: tuple[bool, bool]) -> float:
    """Return the distance in pixels from a label, `part` of the width long, to the nearest curve."""
    log_x, log_y = logs
    first = min(float(line.x[0]) for line in lines) if log_x else 0.0
    last = max(float(line.x[-1]) for line in lines)
    shares = np.linspace(1 - part, 1, _SAMPLES) if place.right else np.linspace(0, part, _SAMPLES)
    at = first * (last / first) ** shares if log_x else last * shares
    lowest = min(target, *(float((line.mean if log_y else line.low).min()) for line in lines))
    highest = max(target, *(float(line.high.max()) for line in lines))
    span = log(highest / lowest) if log_y else highest - lowest
    found = float(HEIGHT)
    for line in lines:
        covered = at[(at >= line.x[0]) & (at <= line.x[-1])]
        means = np.interp(covered, line.x, line.mean)
        above = (np.log(means / target) if log_y else means - target) * HEIGHT / (span or 1.0)
        above = -above if place.below else above
        outside = np.maximum(-above, above - SIZE)  # distance to the band of the label, negative inside
        found = min(found, float(outside.min(initial=found)))
    return found
