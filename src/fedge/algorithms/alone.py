"""A federation of one, run on the client: a server half whose only client is at hand."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from fedge.core.algorithm import Algorithm, Context, Costs, Exchange, Info, Reply
from fedge.core.errors import ConfigError
from fedge.core.layout import Tree

_FREE = Costs(*[np.zeros(1, np.int64)] * 5)


def ask(algorithm: Algorithm, state: Tree, ctx: Context) -> Tree:
    """What the server half would send down."""
    return next(_round(algorithm, state, ctx)).down


def tell(algorithm: Algorithm, state: Tree, upload: Tree, ctx: Context) -> Tree:
    """The server half's state after a round in which this upload, the only one, is the mean."""
    rounds = _round(algorithm, state, ctx)
    next(rounds)
    try:
        rounds.send(Reply(upload, (0,), np.ones(1), (), _FREE, np.zeros(1), communicated=False))
    except StopIteration as end:
        return dict(end.value)
    raise ConfigError("personal: works around algorithms with one exchange a round; this one has more")


def _round(algorithm: Algorithm, state: Tree, ctx: Context) -> Generator[Exchange, Reply, Tree]:
    info = Info(ctx.round, ctx.rate, num_steps=None, num_epochs=None, num_clients=1, seed=0, cohort=(0,))
    return algorithm.round(state, info)
