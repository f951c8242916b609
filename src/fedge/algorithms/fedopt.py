"""Adaptive federated optimisation: clients run SGD, the server applies an optimiser to their mean change."""

from __future__ import annotations

from collections.abc import Generator
from typing import Annotated

from msgspec import Meta

from fedge.algorithms.fedavg import descend, global_model, keep_nothing, start
from fedge.algorithms.options import Adaptive, Weighting
from fedge.core.algorithm import Algorithm, Context, Exchange, Info, Reply, Work
from fedge.core.layout import Layout, Tree
from fedge.core.slots import Slot


class FedOpt(Adaptive, tag="fedopt"):
    """AdaptiveFedOpt (Reddi et al. 2021, algorithm 2): the mean change q is the gradient of a server optimiser."""

    server_learning_rate: Annotated[float, Meta(gt=0, description="step size of the server")] = 0.1
    bias_correction: Annotated[bool, Meta(description="divide the statistics by 1 - beta^t")] = False

    def build(self, layout: Layout) -> Algorithm:
        optimiser = self.make_optimiser(self.bias_correction)

        def init(variables: Tree) -> Tree:
            return {**variables, **optimiser.init(variables["x"]), "t": variables["x"].new_zeros(1)}

        def final(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
            return {"q": down["x"] - local["y"], "stats": local["stats"]}, kept

        def round(state: Tree, info: Info) -> Generator[Exchange, Reply, Tree]:
            reply = yield Exchange("train", {"x": state["x"], "stats": state["stats"]}, info.cohort)
            q = reply.value["q"]
            s = optimiser.track(state, q)
            x = optimiser.step(state["x"], info.server_rate, s, q, optimiser.past(state["t"]), 1)
            return {"x": x, "stats": reply.value["stats"], **s, "t": state["t"] + 1}

        slots = {
            "x": Slot("params"),
            "q": Slot("params", weight=self.weighting),
            **{s: Slot("params", moment=True) for s in optimiser.names},
            "t": Slot("scalar", merge="max"),
            "stats": Slot("stats", anchor="stats", weight=self.weighting),
        }
        works = {"train": Work(start, final, affine=descend)}
        return Algorithm(slots, init, keep_nothing, works, round, global_model)


class FedAdam(FedOpt, tag="fedadam"):
    """FedAdam (Mills 2023, chapter 4): Adam on the server."""

    weighting: Annotated[Weighting, Meta(description="weights of clients in the means")] = "samples"
    server_learning_rate: Annotated[float, Meta(gt=0, description="step size of the server")] = 0.01
    beta2: Annotated[float, Meta(ge=0, lt=1, description="decay of v if there is also m")] = 0.999
    epsilon: Annotated[float, Meta(gt=0, description="added to the square root of v")] = 1e-4
    v0: Annotated[float, Meta(ge=0, description="initial value of v")] = 0.0


class FedAdamKDecay(FedAdam, tag="fedadam_kdecay"):
    """FedAdam with the settings of Mills, Hu & Min (2023)."""

    weighting: Annotated[Weighting, Meta(description="weights of clients in the means")] = "uniform"
    epsilon: Annotated[float, Meta(gt=0, description="added to the square root of v")] = 1e-8
    bias_correction: Annotated[bool, Meta(description="divide the statistics by 1 - beta^t")] = True
