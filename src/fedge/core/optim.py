"""Optimisers as pure functions on vectors.

With fixed statistics s, the update is linear in the gradient: U(g, s) = a(s) + b(s)*g. Therefore the step
y -= eta*U(g, s) can be fused, and the mean gradient of several steps can be recovered from their total update.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fedge.core.layout import Tree

Name = Literal["sgdm", "rmsprop", "adam"]
ServerName = Literal["sgdm", "rmsprop", "adam", "adagrad", "yogi"]


class Optimiser(NamedTuple):
    """Gradient statistics s and the update direction computed from them, to be scaled by the rate."""

    init: Callable[[Tensor], Tree]  # initial s for a vector of this shape
    linear: Callable[[Tree], tuple[Tensor | None, Tensor | float]]  # (a, b) of U = a + b*g; an `a` of None is zero
    track: Callable[[Tree, Tensor], Tree]  # T(g, s)
    past: Callable[[Tensor], Tree]  # bias correction terms of the t earlier steps; fixed during a round
    move: Callable[[Tree, Tensor, Tree, int], Tensor]  # direction from tracked s, g, `past` and the steps since
    step: Callable[[Tensor, float, Tree, Tensor, Tree, int], Tensor]  # y - rate*direction in one pass
    gain: float  # b where it does not depend on s
    fixed_flops: int  # per parameter, of one step with s fixed
    moving_flops: int  # per parameter, of one step that tracks s

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the statistics."""
        return tuple(self.init(torch.zeros(1)))

    def invert(self, s: Tree, update: Tensor) -> Tensor:
        """Return the gradient that produces this update; for a mean update, the mean gradient."""
        a, b = self.linear(s)
        return (update if a is None else update - a) / b


def _root(v: Tensor) -> Tensor:
    """Return the square root via its inverse: MKL's root is up to ten times slower where v is zero, as it often is."""
    return v.rsqrt().reciprocal_()


def make_optimiser(
    name: ServerName, beta: float, beta2: float, epsilon: float, v0: float, bias_correction: bool
) -> Optimiser:
    """Return an optimiser by name. `beta` is the decay of its first statistic, `beta2` that of v if there are two."""
    adaptive = name != "sgdm"
    momentum = name in ("sgdm", "adam", "yogi")
    gain = 1 - beta if momentum else 1.0
    decays = {"m": beta} if momentum else {}
    if adaptive and name != "adagrad":
        decays["v"] = beta2 if momentum else beta

    def init(like: Tensor) -> Tree:
        m = {"m": torch.zeros_like(like)} if momentum else {}
        return m | {"v": torch.full_like(like, v0)} if adaptive else m

    def linear(s: Tree) -> tuple[Tensor | None, Tensor | float]:
        a = beta * s["m"] if momentum else None
        if not adaptive:
            return a, gain
        scale = 1 / _root(s["v"]).add_(epsilon)  # epsilon outside the root
        return None if a is None else a * scale, gain * scale

    def track(s: Tree, g: Tensor) -> Tree:
        # Few passes, in place on fresh memory: on a block of clients, memory bandwidth dominates an optimiser's cost.
        tracked = {"m": torch.lerp(s["m"], g, 1 - beta)} if momentum else {}
        if name == "adagrad":
            tracked["v"] = s["v"] + g * g
        elif name == "yogi":
            tracked["v"] = s["v"] - (1 - beta2) * g * g * torch.sign(s["v"] - g * g)
        elif adaptive:
            tracked["v"] = (decays["v"] * s["v"].expand_as(g)).addcmul_(g, g, value=1 - decays["v"])
        return tracked

    def past(t: Tensor) -> Tree:
        return {f"past_{which}": decay**t for which, decay in decays.items()} if bias_correction else {}

    def divisor(s: Tree, past: Tree, steps: int) -> Tensor | None:
        """Return the divisor of the direction; statistics that started at zero are biased by 1 - beta^(t + steps)."""
        corrected = decays.items() if bias_correction else ()
        bias = {which: torch.rsub(past[f"past_{which}"], 1, alpha=decay**steps) for which, decay in corrected}
        if not adaptive:
            return bias.get("m")
        if not bias:
            return _root(s["v"]).add_(epsilon)
        by_m = bias.get("m", torch.ones_like(bias["v"]))
        # (sqrt(v/b_v) + epsilon)*b_m
        return _root(s["v"]).mul_(by_m / _root(bias["v"])).add_(epsilon * by_m)

    def move(s: Tree, g: Tensor, past: Tree, steps: int) -> Tensor:
        direction, by = s["m"] if momentum else g, divisor(s, past, steps)
        return direction if by is None else direction / by

    def step(y: Tensor, rate: float, s: Tree, g: Tensor, past: Tree, steps: int) -> Tensor:
        direction, by = s["m"] if momentum else g, divisor(s, past, steps)
        if by is None:
            return torch.sub(y, direction, alpha=rate)
        return torch.addcdiv(y, direction, by, value=-rate, out=by if by.shape == y.shape else None)

    fixed, moving = {"sgdm": (5, 8), "rmsprop": (5, 5)}.get(name, (8, 11))
    return Optimiser(init, linear, track, past, move, step, gain, fixed_flops=fixed, moving_flops=moving)
