"""Dynamic averaging: clients communicate only when their model has moved away from the shared reference."""

from __future__ import annotations

from math import inf
from typing import Annotated

import numpy as np
import torch
from msgspec import Meta

from fedge.algorithms.averaging import AveragingOptions, Talk, federate, nothing, push
from fedge.core.algorithm import Algorithm, Context, Exchange, Info, Reply, Work
from fedge.core.keys import generator
from fedge.core.layout import Layout, Tree
from fedge.core.reduce import Collect, average
from fedge.core.slots import Slot


class DynAvg(AveragingOptions, tag="dynavg"):
    """Dynamic averaging (Kamp et al. 2018, algorithm 1): reference r, violation counter v."""

    delta: Annotated[float, Meta(ge=0, description="squared distance from r up to which a client stays silent")] = 0.8
    check_every: Annotated[int, Meta(ge=1, description="rounds of training from one check to the next")] = 1

    def build(self, layout: Layout) -> Algorithm:
        def check(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
            distance = ((local["y"] - kept["r"]) ** 2).sum(-1, keepdim=True)
            delta = self.delta if ctx.round % self.check_every == 0 else inf  # without a check no client reports
            _, kept = train.final(down, local, kept, ctx)
            return {"flag": (distance > delta).to(distance.dtype)}, kept

        def renew(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
            upload, kept = push(down, local, kept, ctx)
            return upload, {**kept, "r": down["x"]}

        def round(state: Tree, info: Info) -> Talk:
            reply = yield Exchange("train", {}, info.cohort, Collect)
            everyone, flags = np.array(reply.ids), reply.value["flag"][:, 0].numpy() > 0
            if not flags.any():
                return state
            v = state["v"] + int(flags.sum())
            full = bool(v >= info.num_clients)
            others = generator(info.seed, "augment", round=info.round).permutation(everyone[~flags])
            asked, pulled = everyone[flags], []
            while True:
                asked, others = (np.append(asked, others), others[:0]) if full else (asked, others)
                if len(asked):
                    pulled += [(yield Exchange("pull", {}, asked.tolist(), Collect, optional=True))]
                pulled = [reply for reply in pulled if reply.ids]
                if not pulled:
                    return {**state, "v": v}
                down, size = mean(pulled, self.weighting == "samples")
                if full or ((down["x"] - state["r"]) ** 2).sum() <= self.delta:
                    break
                asked, others = others[: 2 * size], others[2 * size :]  # the set triples
                full = 2 * (size + len(asked)) >= len(everyone) or not len(others)  # some may not have answered
            met = [client for reply in pulled for client in reply.ids]
            yield Exchange("renew" if full else "push", down, met, optional=True)
            return {**down, "r": down["x"], "v": 0 * v} if full else {**down, "r": state["r"], "v": v}

        slots = {"r": Slot("params", weight=self.weighting, whole=True), "v": Slot("scalar", merge="max")}
        plain = federate(
            self, round, works={"renew": Work(nothing, renew)}, slots={**slots, "flag": Slot("scalar", speaks=True)}
        )
        train = plain.works["train"]
        return plain._replace(
            init=lambda variables: {**variables, "r": variables["x"], "v": variables["x"].new_zeros(1)},
            keep=lambda variables: {**plain.keep(variables), "r": variables["x"]},
            works={**plain.works, "train": train._replace(final=check)},
        )


def mean(replies: list[Reply], by_samples: bool) -> tuple[Tree, int]:
    """Return the mean model of all clients pulled so far, computed in client order, and their number."""
    order = np.argsort(np.concatenate([r.ids for r in replies]))
    weights = np.concatenate([r.samples if by_samples else np.ones(len(r.ids)) for r in replies])[order].tolist()
    x, stats = (average(torch.cat([r.value[name] for r in replies])[order], weights) for name in ("y", "stats"))
    return {"x": x, "stats": stats}, len(order)
