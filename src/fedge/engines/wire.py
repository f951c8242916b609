"""The `wire` engine: `loop` with every exchange encoded and decoded, to prove that an algorithm works over a network.

The client side has its own algorithm and model, rebuilt from the configuration: names and numbers cross the wire, never
code.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedge.client.evaluate import score
from fedge.client.private_state import HeldState
from fedge.client.serve import serve
from fedge.core import message
from fedge.core.algorithm import Exchange, Info, Reply
from fedge.core.gate import read_evaluation
from fedge.core.layout import Tree
from fedge.core.message import EvaluationRequest
from fedge.core.question import Question, Sums
from fedge.core.reduction import Reduction
from fedge.engines.both_sides import BothSides
from fedge.engines.evaluate import needed


class Wire:
    """Runs every exchange client by client, with nothing but bytes between the two sides."""

    def __init__(self, sides: BothSides) -> None:
        self._server, self._clients, self._test = sides

    def run(self, exchanges: Sequence[Exchange], infos: Sequence[Info]) -> list[Reply]:
        return [self._run(exchange, info) for exchange, info in zip(exchanges, infos, strict=True)]

    def _run(self, exchange: Exchange, info: Info) -> Reply:
        request = self._server.send(exchange, info)
        reduction = Reduction(self._server, request)
        held = HeldState(self._clients.kept, at_once=exchange.admit is None)
        data = message.pack(request.meta(), request.coded)
        for client in self._server.present(exchange):
            served = serve(self._clients, client, data)
            if reduction.receive(client, served.data) and served.kept is not None:
                held.write(client, served.kept)
        reply = reduction.reply()
        held.settle(reply.ids)
        return reply

    def evaluate(self, question: Question, info: Info) -> dict[int, Sums | str]:
        coded = question.down if question.coded is None else question.coded
        data = message.pack(EvaluationRequest(question.measure, question.work, **info.told()), coded)
        found = {
            client: read_evaluation(client, serve(self._clients, client, data).data) for client in question.clients
        }
        return {client: sums for client, sums in found.items() if sums is not None}

    def test(self, variables: Tree) -> Sums:
        return score(self._clients.network, variables, needed(self._test), self._clients.metrics)
