"""MFL: clients run an adaptive optimiser whose statistics are averaged with the models."""

from __future__ import annotations

from collections.abc import Generator
from typing import Annotated, Literal

from msgspec import Meta
from torch import Tensor

from fedge.algorithms.fedavg import global_model, keep_nothing
from fedge.algorithms.options import Training, Weighting
from fedge.core.algorithm import Algorithm, Context, Exchange, Info, Reply, Slot, Work
from fedge.core.layout import Layout, Tree
from fedge.core.optim import adam


class Mfl(Training, tag="mfl"):
    """Moving federated learning: x = mean(y) and s = mean(s_c), where s moves with every local step."""

    weighting: Annotated[Weighting, Meta(description="how clients weigh in the means")] = "uniform"
    optimiser: Annotated[Literal["adam"], Meta(description="what the clients run")] = "adam"
    beta: Annotated[float, Meta(ge=0, lt=1, description="decay of the first moment")] = 0.9
    beta2: Annotated[float, Meta(ge=0, lt=1, description="decay of the second moment")] = 0.99
    epsilon: Annotated[float, Meta(gt=0, description="added to the root of the second moment")] = 1e-3
    v0: Annotated[float, Meta(ge=0, description="second moment at the start")] = 1.0
    bias_correction: Annotated[bool, Meta(description="divide the moments by 1 - beta^t")] = False

    def build(self, layout: Layout) -> Algorithm:
        optimiser = adam(self.beta, self.beta2, self.epsilon, self.v0, self.bias_correction)

        def init(variables: Tree) -> Tree:
            return {**variables, **optimiser.init(variables["x"]), "t": variables["x"].new_zeros(1)}

        def start(down: Tree, kept: Tree, ctx: Context) -> Tree:
            s = {"m": down["m"], "v": down["v"], **optimiser.past(down["t"])}
            return {"y": down["x"], "stats": down["stats"], **s}

        def step(local: Tree, g: Tensor, ctx: Context) -> Tree:
            s = optimiser.track(local, g)
            return {**local, **s, "y": local["y"] - ctx.rate * optimiser.move(s, local, ctx.step + 1)}

        def final(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
            return {
                **{name: local[name] for name in ("y", "m", "v", "stats")},
                "t": down["t"] + ctx.num_steps,
            }, kept

        def round(state: Tree, info: Info) -> Generator[Exchange, Reply, Tree]:
            reply = yield Exchange("train", state, info.cohort)
            m, v, t, stats = (reply.value[name] for name in ("m", "v", "t", "stats"))
            return {"x": reply.value["y"], "stats": stats, "m": m, "v": v.clamp(min=0), "t": t.round()}

        slots = {
            "x": Slot("params"),
            "y": Slot("params", anchor="x", weight=self.weighting),
            "m": Slot("params", anchor="m", weight=self.weighting),
            "v": Slot("params", anchor="v", weight=self.weighting),
            "t": Slot("scalar", anchor="t", weight=self.weighting, merge="max"),
            "stats": Slot("stats", anchor="stats", weight=self.weighting),
        }
        works = {"train": Work(start, final, step=step, flops_per_param=optimiser.flops_per_param)}
        return Algorithm(slots, init, keep_nothing, works, round, global_model)


class FedAvgAdam(Mfl, tag="fedavg_adam"):
    """FedAvg-Adam (the thesis, chapter 4): MFL with Adam as it is usually set."""

    learning_rate: Annotated[float, Meta(gt=0, description="step size of the clients")] = 1e-3
    weighting: Annotated[Weighting, Meta(description="how clients weigh in the means")] = "samples"
    beta2: Annotated[float, Meta(ge=0, lt=1, description="decay of the second moment")] = 0.999
    epsilon: Annotated[float, Meta(gt=0, description="added to the root of the second moment")] = 1e-7
    v0: Annotated[float, Meta(ge=0, description="second moment at the start")] = 0.0
    bias_correction: Annotated[bool, Meta(description="divide the moments by 1 - beta^t")] = True
