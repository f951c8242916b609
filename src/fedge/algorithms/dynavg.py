"""Dynamic averaging: clients speak up only when they have moved away from what all agreed on."""

from __future__ import annotations

from collections.abc import Generator
from typing import Annotated

import torch
from msgspec import Meta

from fedge.algorithms.fedavg import descend, global_model
from fedge.algorithms.options import Training
from fedge.core.algorithm import Algorithm, Context, Exchange, Info, Reply, Slot, Work
from fedge.core.keys import generator
from fedge.core.layout import Layout, Tree
from fedge.core.reduce import Collect, average


class DynAvg(Training, tag="dynavg"):
    """Dynamic averaging (Kamp et al. 2018; algorithm 1 of the dissertation): reference r, violation counter v."""

    delta: Annotated[float, Meta(ge=0, description="squared distance from the reference that is no violation yet")] = 0.8
    check_every: Annotated[int, Meta(ge=1, description="rounds of local training from one check to the next")] = 1

    def build(self, layout: Layout) -> Algorithm:
        def start(down: Tree, kept: Tree, ctx: Context) -> Tree:
            return {"y": kept["y"], "stats": kept["stats"]}

        def check(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
            distance = ((local["y"] - kept["r"]) ** 2).sum(-1, keepdim=True)
            return {"flag": (distance > self.delta).to(distance.dtype)}, {**local, "r": kept["r"]}

        def pull(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
            return {"y": kept["y"], "stats": kept["stats"]}, kept

        def push(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
            return {}, {"y": down["x"], "stats": down["stats"], "r": kept["r"]}

        def renew(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
            return {}, {"y": down["x"], "stats": down["stats"], "r": down["x"]}

        def round(state: Tree, info: Info) -> Generator[Exchange, Reply, Tree]:
            reply = yield Exchange("train", {}, info.cohort, Collect)
            everyone = reply.ids
            asked = [client for client, flag in zip(everyone, reply.value["flag"], strict=True) if flag]
            if not asked or info.round % self.check_every:
                return state
            v = state["v"] + len(asked)
            others = generator(info.seed, "augment", round=info.round).permutation(sorted({*everyone} - {*asked})).tolist()
            full = bool(v >= info.num_clients)
            models: dict[int, tuple[Tree, float]] = {}
            while True:
                if full:
                    asked, others = asked + others, []
                reply = yield Exchange("pull", {}, asked, Collect)
                for i, client in enumerate(reply.ids):
                    weight = float(reply.samples[i]) if self.weighting == "samples" else 1.0
                    models[client] = {name: rows[i] for name, rows in reply.value.items()}, weight
                trees, weights = zip(*(models[client] for client in sorted(models)), strict=True)
                x, stats = (average(torch.stack([tree[name] for tree in trees]), weights) for name in ("y", "stats"))
                if full or ((x - state["r"]) ** 2).sum() <= self.delta:
                    break
                full = 2 * 3 * len(models) >= len(everyone)  # the set and twice as many more are half of all
                asked, others = others[: 2 * len(models)], others[2 * len(models) :]
            yield Exchange("renew" if full else "push", {"x": x, "stats": stats}, sorted(models))
            return {"x": x, "stats": stats, "r": x if full else state["r"], "v": torch.zeros_like(v) if full else v}

        trained, scalar = Slot("params", weight=self.weighting), Slot("scalar")
        works = {"train": Work(start, check, affine=descend)}
        works |= {name: Work(nothing, final) for name, final in (("pull", pull), ("push", push), ("renew", renew))}
        return Algorithm(
            slots={"x": trained, "y": trained, "r": trained, "v": scalar, "flag": scalar, "stats": Slot("stats")},
            init=lambda variables: {**variables, "r": variables["x"], "v": variables["x"].new_zeros(1)},
            keep=lambda variables: {"y": variables["x"], "stats": variables["stats"], "r": variables["x"]},
            works=works,
            round=round,
            model=global_model,
            personal=lambda variables, kept: {"x": kept["y"], "stats": kept["stats"]},
        )


def nothing(down: Tree, kept: Tree, ctx: Context) -> Tree:
    return {}
