"""Clients that answer honestly in round 1 and send bad answers from round 2 on."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch

from fedge.core.algorithm import Algorithm, Build, Context, Work
from fedge.core.layout import Layout, Tree

BAD = 2
"""The id of the hostile client, if there is only one."""


def poison(
    algorithm: Algorithm, value: float, bad: Collection[int] = (BAD,), works: Collection[str] | None = None
) -> Algorithm:
    """Return the algorithm with uploads of these clients filled with one value, in all works or in some.

    It also works for the rows of a block.
    """

    def wrap(work: Work) -> Work:
        def final(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
            upload, after = work.final(down, local, kept, ctx)
            hit = torch.isin(ctx.client, torch.tensor(sorted(bad), device=ctx.client.device)) & (ctx.round > 1)
            return {n: torch.where(hit, torch.full_like(u, value), u) for n, u in upload.items()}, after

        return work._replace(final=final)

    chosen = algorithm.works if works is None else works
    return algorithm._replace(works={n: wrap(w) if n in chosen else w for n, w in algorithm.works.items()})


def poisoned(build: Build, value: float, bad: Collection[int] = (BAD,), works: Collection[str] | None = None) -> Build:
    return lambda layout: poison(build(layout), value, bad, works)


def forged(build: Build, change: Callable[[Tree], Tree]) -> Build:
    """Return the algorithm with a bad client that replaces its upload. For engines that run one client at a time."""

    def wrap(work: Work) -> Work:
        def final(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
            upload, after = work.final(down, local, kept, ctx)
            return (change(upload) if ctx.round > 1 and int(ctx.client) == BAD else upload), after

        return work._replace(final=final)

    def built(layout: Layout) -> Algorithm:
        algorithm = build(layout)
        return algorithm._replace(works={name: wrap(work) for name, work in algorithm.works.items()})

    return built
