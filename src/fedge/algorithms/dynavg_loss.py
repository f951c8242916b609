"""Dynamic averaging by loss: clients talk the more often, the higher their loss."""

from __future__ import annotations

from typing import Annotated

import torch
from msgspec import Meta

from fedge.algorithms.averaging import AveragingOptions, Talk, epoch_of, federate, growing, meet, share_out
from fedge.algorithms.options import Count
from fedge.core.algorithm import Algorithm, Exchange, Info
from fedge.core.layout import Layout, Tree
from fedge.core.slots import Slot


class DynAvgLoss(AveragingOptions, tag="dynavg_loss"):
    """Dynamic averaging based on loss (Reddy 2020, algorithm 4): in E_k of the R epochs left a client talks.

    It reports its loss, that of its first minibatch of the epoch, when it talks; who has never talked does so at once.
    """

    epochs: Annotated[
        int, Meta(ge=1, description="E: rounds of a period; all talk in its last, then it starts anew")
    ] = 100
    freeze_after: Annotated[Count | None, Meta(description="epoch after which new losses change no E_k")] = None

    def build(self, layout: Layout) -> Algorithm:
        unknown = {"loss": torch.zeros(1).double(), "E_k": torch.tensor([0]), "last": torch.tensor([-self.epochs])}

        def round(state: Tree, info: Info) -> Talk:
            reply = yield Exchange("train", {}, info.cohort)
            loss, planned, last = (state[name].expand(info.num_clients) for name in ("loss", "E_k", "last"))
            t, since = epoch_of(info.round, last, self.epochs)
            plan_until = self.epochs if self.freeze_after is None else self.freeze_after
            left, known = self.epochs - min(t, plan_until) + 1, last > 0
            talks = share_out(loss, known, left).where(known & ((t <= plan_until) | (planned == 0)), planned)
            due = ~known | (t - since >= -(-left // talks.clamp(min=1))) | (t == self.epochs)
            state = {**state, "loss": loss, "E_k": talks, "last": last}
            if not (talkers := [client for client in reply.ids if due[client]]):
                return state
            state, met = yield from meet(state, talkers)
            losses = dict(zip(reply.ids, reply.losses.tolist(), strict=True))
            loss = loss.index_put((met,), loss.new_tensor([losses[client] for client in met.tolist()]))
            return {**state, "loss": loss, "last": last.index_fill(0, met, info.round)}

        def notes(state: Tree) -> Tree:
            return {"q": state["loss"].where(state["last"] > 0, torch.nan), "E_k": state["E_k"].double()}

        merges = {"loss": Slot("scalar", merge="sum")} | dict.fromkeys(("E_k", "last"), Slot("scalar", merge="max"))
        return federate(self, round, works={}, slots=merges)._replace(
            init=lambda variables: {**variables, **unknown}, notes=notes, grow=growing(unknown)
        )
