"""Optimisers as functions of vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from fedge.core.layout import Tree


class Optimiser(NamedTuple):
    """Statistics s of gradients and the direction that they give: track first, then move."""

    init: Callable[[Tensor], Tree]  # like a vector
    track: Callable[[Tree, Tensor], Tree]  # T(g, s)
    move: Callable[[Tree], Tensor]  # the direction U, to be scaled by the rate
    flops_per_param: int  # of one moving step


def adam(beta: float, beta2: float, epsilon: float, v0: float, bias_correction: bool) -> Optimiser:
    """Adam with epsilon outside the root: m/(sqrt(v)+eps). The step count t is a statistic like m and v."""

    def init(like: Tensor) -> Tree:
        return {"m": torch.zeros_like(like), "v": torch.full_like(like, v0), "t": like.new_zeros(*like.shape[:-1], 1)}

    def track(s: Tree, g: Tensor) -> Tree:
        return {
            "m": beta * s["m"] + (1 - beta) * g,
            "v": beta2 * s["v"] + (1 - beta2) * g * g,
            "t": s["t"] + 1,
        }

    def move(s: Tree) -> Tensor:
        m, v = s["m"], s["v"]
        if bias_correction:
            m, v = m / (1 - beta ** s["t"]), v / (1 - beta2 ** s["t"])
        return m / (v.sqrt() + epsilon)

    return Optimiser(init, track, move, flops_per_param=11)
