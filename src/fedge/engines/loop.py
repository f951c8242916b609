"""The `loop` engine: one client at a time, through autograd. It is the definition of correct."""

from __future__ import annotations

from collections.abc import Sequence

from fedge.client.answer import answer
from fedge.client.evaluate import measure, score
from fedge.client.private_state import HeldState
from fedge.core.algorithm import Exchange, Info, Reply
from fedge.core.layout import Tree
from fedge.core.question import Question, Sums
from fedge.core.reduction import Reduction
from fedge.engines.both_sides import BothSides
from fedge.engines.evaluate import needed


class Loop:
    """Runs every exchange client by client."""

    def __init__(self, sides: BothSides) -> None:
        self._server, self._clients, self._test = sides

    def run(self, exchanges: Sequence[Exchange], infos: Sequence[Info]) -> list[Reply]:
        return [self._run(exchange, info) for exchange, info in zip(exchanges, infos, strict=True)]

    def _run(self, exchange: Exchange, info: Info) -> Reply:
        request = self._server.send(exchange, info)
        reduction = Reduction(self._server, request)
        held = HeldState(self._clients.kept, at_once=exchange.admit is None)
        for client in self._server.present(exchange):
            given, kept = answer(self._clients, client, exchange.work, request.exchange.down, info)
            if reduction.add(given) and kept is not None:
                held.write(client, kept)
        reply = reduction.reply()
        held.settle(reply.ids)
        return reply

    def evaluate(self, question: Question, info: Info) -> dict[int, Sums]:
        found = {client: measure(self._clients, client, question, info) for client in question.clients}
        return {client: sums for client, sums in found.items() if sums is not None}

    def test(self, variables: Tree) -> Sums:
        return score(self._clients.network, variables, needed(self._test), self._clients.metrics)
