"""The `wire` engine: `loop` with every exchange encoded and decoded, to prove that an algorithm works over a network.

The client side has its own algorithm and model, rebuilt from the configuration: names and numbers cross the wire, never
code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fedge.client.serve import serve
from fedge.core import message
from fedge.core.algorithm import Info
from fedge.core.answer import Request
from fedge.core.gate import read_evaluation
from fedge.core.layout import Tree
from fedge.core.message import EvaluationRequest
from fedge.core.question import Question, Sums
from fedge.core.reduction import Reduction
from fedge.engines.loop import Loop


class Wire(Loop):
    """Runs every exchange client by client, with nothing but bytes between the two sides."""

    def _accepted(self, request: Request, reduction: Reduction) -> Iterator[tuple[int, Tree | None]]:
        data = message.pack(request.meta(), request.coded)
        for client in self._server.present(request.exchange):
            served = serve(self._clients, client, data)
            if reduction.receive(client, served.data):
                yield client, served.kept

    def evaluate(self, question: Question, info: Info) -> Mapping[int, Sums | str]:
        coded = question.down if question.coded is None else question.coded
        data = message.pack(EvaluationRequest(question.measure, question.work, **info.told()), coded)
        found = {
            client: read_evaluation(client, serve(self._clients, client, data).data) for client in question.clients
        }
        return {client: sums for client, sums in found.items() if sums is not None}
