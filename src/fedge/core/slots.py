"""Declarations of the named vectors of an algorithm."""

from __future__ import annotations

from typing import Literal, NamedTuple

from fedge.core.layout import Kind


class Slot(NamedTuple):
    """The declaration of one named vector, which reducers, codecs, clipping and merges read."""

    kind: Kind
    anchor: str | None = None  # the key in `down` that it is a change of
    weight: Literal["samples", "uniform"] = "samples"
    merge: Literal["mean", "max", "sum"] = "mean"
    moment: bool = False  # an optimiser's statistic of the parameters
    speaks: bool = False  # a client that uploads 0 has stayed silent: neither request nor answer is charged
    whole: bool = False  # a model, though it has no anchor: zeros in place of small values would destroy it
