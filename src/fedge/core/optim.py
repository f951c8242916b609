"""Optimisers as functions of vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from fedge.core.layout import Tree


class Optimiser(NamedTuple):
    """Statistics s of gradients and the direction that they give: track first, then move."""

    init: Callable[[Tensor], Tree]  # s for a vector like this one
    past: Callable[[Tensor], Tree]  # what `move` needs to know of the t steps before; stays fixed in a round
    track: Callable[[Tree, Tensor], Tree]  # T(g, s)
    move: Callable[[Tree, Tree, int], Tensor]  # direction from s, `past` and the steps since, to be scaled by the rate
    flops_per_param: int  # of one moving step


def adam(beta: float, beta2: float, epsilon: float, v0: float, bias_correction: bool) -> Optimiser:
    """Adam with epsilon outside the root: m/(sqrt(v)+eps)."""

    def init(like: Tensor) -> Tree:
        return {"m": torch.zeros_like(like), "v": torch.full_like(like, v0)}

    def past(t: Tensor) -> Tree:
        return {"past_m": beta**t, "past_v": beta2**t} if bias_correction else {}

    def track(s: Tree, g: Tensor) -> Tree:
        return {"m": beta * s["m"] + (1 - beta) * g, "v": beta2 * s["v"] + (1 - beta2) * g * g}

    def move(s: Tree, past: Tree, steps: int) -> Tensor:
        m, v = s["m"], s["v"]
        if bias_correction:  # divide by 1 - beta^(t + steps)
            m = m / torch.rsub(past["past_m"], 1, alpha=beta**steps)
            v = v / torch.rsub(past["past_v"], 1, alpha=beta2**steps)
        return m / (v.sqrt() + epsilon)

    return Optimiser(init, past, track, move, flops_per_param=11)
