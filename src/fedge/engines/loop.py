"""The `loop` engine: one client at a time, through autograd. It is the definition of correct."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fedge.client.answer import answer
from fedge.client.evaluate import measure, score
from fedge.client.private_state import HeldState
from fedge.core.algorithm import Exchange, Info, Reply
from fedge.core.answer import Request
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
        for client, kept in self._accepted(request, reduction):
            if kept is not None:
                held.write(client, kept)
        reply = reduction.reply()
        held.settle(reply.ids)
        return reply

    def _accepted(self, request: Request, reduction: Reduction) -> Iterator[tuple[int, Tree | None]]:
        """Ask every client; yield those whose answers are accepted, with their private state if it changed."""
        exchange = request.exchange
        for client in self._server.present(exchange):
            given, kept = answer(self._clients, client, exchange.work, exchange.down, request.info)
            if reduction.add(given):
                yield client, kept

    def evaluate(self, question: Question, info: Info) -> Mapping[int, Sums | str]:
        found = {client: measure(self._clients, client, question, info) for client in question.clients}
        return {client: sums for client, sums in found.items() if sums is not None}

    def test(self, variables: Tree) -> Sums:
        return score(self._clients.network, variables, needed(self._test), self._clients.metrics)
