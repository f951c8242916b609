"""One round of a server half whose only exchange is answered on the spot, without an engine."""

from __future__ import annotations

import numpy as np

from fedge.core.algorithm import Algorithm, Context, Costs, Exchange, Info, Reply
from fedge.core.errors import ConfigError
from fedge.core.layout import Tree

_FREE = Costs.free(1)


def ask(algorithm: Algorithm, state: Tree, info: Info) -> Exchange:
    """What the server half would ask."""
    return next(algorithm.round(state, info))


def tell(algorithm: Algorithm, state: Tree, info: Info, reply: Reply) -> Tree:
    """The server half's state after this reply."""
    rounds = algorithm.round(state, info)
    next(rounds)
    try:
        rounds.send(reply)
    except StopIteration as end:
        return dict(end.value)
    raise ConfigError("personal, cluster: work around algorithms with one exchange a round; this one has more")


def info_of_one(ctx: Context) -> Info:
    """A round of a federation of one, run on the client."""
    return Info(ctx.round, ctx.rate, num_steps=None, num_epochs=None, num_clients=1, seed=0, cohort=(0,))


def reply_of_one(upload: Tree) -> Reply:
    """This upload, the only one, is the mean."""
    return Reply(upload, (0,), np.ones(1), (), _FREE, np.zeros(1), communicated=False)
