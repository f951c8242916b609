"""Shared parts of averaging protocols: clients continue from their own models and communicate occasionally."""

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
    """Training that continues from the client's own model and optimiser state between communications."""

    optimiser: Annotated[
        Literal["sgd", "sgdm", "adam"],
        Meta(description="optimiser of each client, whose statistics stay local: sgdm keeps m, adam m and v"),
    ] = "sgd"
    beta: Annotated[float, Meta(ge=0, lt=1, description="decay of m")] = 0.9
    beta2: Annotated[float, Meta(ge=0, lt=1, description="decay of v")] = 0.999
    epsilon: Annotated[float, Meta(gt=0, description="added to the square root of v")] = 1e-8

    def make_optimiser(self) -> Optimiser | None:
        """Return the optimiser; None for plain SGD. Adam starts at v = 0 with bias correction."""
        if self.optimiser == "sgd":
            return None
        corrected = self.optimiser == "adam"
        return make_optimiser(self.optimiser, self.beta, self.beta2, self.epsilon, v0=0.0, bias_correction=corrected)


def federate(
    options: AveragingOptions, round: Callable[[Tree, Info], Talk], works: Mapping[str, Work], slots: Mapping[str, Slot]
) -> Algorithm:
    """Return an algorithm whose rounds let clients `train`, upload their models (`pull`) and receive one (`push`)."""
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
    """Return work that continues from the client's own model and uploads nothing."""
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
    """Average the models of `talkers`; return the state with the mean and the ids of the clients averaged.

    The mean is sent back to these clients, or to the `listeners` if given.
    """
    reply = yield Exchange("pull", {}, talkers, optional=True)
    met = torch.tensor(reply.ids, dtype=torch.int64)
    if not len(met):
        return state, met
    mean = {"x": reply.value["y"], "stats": reply.value["stats"]}
    yield Exchange("push", mean, reply.ids if listeners is None else listeners, optional=True)
    return {**state, **mean}, met


def growing(unknown: Tree) -> Callable[[Tree, int, int], Tree]:
    """Return `grow` for a state with per-client entries: new clients get the given values.

    A state may still have a single entry for all clients, with these same values; it then stays unchanged.
    """

    def grow(state: Tree, num_before: int, num_after: int) -> Tree:
        entries = {name: state[name] for name in unknown if len(state[name]) == num_before}
        added = num_after - num_before
        return {**state, **{name: torch.cat([v, unknown[name].expand(added)]) for name, v in entries.items()}}

    return grow
