"""Periodic averaging: clients train on their own and are averaged every `period` rounds."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from fedge.algorithms.averaging import AveragingOptions, Talk, federate, meet
from fedge.core.algorithm import Algorithm, Exchange, Info
from fedge.core.layout import Layout, Tree


class Periodic(AveragingOptions, tag="periodic"):
    """Periodic averaging (Reddy 2020, FederatedAveraging(rho)): one pass per round, rho rounds between averages."""

    period: Annotated[int, Meta(ge=1, description="rho: rounds of training between averages")] = 10

    def build(self, layout: Layout) -> Algorithm:
        def round(state: Tree, info: Info) -> Talk:
            reply = yield Exchange("train", {}, info.cohort)
            if info.round % self.period:
                return state
            state, _ = yield from meet(state, reply.ids)
            return state

        return federate(self, round, works={}, slots={})
