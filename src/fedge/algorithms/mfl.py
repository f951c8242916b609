"""MFL: clients run an adaptive optimiser whose statistics are averaged together with the models."""

from __future__ import annotations

from collections.abc import Generator
from typing import Annotated

from msgspec import Meta
from torch import Tensor

from fedge.algorithms.fedavg import global_model, keep_nothing
from fedge.algorithms.options import ClientAdaptive, Weighting
from fedge.core.algorithm import Algorithm, Context, Exchange, Info, Reply, Work
from fedge.core.layout import Layout, Tree
from fedge.core.slots import Slot


class Mfl(ClientAdaptive, tag="mfl"):
    """Momentum federated learning (Liu et al. 2020): x = mean(y) and s = mean(s_c), where local steps update s."""

    bias_correction: Annotated[bool, Meta(description="divide the statistics by 1 - beta^t")] = False

    def build(self, layout: Layout) -> Algorithm:
        optimiser = self.make_optimiser(self.bias_correction)

        def init(variables: Tree) -> Tree:
            return {**variables, **optimiser.init(variables["x"]), "t": variables["x"].new_zeros(1)}

        def start(down: Tree, kept: Tree, ctx: Context) -> Tree:
            s = {name: down[name] for name in optimiser.names}
            return {"y": down["x"], "stats": down["stats"], **s, **optimiser.past(down["t"])}

        def step(local: Tree, g: Tensor, ctx: Context) -> Tree:
            s = optimiser.track(local, g)
            return {**local, **s, "y": optimiser.step(local["y"], ctx.rate, s, g, local, ctx.step + 1)}

        def final(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
            trained = {name: local[name] for name in ("y", *optimiser.names, "stats")}
            return {**trained, "t": down["t"] + ctx.num_steps}, kept

        def round(state: Tree, info: Info) -> Generator[Exchange, Reply, Tree]:
            reply = yield Exchange("train", state, info.cohort)
            s = {name: reply.value[name] for name in optimiser.names}
            if "v" in s:
                s["v"] = s["v"].clamp(min=0)  # a lossy codec may have made it negative
            return {"x": reply.value["y"], "stats": reply.value["stats"], **s, "t": reply.value["t"].round()}

        slots = {
            "x": Slot("params"),
            "y": Slot("params", anchor="x", weight=self.weighting),
            **{s: Slot("params", anchor=s, weight=self.weighting, moment=True) for s in optimiser.names},
            "t": Slot("scalar", anchor="t", weight=self.weighting, merge="max"),
            "stats": Slot("stats", anchor="stats", weight=self.weighting),
        }
        works = {"train": Work(start, final, step=step, flops_per_param=optimiser.moving_flops)}
        return Algorithm(slots, init, keep_nothing, works, round, global_model)


class FedAvgAdam(Mfl, tag="fedavg_adam"):
    """FedAvg-Adam (Mills 2023, chapter 4): MFL with Adam's usual settings."""

    learning_rate: Annotated[float, Meta(gt=0, description="step size of the clients")] = 1e-3
    weighting: Annotated[Weighting, Meta(description="weights of clients in the means")] = "samples"
    beta2: Annotated[float, Meta(ge=0, lt=1, description="decay of v if there is also m")] = 0.999
    epsilon: Annotated[float, Meta(gt=0, description="added to the square root of v")] = 1e-7
    v0: Annotated[float, Meta(ge=0, description="initial value of v")] = 0.0
    bias_correction: Annotated[bool, Meta(description="divide the statistics by 1 - beta^t")] = True
