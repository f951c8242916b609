"""Run a round of a server half with a reply that is already known, without client work."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedge.core.algorithm import Algorithm, Context, Costs, Exchange, Info, Reply
from fedge.core.drive import drive
from fedge.core.errors import ConfigError
from fedge.core.layout import Tree

_FREE = Costs.free(1)


class _Answered:
    """An engine for a round with one exchange, whose reply is known."""

    def __init__(self, reply: Reply) -> None:
        self._replies = [reply]

    def run(self, exchanges: Sequence[Exchange], infos: Sequence[Info]) -> list[Reply]:
        if not self._replies:
            raise ConfigError("personal, cluster: need an algorithm with one exchange per round; this one has more")
        return [self._replies.pop()]


def tell(algorithm: Algorithm, state: Tree, info: Info, reply: Reply) -> Tree:
    """Return the server state after this reply. Raises ConfigError if the round has another exchange."""
    (outcome,) = drive(_Answered(reply), algorithm, [state], [info])
    return dict(outcome.state)


def info_of_one(ctx: Context) -> Info:
    """Return the settings of a round of a federation of one, run on the client."""
    return Info(ctx.round, ctx.rate, num_steps=None, num_epochs=None, num_clients=1, seed=0, cohort=(0,))


def reply_of_one(upload: Tree) -> Reply:
    """Return the reply whose mean is this single upload."""
    return Reply(upload, (0,), np.ones(1), (), _FREE, np.zeros(1), communicated=False)
