"""FedGBO: clients use global optimiser statistics that stay fixed during a round, and upload only their models."""

from __future__ import annotations

from collections.abc import Callable, Generator

from torch import Tensor

from fedge.algorithms.fedavg import global_model, keep_nothing
from fedge.algorithms.options import ClientAdaptive
from fedge.core.algorithm import Affine, Algorithm, Context, Exchange, Info, Reply, Work
from fedge.core.layout import Layout, Tree
from fedge.core.optim import Optimiser
from fedge.core.slots import Slot


class FedGbo(ClientAdaptive, tag="fedgbo"):
    """FedGBO (Mills 2023, algorithm 6): the statistics track the gradient implied by the mean model's change."""

    def build(self, layout: Layout) -> Algorithm:
        optimiser = self.make_optimiser()
        start, follow = fixed(optimiser)

        def init(variables: Tree) -> Tree:
            return {**variables, **optimiser.init(variables["x"])}

        def final(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
            return {"y": local["y"], "k": ctx.num_steps, "stats": local["stats"]}, kept

        def round(state: Tree, info: Info) -> Generator[Exchange, Reply, Tree]:
            reply = yield Exchange("train", state, info.cohort)
            x = reply.value["y"]
            g = optimiser.invert(state, (state["x"] - x) / (info.rate * reply.value["k"]))
            return {"x": x, "stats": reply.value["stats"], **optimiser.track(state, g)}

        slots = {
            "x": Slot("params"),
            "y": Slot("params", anchor="x", weight=self.weighting),
            "k": Slot("scalar", weight=self.weighting),
            **{s: Slot("params", moment=True) for s in optimiser.names},
            "stats": Slot("stats", anchor="stats", weight=self.weighting),
        }
        works = {"train": Work(start, final, affine=follow, flops_per_param=optimiser.fixed_flops)}
        return Algorithm(slots, init, keep_nothing, works, round, global_model)


def fixed(optimiser: Optimiser) -> tuple[Callable[[Tree, Tree, Context], Tree], Callable[[Tree, Context], Affine]]:
    """Return (init, affine) of steps y -= eta*U(g, s), with s as received from the server."""

    def start(down: Tree, kept: Tree, ctx: Context) -> Tree:
        a, b = optimiser.linear(down)
        terms = {"drift": -ctx.rate * a} if a is not None else {}
        terms |= {"scale": ctx.rate * b} if isinstance(b, Tensor) else {}
        return {"y": down["x"], "stats": down["stats"], **terms}

    def follow(local: Tree, ctx: Context) -> Affine:
        return 1.0, local.get("drift"), local.get("scale", ctx.rate * optimiser.gain)

    return start, follow
