"""Mimelite: clients use fixed global statistics, which track full gradients at the global model."""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch import Tensor

from fedge.algorithms.fedavg import global_model, keep_nothing
from fedge.algorithms.fedgbo import fixed
from fedge.algorithms.options import ClientAdaptive
from fedge.core.algorithm import ALL, Algorithm, Context, Exchange, Info, Reply, Work, moved
from fedge.core.layout import Layout, Tree
from fedge.core.slots import Slot


class Mimelite(ClientAdaptive, tag="mimelite"):
    """Mimelite (Karimireddy et al. 2020): s = T(mean of the clients' full gradients at x, s)."""

    def build(self, layout: Layout) -> Algorithm:
        optimiser = self.make_optimiser()
        begin, follow = fixed(optimiser)

        def init(variables: Tree) -> Tree:
            return {**variables, **optimiser.init(variables["x"])}

        def start(down: Tree, kept: Tree, ctx: Context) -> Tree:
            return {**begin(down, kept, ctx), "g": ctx.grad_at(down["x"], ALL)}

        def final(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
            return {name: local[name] for name in ("y", "g", "stats")}, kept

        def round(state: Tree, info: Info) -> Generator[Exchange, Reply, Tree]:
            reply = yield Exchange("train", state, info.cohort)
            s = optimiser.track(state, reply.value["g"])
            return {"x": reply.value["y"], "stats": reply.value["stats"], **s}

        slots = {
            "x": Slot("params"),
            "y": Slot("params", anchor="x", weight=self.weighting),
            "g": Slot("params", weight=self.weighting),
            **{s: Slot("params", moment=True) for s in optimiser.names},
            "stats": Slot("stats", anchor="stats", weight=self.weighting),
        }
        works = {"train": Work(start, final, affine=follow, flops_per_param=optimiser.fixed_flops)}
        return Algorithm(slots, init, keep_nothing, works, round, global_model)


class MimeXlite(Mimelite, tag="mimexlite"):
    """MimeXlite (Mills 2023, section 6.3.2): Mimelite with the minibatch gradient of the first step instead."""

    def build(self, layout: Layout) -> Algorithm:
        inner = super().build(layout)
        begin, follow = fixed(self.make_optimiser())

        def start(down: Tree, kept: Tree, ctx: Context) -> Tree:
            return {**begin(down, kept, ctx), "g": torch.zeros_like(down["x"])}

        def step(local: Tree, g: Tensor, ctx: Context) -> Tree:
            local = {**local, "g": local["raw"]} if ctx.step == 0 else local  # y is still x
            return {**local, "y": moved(local["y"], g, follow(local, ctx))}

        work = inner.works["train"]._replace(init=start, affine=None, step=step)
        return inner._replace(works={"train": work})
