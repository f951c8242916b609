"""Independent training without federation: every client trains alone. The baseline of personalised learning."""

from __future__ import annotations

from collections.abc import Generator

from fedge.algorithms.fedavg import descend
from fedge.algorithms.options import TrainingOptions
from fedge.core.algorithm import Algorithm, Context, Exchange, Info, Reply, Work
from fedge.core.layout import Layout, Tree


class Independent(TrainingOptions, tag="independent"):
    """Local training without communication. The evaluated global model stays the initial one."""

    def build(self, layout: Layout) -> Algorithm:
        def start(down: Tree, kept: Tree, ctx: Context) -> Tree:
            return {"y": kept["x"], "stats": kept["stats"]}

        def final(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
            return {}, {"x": local["y"], "stats": local["stats"]}

        def round(state: Tree, info: Info) -> Generator[Exchange, Reply, Tree]:
            yield Exchange("train", {}, info.cohort)
            return state

        return Algorithm(
            slots={},
            init=lambda variables: {},
            keep=dict,
            works={"train": Work(start, final, affine=descend)},
            round=round,
            model=lambda state, variables: variables,
            personal=lambda variables, kept: kept,
        )
