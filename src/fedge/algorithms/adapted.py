"""Adaptation of a model on a client before its user accuracy is measured."""

from __future__ import annotations

from collections.abc import Callable

from fedge.algorithms.fedavg import descend, start
from fedge.core.algorithm import Affine, Algorithm, Build, Context, Work
from fedge.core.errors import ConfigError
from fedge.core.layout import Layout, Tree


def adaptation(affine: Callable[[Tree, Context], Affine], num_steps: int) -> Work:
    """Return work that takes `num_steps` steps on the client's own data, from variables to variables."""

    def final(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
        return {"x": local["y"], "stats": local["stats"]}, kept

    return Work(start, final, affine=affine, num_steps=num_steps)


def fine_tuned(inner: Build, num_steps: int) -> Build:
    """Return the algorithm with adaptation by plain SGD: the baseline of personalisation.

    Building it raises ConfigError if the algorithm already has its own adaptation.
    """

    def build(layout: Layout) -> Algorithm:
        algorithm = inner(layout)
        if algorithm.adapt:
            raise ConfigError("evaluate.fine_tune_steps: the algorithm has its own adaptation; drop this setting")
        return algorithm._replace(adapt=adaptation(descend, num_steps))

    return build
