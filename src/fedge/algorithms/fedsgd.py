"""FedSGD: FedAvg with a server step size."""

from __future__ import annotations

from collections.abc import Generator
from typing import Annotated, Literal

from msgspec import Meta

from fedge.algorithms.fedavg import descend, global_model, keep_nothing, start
from fedge.algorithms.options import TrainingOptions
from fedge.core.algorithm import Algorithm, Context, Exchange, Info, Reply, Work
from fedge.core.layout import Layout, Tree
from fedge.core.slots import Slot


class FedSgd(TrainingOptions, tag="fedsgd"):
    """FedSGD (Mills, Hu & Min 2023, algorithm 1): the mean change q is a pseudo-gradient, x -= eta_s * mean(q)."""

    server_learning_rate: Annotated[float, Meta(gt=0, description="step size of the server")] = 1.0
    pseudo: Annotated[
        Literal["delta", "gradient_sum"], Meta(description="q is x - y, or (x - y)/learning_rate, a sum of gradients")
    ] = "delta"

    def build(self, layout: Layout) -> Algorithm:
        def final(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
            q = down["x"] - local["y"]
            return {"q": q if self.pseudo == "delta" else q / ctx.rate, "stats": local["stats"]}, kept

        def round(state: Tree, info: Info) -> Generator[Exchange, Reply, Tree]:
            reply = yield Exchange("train", state, info.cohort)
            return {"x": state["x"] - info.server_rate * reply.value["q"], "stats": reply.value["stats"]}

        slots = {
            "x": Slot("params"),
            "q": Slot("params", weight=self.weighting),
            "stats": Slot("stats", anchor="stats", weight=self.weighting),
        }
        works = {"train": Work(start, final, affine=descend)}
        return Algorithm(slots, init=dict, keep=keep_nothing, works=works, round=round, model=global_model)
