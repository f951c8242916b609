"""Per-FedAvg: learn a model that performs well after one step on a client's own data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta
from torch import Tensor

from fedge.algorithms.adapted import adaptation
from fedge.algorithms.fedavg import FedAvg
from fedge.core.algorithm import Affine, Algorithm, Batch, Context
from fedge.core.layout import Layout, Tree


class PerFedAvg(FedAvg, tag="per_fedavg"):
    """Per-FedAvg (Fallah et al. 2020, algorithm 1); `learning_rate` is the paper's beta."""

    alpha: Annotated[float, Meta(gt=0, description="size of the personalisation step")] = 0.01
    hessian: Annotated[
        Literal["first_order", "free"],
        Meta(description="drop the Hessian term, or approximate its product by a difference of gradients"),
    ] = "first_order"
    delta: Annotated[float, Meta(gt=0, description="step of that difference")] = 1e-3

    def build(self, layout: Layout) -> Algorithm:
        def gradient(local: Tree, batches: Sequence[Batch], ctx: Context) -> Tensor:
            y = local["y"]
            w = y - self.alpha * ctx.grad_at(y, batches[0])
            g = ctx.grad_at(w, batches[1])
            if self.hessian == "first_order":
                return g
            ahead = ctx.grad_at(y + self.delta * g, batches[2])
            behind = ctx.grad_at(y - self.delta * g, batches[2])
            return g - self.alpha * (ahead - behind) / (2 * self.delta)

        def personalise(local: Tree, ctx: Context) -> Affine:
            return 1.0, None, self.alpha

        inner = super().build(layout)
        num_batches = 2 if self.hessian == "first_order" else 3
        work = inner.works["train"]._replace(gradient=gradient, batches_per_step=num_batches)
        adapt = adaptation(personalise, num_steps=1)
        return inner._replace(works={"train": work}, adapt=adapt)
