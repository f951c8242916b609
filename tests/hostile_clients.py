"""Clients that answer honestly in round 1 and send something bad from round 2 on."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch

from fedge.core.algorithm import Algorithm, Build, Context, Work
from fedge.core.layout import Layout, Tree

BAD = 2
"""The number of the hostile client, where there is one."""


def poison(
    algorithm: Algorithm, value: float, bad: Collection[int] = (BAD,), works: Collection[str] | None = None
) -> Algorithm:
    """The algorithm, of whose uploads by these clients every value is this one, in all works or in some.

    It works for rows of a block too.
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
    """The algorithm, whose bad client changes its whole upload. For engines that take clients one at a time."""

    def wrap(work: Work) -> Work:
        def final(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
            upload, after = work.final(down, local, kept, ctx)
            return (change(upload) if ctx.round > 1 and int(ctx.client) == BAD else upload), after

        return work._replace(final=final)

    def built(layout: Layout) -> Algorithm:
        algorithm = build(layout)
        return algorithm._replace(works={name: wrap(work) for name, work in algorithm.works.items()})

    return built
