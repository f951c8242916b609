"""Wrappers that change local training: momentum, weight decay, proximal terms and entropy penalties."""

from __future__ import annotations

from collections.abc import Callable
from math import log

from torch import Tensor, zeros_like

from fedge.core.algorithm import Affine, Algorithm, Build, Context, Work, moved
from fedge.core.layout import Layout, Tree


def momentum(inner: Build, beta: float) -> Build:
    """Use m = beta*m + g in place of g; m starts at 0 in every round."""

    def wrap(work: Work) -> Work:
        def init(down: Tree, kept: Tree, ctx: Context) -> Tree:
            local = work.init(down, kept, ctx)
            return {**local, "momentum": zeros_like(local["y"])}

        def step(local: Tree, g: Tensor, ctx: Context) -> Tree:
            m = g.add(local["momentum"], alpha=beta)
            if work.affine:
                return {**local, "momentum": m, "y": moved(local["y"], m, work.affine(local, ctx))}
            assert work.step is not None
            return {**work.step(local, m, ctx), "momentum": m}

        return work._replace(init=init, affine=None, step=step, flops_per_param=work.flops_per_param + 2)

    return each_training(inner, wrap)


def pull(inner: Build, strength: float, to_start: bool) -> Build:
    """Add strength*(y - y0) to g, where y0 is the start of the round (FedProx) or 0 (weight decay)."""

    def wrap(work: Work) -> Work:
        def init(down: Tree, kept: Tree, ctx: Context) -> Tree:
            local = work.init(down, kept, ctx)
            return {**local, "y0": local["y"]} if to_start else local

        def affine(local: Tree, ctx: Context) -> Affine:
            assert work.affine is not None
            decay, drift, scale = work.affine(local, ctx)
            if to_start:
                back = scale * strength * local["y0"]
                drift = back if drift is None else drift + back
            return decay - scale * strength, drift, scale

        def step(local: Tree, g: Tensor, ctx: Context) -> Tree:
            assert work.step is not None
            distance = local["y"] - local["y0"] if to_start else local["y"]
            return work.step(local, g + strength * distance, ctx)

        changed = {"affine": affine} if work.affine else {"step": step}
        return work._replace(init=init, flops_per_param=work.flops_per_param + 2 + to_start, **changed)

    return each_training(inner, wrap)


def maxent(inner: Build, alpha: float) -> Build:
    """Add alpha*KL(uniform || softmax(a)) to the loss (FedMAX), where a are the inputs of the last layer."""

    def penalty(a: Tensor) -> Tensor:
        return -alpha * (a.log_softmax(-1).mean(-1) + log(a.shape[-1]))

    return each_training(inner, lambda work: work._replace(penalty=penalty))


def each_training(inner: Build, wrap: Callable[[Work], Work]) -> Build:
    """Return the algorithm with all works that train wrapped."""

    def build(layout: Layout) -> Algorithm:
        algorithm = inner(layout)
        works = {name: wrap(work) if work.trains else work for name, work in algorithm.works.items()}
        return algorithm._replace(works=works)

    return build
