"""Clients that go on from models of their own and talk now and then: what averaging protocols share."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Annotated, Literal

import torch
from msgspec import Meta
from torch import Tensor

from fedge.algorithms.fedavg import descend, global_model
from fedge.algorithms.options import TrainingOptions
from fedge.core.algorithm import Algorithm, Context, Exchange, Info, Reply, Work
from fedge.core.layout import Tree
from fedge.core.optim import Optimiser, make_optimiser
from fedge.core.slots import Slot

Talk = Generator[Exchange, Reply, Tree]


class AveragingOptions(TrainingOptions):
    """Training from the client's own model, with an optimiser of its own: neither is lost between two talks."""

    optimiser: Annotated[
        Literal["sgd", "sgdm", "adam"],
        Meta(description="of each client, with statistics that stay its own: sgdm keeps m, adam m and v"),
    ] = "sgd"
    beta: Annotated[float, Meta(ge=0, lt=1, description="decay of m")] = 0.9
    beta2: Annotated[float, Meta(ge=0, lt=1, description="decay of v")] = 0.999
    epsilon: Annotated[float, Meta(gt=0, description="added to the root of v")] = 1e-8

    def make_optimiser(self) -> Optimiser | None:
        """Adam starts at v = 0 and is corrected for it; plain SGD has no statistics."""
        if self.optimiser == "sgd":
            return None
        corrected = self.optimiser == "adam"
        return make_optimiser(self.optimiser, self.beta, self.beta2, self.epsilon, v0=0.0, bias_correction=corrected)


def federate(
    options: AveragingOptions, round: Callable[[Tree, Info], Talk], works: Mapping[str, Work], slots: Mapping[str, Slot]
) -> Algorithm:
    """Clients that `train`, send their models (`pull`) and take others (`push`), as the round says."""
    optimiser = options.make_optimiser()

    def keep(variables: Tree) -> Tree:
        s = optimiser.init(variables["x"]) | {"t": variables["x"].new_zeros(1)} if optimiser else {}
        return {"y": variables["x"], "stats": variables["stats"], **s}

    model = Slot("params", weight=options.weighting, whole=True)
    return Algorithm(
        slots={"x": model, "y": model, "stats": Slot("stats", weight=options.weighting), **slots},
        init=dict,
        keep=keep,
        works={"train": train(optimiser), "pull": Work(nothing, pull), "push": Work(nothing, push), **works},
        round=round,
        model=global_model,
        personal=lambda variables, kept: {"x": kept["y"], "stats": kept["stats"]},
    )


def train(optimiser: Optimiser | None) -> Work:
    """Goes on from where the client is. Nothing is sent."""
    names = ("y", "stats", *(optimiser.names if optimiser else ()))

    def start(down: Tree, kept: Tree, ctx: Context) -> Tree:
        past = optimiser.past(kept["t"]) if optimiser else {}
        return {**{name: kept[name] for name in names}, **past}

    def final(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
        t = {"t": kept["t"] + ctx.num_steps} if optimiser else {}
        return {}, {**kept, **{name: local[name] for name in names}, **t}

    if optimiser is None:
        return Work(start, final, affine=descend)

    def step(local: Tree, g: Tensor, ctx: Context) -> Tree:
        s = optimiser.track(local, g)
        return {**local, **s, "y": optimiser.step(local["y"], ctx.rate, s, g, local, ctx.step + 1)}

    return Work(start, final, step=step, flops_per_param=optimiser.moving_flops)


def nothing(down: Tree, kept: Tree, ctx: Context) -> Tree:
    return {}


def pull(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
    return {"y": kept["y"], "stats": kept["stats"]}, kept


def push(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
    return {}, {**kept, "y": down["x"], "stats": down["stats"]}


def meet(
    state: Tree, talkers: Sequence[int], listeners: Sequence[int] | None = None
) -> Generator[Exchange, Reply, tuple[Tree, Tensor]]:
    """Return the state with the mean model of these clients, and those whose models are in it.

    The mean goes back to these, or to the `listeners` where they are given.
    """
    reply = yield Exchange("pull", {}, talkers, optional=True)
    met = torch.tensor(reply.ids, dtype=torch.int64)
    if not len(met):
        return state, met
    mean = {"x": reply.value["y"], "stats": reply.value["stats"]}
    yield Exchange("push", mean, reply.ids if listeners is None else listeners, optional=True)
    return {**state, **mean}, met


def growing(unknown: Tree) -> Callable[[Tree, int, int], Tree]:
    """The `grow` of a state with entries per client: of each name, new clients get the value of an unknown client.

    A state may still have one entry for all clients, with these very values; with several clients it keeps that.
    """

    def grow(state: Tree, num_before: int, num_after: int) -> Tree:
        entries = {name: state[name] for name in unknown if len(state[name]) == num_before}
        added = num_after - num_before
        return {**state, **{name: torch.cat([v, unknown[name].expand(added)]) for name, v in entries.items()}}

    return grow
