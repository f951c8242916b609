"""Run rounds: the only code that advances the generators of algorithms.

All other code that needs part of a round calls one of these functions or delegates with `yield from`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from fedge.core.algorithm import Algorithm, Costs, Exchange, Info, Reply
from fedge.core.layout import Tree
from fedge.core.question import Question, Sums

Admission = Callable[[int, tuple[int, ...], Costs], np.ndarray]
"""Like `Admit`, for several states driven at once: the first argument is the state's index."""


class Runner(Protocol):
    """Runs client work. All exchanges of one step come in one call."""

    def run(self, exchanges: Sequence[Exchange], infos: Sequence[Info]) -> Sequence[Reply]: ...


class Engine(Runner, Protocol):
    """Runs client work and evaluates models on clients."""

    def evaluate(self, question: Question, info: Info) -> Mapping[int, Sums | str]:
        """Return each client's answer, in client order, or the reason why it cannot be read.

        Clients without such data are left out.
        """

    def test(self, variables: Tree) -> Sums:
        """Return the evaluation sums of a model over the server's own test set, which must exist."""


class Outcome(NamedTuple):
    """A round's result. A void round leaves the state as it was."""

    state: Tree
    replies: Sequence[Reply]
    void: bool = False


def drive(
    engine: Runner, algorithm: Algorithm, states: Sequence[Tree], infos: Sequence[Info], admit: Admission | None = None
) -> list[Outcome]:
    """Run one round of each state with its own cohort.

    If no client answers an exchange in time, the round is void, unless the exchange is optional. `admit` decides which
    clients are in time; without it, all are.
    """
    replies: list[list[Reply]] = [[] for _ in states]
    outcomes: dict[int, Outcome] = {}
    rounds = [algorithm.round(state, info) for state, info in zip(states, infos, strict=True)]
    asked: dict[int, Exchange] = {}

    def advance(i: int, reply: Reply | None) -> None:
        try:
            exchange = next(rounds[i]) if reply is None else rounds[i].send(reply)
            asked[i] = exchange if admit is None else exchange._replace(admit=partial(admit, i))
        except StopIteration as end:
            outcomes[i] = Outcome(end.value, replies[i])

    for i in range(len(states)):
        advance(i, None)
    while asked:
        pending, asked = asked, {}
        for i, reply in zip(pending, engine.run(list(pending.values()), [infos[i] for i in pending]), strict=True):
            replies[i].append(reply)
            if reply.ids or pending[i].optional:
                advance(i, reply)
            else:
                rounds[i].close()
                outcomes[i] = Outcome(states[i], replies[i], void=True)
    return [outcomes[i] for i in range(len(states))]


def first_exchange(algorithm: Algorithm, state: Tree, info: Info) -> Exchange:
    """Return the first exchange of a round of this state, and abandon the round.

    Raises ValueError if the round has no exchange.
    """
    round = algorithm.round(state, info)
    try:
        return next(round)
    except StopIteration:
        raise ValueError(f"round {info.round} has no exchange, so there is no first one") from None
    finally:
        round.close()


def map_exchanges(
    round: Generator[Exchange, Reply, Tree], change: Callable[[Exchange], Exchange]
) -> Generator[Exchange, Reply, Tree]:
    """Run a round with every exchange transformed by `change`; replies pass unchanged."""
    try:
        exchange = next(round)
        while True:
            exchange = round.send((yield change(exchange)))
    except StopIteration as end:
        return dict(end.value)
    finally:
        round.close()
