"""SCAFFOLD: control variates correct client drift on heterogeneous data."""

from __future__ import annotations

from collections.abc import Generator
from typing import Annotated, Literal

import torch
from msgspec import Meta

from fedge.algorithms.fedavg import global_model
from fedge.algorithms.options import TrainingOptions, Weighting
from fedge.core.algorithm import ALL, Affine, Algorithm, Context, Exchange, Info, Reply, Work
from fedge.core.layout import Layout, Tree
from fedge.core.slots import Slot


class Scaffold(TrainingOptions, tag="scaffold"):
    """SCAFFOLD (Karimireddy et al. 2020, algorithm 1): y -= eta*(g + c - c_i), and c stays the mean of all c_i."""

    weighting: Annotated[Weighting, Meta(description="weights of clients in the mean of models")] = "uniform"
    server_learning_rate: Annotated[float, Meta(gt=0, description="step size of the server")] = 1.0
    option: Annotated[
        Literal["I", "II"],
        Meta(description="new c_i: with I the full gradient at x, with II the mean gradient of the steps taken"),
    ] = "II"

    def build(self, layout: Layout) -> Algorithm:
        def init(variables: Tree) -> Tree:
            return {**variables, "c": torch.zeros_like(variables["x"])}

        def keep(variables: Tree) -> Tree:
            return {"c_i": torch.zeros_like(variables["x"])}

        def start(down: Tree, kept: Tree, ctx: Context) -> Tree:
            local = {"y": down["x"], "stats": down["stats"], "drift": ctx.rate * (kept["c_i"] - down["c"])}
            return {**local, "full": ctx.grad_at(down["x"], ALL)} if self.option == "I" else local

        def affine(local: Tree, ctx: Context) -> Affine:
            return 1.0, local["drift"], ctx.rate

        def final(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
            x, c, y, c_i = down["x"], down["c"], local["y"], kept["c_i"]
            new = local["full"] if self.option == "I" else c_i - c + (x - y) / (ctx.num_steps * ctx.rate)
            return {"dy": y - x, "dc": new - c_i, "stats": local["stats"]}, {"c_i": new}

        def round(state: Tree, info: Info) -> Generator[Exchange, Reply, Tree]:
            reply = yield Exchange("train", state, info.cohort)
            return {
                "x": state["x"] + info.server_rate * reply.value["dy"],
                "stats": reply.value["stats"],
                "c": state["c"] + len(reply.ids) / info.num_clients * reply.value["dc"],  # (1/N) * sum of dc
            }

        def grow(state: Tree, num_before: int, num_after: int) -> Tree:
            return {**state, "c": state["c"] * (num_before / num_after)}  # the c_i of new clients are 0

        slots = {
            "x": Slot("params"),
            "c": Slot("params", merge="sum"),
            "dy": Slot("params", weight=self.weighting),
            "dc": Slot("params", weight="uniform"),
            "stats": Slot("stats", anchor="stats", weight=self.weighting),
        }
        works = {"train": Work(start, final, affine=affine, flops_per_param=4)}
        return Algorithm(slots, init, keep, works, round, global_model, grow=grow)
