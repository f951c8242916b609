"""Dynamic averaging by SVD: clients whose data has more directions communicate more often."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from msgspec import Meta
from torch import Tensor

from fedge.algorithms.averaging import AveragingOptions, Talk, federate, growing, meet, nothing
from fedge.algorithms.spectrum import Method, find_q
from fedge.algorithms.talk_schedule import Rule, due_by_document, epoch_of, share_out
from fedge.core.algorithm import Algorithm, Context, Exchange, Info, Work
from fedge.core.layout import Layout, Tree
from fedge.core.reduce import Collect
from fedge.core.slots import Slot


class DynAvgSvd(AveragingOptions, tag="dynavg_svd"):
    """Dynamic averaging based on SVD (Reddy 2020, algorithm 3): client k communicates in E_k of E epochs."""

    energy_share: Annotated[float, Meta(gt=0, le=1, description="share of the total that defines q")] = 0.95
    energy: Annotated[
        Literal["sum", "squared"], Meta(description="sum of the singular values, or of their squares")
    ] = "sum"
    epochs: Annotated[int, Meta(ge=1, description="E: rounds per period; all clients communicate in the last one")] = (
        100
    )
    rule: Rule = "spaced"
    method: Annotated[Method, Meta(description="compute all singular values, or only the largest, for large data")] = (
        "full"
    )
    rank: Annotated[int, Meta(ge=1, description="number of singular values to find; q must be smaller")] = 200
    oversampling: Annotated[int, Meta(ge=0, description="extra dimensions of the subspace")] = 10

    def build(self, layout: Layout) -> Algorithm:
        unknown = {"q": torch.tensor([-1]), "last": torch.tensor([-self.epochs])}

        def look(inputs: Tensor) -> Tree:
            squared = self.energy == "squared"
            q = find_q(inputs, self.energy_share, squared, self.method, self.rank, self.oversampling)
            return {"q": torch.tensor([q])}

        def measure(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
            return {"q": local["q"]}, kept

        def round(state: Tree, info: Info) -> Talk:
            reply = yield Exchange("train", {}, info.cohort)
            q, last = (state[name].expand(info.num_clients) for name in ("q", "last"))
            if unknown := [client for client in reply.ids if q[client] < 0]:
                measured = yield Exchange("measure", {}, unknown, Collect, optional=True)
                if measured.ids:
                    q = q.index_put((torch.tensor(measured.ids),), measured.value["q"][:, 0])
            t, since = epoch_of(info.round, last, self.epochs)
            talks = share_out(q, q >= 0, self.epochs)
            if self.rule == "document":
                due = due_by_document(t, since, talks, self.epochs)
            else:  # a client that was unavailable when due is still due
                due = t * talks // self.epochs > since * talks // self.epochs
            state = {**state, "q": q, "last": last}
            if not (talkers := [client for client in reply.ids if due[client] and q[client] >= 0]):
                return state
            state, met = yield from meet(state, talkers, reply.ids if self.rule == "document" else None)
            return {**state, "last": last.index_fill(0, met, info.round)}

        def notes(state: Tree) -> Tree:
            known = state["q"] >= 0
            found = {"q": state["q"], "E_k": share_out(state["q"], known, self.epochs)}
            return {name: value.double().where(known, torch.nan) for name, value in found.items()}

        slots = dict.fromkeys(("q", "last"), Slot("scalar", merge="max"))
        works = {"measure": Work(nothing, measure, look=look)}
        return federate(self, round, works, slots)._replace(
            init=lambda variables: {**variables, **unknown}, notes=notes, grow=growing(unknown)
        )
