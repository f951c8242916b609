"""Dynamic averaging by loss: clients with a higher loss communicate more often."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from msgspec import Meta
from torch import Tensor

from fedge.algorithms.averaging import AveragingOptions, Talk, federate, growing, meet
from fedge.algorithms.options import Count
from fedge.algorithms.talk_schedule import Rule, due_by_document, epoch_of, share_out
from fedge.core.algorithm import Algorithm, Context, Exchange, Info
from fedge.core.layout import Layout, Tree
from fedge.core.reduce import Collect, Mean
from fedge.core.slots import Slot


class DynAvgLoss(AveragingOptions, tag="dynavg_loss"):
    """Dynamic averaging based on loss (Reddy 2020, algorithm 4): client k communicates in E_k of the R epochs left.

    A client's loss is known once it has communicated; a client that has not does so in its next round.
    """

    epochs: Annotated[int, Meta(ge=1, description="E: rounds per period; all clients communicate in the last one")] = (
        100
    )
    loss: Annotated[
        Literal["epoch", "first"],
        Meta(description="loss that a client reports: the mean over the round's minibatches, or that of the first"),
    ] = "epoch"
    rule: Rule = "spaced"
    freeze_after: Annotated[Count | None, Meta(description="epoch after which E_k no longer changes")] = None

    def build(self, layout: Layout) -> Algorithm:
        unknown = {"loss": torch.zeros(1).double(), "E_k": torch.tensor([0]), "last": torch.tensor([-self.epochs])}
        plan_until = self.epochs if self.freeze_after is None else self.freeze_after
        by_document = self.rule == "document"

        def report(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
            return {"loss": ctx.mean_loss()}, train.final(down, local, kept, ctx)[1]

        def plan(t: int, planned: Tensor, loss: Tensor, among: Tensor, epochs: int) -> Tensor:
            replanned = among & ((t <= plan_until) | (planned == 0))
            return share_out(loss, among, epochs).where(replanned, planned)

        def round(state: Tree, info: Info) -> Talk:
            reply = yield Exchange("train", {}, info.cohort, Mean if self.loss == "first" else Collect)
            loss, planned, last = (state[name].expand(info.num_clients) for name in ("loss", "E_k", "last"))
            (t, since), known = epoch_of(info.round, last, self.epochs), last > 0
            if by_document:
                due = (planned == 0) | due_by_document(t, since, planned, self.epochs) | (t == self.epochs)
            else:
                left = self.epochs - min(t, plan_until) + 1
                planned = plan(t, planned, loss, known, left)
                due = ~known | (t - since >= -(-left // planned.clamp(min=1))) | (t == self.epochs)
            state = {**state, "loss": loss, "E_k": planned, "last": last}
            if not (talkers := [client for client in reply.ids if due[client]]):
                return state
            state, met = yield from meet(state, talkers, reply.ids if by_document else None)
            if by_document:  # clients that talk, by the losses of their earlier talks, as in the published code
                planned = plan(t, planned, loss, known & torch.zeros_like(due).index_fill(0, met, True), self.epochs)
            values = reply.losses if self.loss == "first" else reply.value["loss"][:, 0]
            losses = dict(zip(reply.ids, values.tolist(), strict=True))
            loss = loss.index_put((met,), loss.new_tensor([losses[client] for client in met.tolist()]))
            return {**state, "loss": loss, "E_k": planned, "last": last.index_fill(0, met, info.round)}

        def notes(state: Tree) -> Tree:
            return {"q": state["loss"].where(state["last"] > 0, torch.nan), "E_k": state["E_k"].double()}

        slots = {"loss": Slot("scalar", merge="sum"), "last": Slot("scalar", merge="max")}
        slots["E_k"] = slots["loss"] if by_document else slots["last"]  # "document": only its cell changes it
        plain = federate(self, round, works={}, slots=slots)
        train = plain.works["train"]
        works = plain.works if self.loss == "first" else {**plain.works, "train": train._replace(final=report)}
        return plain._replace(
            works=works, init=lambda variables: {**variables, **unknown}, notes=notes, grow=growing(unknown)
        )
