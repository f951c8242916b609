"""pFedMe: every client has a personal model theta, kept near the global one by a Moreau envelope."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Annotated, Literal

from msgspec import Meta
from torch import Tensor

from fedge.algorithms.fedavg import FedAvg, start
from fedge.algorithms.options import Count
from fedge.core.algorithm import Algorithm, Batch, Context, Exchange, Info, Reply, Work
from fedge.core.layout import Layout, Tree


class PFedMe(FedAvg, tag="pfedme"):
    """pFedMe (Dinh et al. 2020, algorithm 1); `learning_rate` is the paper's eta, the step of the local model w."""

    penalty: Annotated[float, Meta(gt=0, description="lambda: strength of the penalty that keeps theta near w")] = 15.0
    personal_steps: Annotated[Count, Meta(description="steps towards theta, on one batch, per local step")] = 5
    personal_rate: Annotated[float, Meta(gt=0, description="step size of the steps towards theta")] = 0.01
    start: Annotated[
        Literal["w", "theta"],
        Meta(description="starting point of a local step's inner problem: w, or theta of the previous step"),
    ] = "theta"
    beta: Annotated[float, Meta(gt=0, description="step of the server: x = (1 - beta) x + beta mean(w)")] = 1.0

    def build(self, layout: Layout) -> Algorithm:
        def gradient(local: Tree, batches: Sequence[Batch], ctx: Context) -> Tensor:
            w, theta = local["y"], local["y" if self.start == "w" else "theta"]
            for _ in range(self.personal_steps):
                theta = theta - self.personal_rate * (ctx.grad_at(theta, batches[0]) + self.penalty * (theta - w))
            return self.penalty * (w - theta)

        def step(local: Tree, g: Tensor, ctx: Context) -> Tree:
            w = local["y"]
            return {**local, "y": w - ctx.rate * g, "theta": w - local["raw"] / self.penalty}

        def final(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
            upload, _ = train.final(down, local, {}, ctx)
            return upload, {"theta": local["theta"], "stats": local["stats"]}

        def round(state: Tree, info: Info) -> Generator[Exchange, Reply, Tree]:
            mean = yield from inner.round(state, info)
            return {"x": (1 - self.beta) * state["x"] + self.beta * mean["x"], "stats": mean["stats"]}

        inner = super().build(layout)
        train = inner.works["train"]
        work = Work(
            init=lambda down, kept, ctx: {**start(down, kept, ctx), "theta": down["x"]},
            final=final,
            step=step,
            gradient=gradient,
            flops_per_param=2 + 5 * self.personal_steps,
        )
        return inner._replace(
            keep=lambda variables: {"theta": variables["x"], "stats": variables["stats"]},
            works={"train": work},
            round=round,
            personal=lambda variables, kept: {"x": kept["theta"], "stats": kept["stats"]},
        )
