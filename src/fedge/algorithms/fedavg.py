"""FedAvg: clients run SGD from the global model, the server averages their models."""

from __future__ import annotations

from collections.abc import Generator
from typing import Annotated

from msgspec import Meta

from fedge.algorithms.options import TrainingOptions
from fedge.core.algorithm import Affine, Algorithm, Context, Exchange, Info, Reply, Work
from fedge.core.layout import Layout, Tree
from fedge.core.slots import Slot


class FedAvg(TrainingOptions, tag="fedavg"):
    """Federated averaging (McMahan et al. 2017, algorithm 1): x = mean(y)."""

    def build(self, layout: Layout) -> Algorithm:
        def final(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
            return {"y": local["y"], "stats": local["stats"]}, kept

        def round(state: Tree, info: Info) -> Generator[Exchange, Reply, Tree]:
            reply = yield Exchange("train", state, info.cohort)
            return {"x": reply.value["y"], "stats": reply.value["stats"]}

        slots = {
            "x": Slot("params"),
            "y": Slot("params", anchor="x", weight=self.weighting),
            "stats": Slot("stats", anchor="stats", weight=self.weighting),
        }
        works = {"train": Work(start, final, affine=descend)}
        return Algorithm(slots, init=dict, keep=keep_nothing, works=works, round=round, model=global_model)


class Dsgd(FedAvg, tag="dsgd"):
    """Distributed SGD: FedAvg with a single step."""

    @property
    def amount(self) -> tuple[int | None, int | None]:
        return 1, None


class FedProx(FedAvg, tag="fedprox"):
    """FedProx (Li et al. 2020, algorithm 2): FedAvg with a proximal term that keeps clients near x."""

    prox: Annotated[float, Meta(ge=0, description="mu of FedProx: adds mu*(y - x) to g")] = 0.1


class FedMax(FedAvg, tag="fedmax"):
    """FedMAX (Chen et al. 2020): FedAvg with a term that keeps the entropy of the features high."""

    maxent: Annotated[
        float, Meta(ge=0, description="alpha of FedMAX: adds alpha*KL(uniform || softmax of the features) to the loss")
    ] = 0.1


def start(down: Tree, kept: Tree, ctx: Context) -> Tree:
    return {"y": down["x"], "stats": down["stats"]}


def descend(local: Tree, ctx: Context) -> Affine:
    return 1.0, None, ctx.rate


def keep_nothing(variables: Tree) -> Tree:
    return {}


def global_model(state: Tree, variables: Tree) -> Tree:
    return {"x": state["x"], "stats": state["stats"]}
