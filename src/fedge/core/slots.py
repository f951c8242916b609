"""Slots: declarations of the named vectors of an algorithm."""

from __future__ import annotations

from typing import Literal, NamedTuple

from fedge.core.layout import Kind


class Slot(NamedTuple):
    """The declaration of one named vector, which reducers, codecs, clipping and merges read."""

    kind: Kind
    anchor: str | None = None  # the key in `down` relative to which changes are computed
    weight: Literal["samples", "uniform"] = "samples"
    merge: Literal["mean", "max", "sum"] = "mean"
    moment: bool = False  # an optimiser statistic of the parameters
    speaks: bool = False  # a client that uploads 0 stayed silent: neither request nor answer is charged
    whole: bool = False  # a whole model without an anchor: dropping small values would destroy it
