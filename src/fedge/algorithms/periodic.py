"""Periodic averaging: all train on their own, and are averaged every so many rounds."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from fedge.algorithms.averaging import AveragingOptions, Talk, federate, meet
from fedge.core.algorithm import Algorithm, Exchange, Info
from fedge.core.layout import Layout, Tree


class Periodic(AveragingOptions, tag="periodic"):
    """Periodic averaging, FederatedAveraging(rho) of Reddy 2020: one pass a round, rho rounds from mean to mean."""

    period: Annotated[int, Meta(ge=1, description="rho: rounds of training from one average to the next")] = 10

    def build(self, layout: Layout) -> Algorithm:
        def round(state: Tree, info: Info) -> Talk:
            reply = yield Exchange("train", {}, info.cohort)
            if info.round % self.period:
                return state
            state, _ = yield from meet(state, reply.ids)
            return state

        return federate(self, round, works={}, slots={})
