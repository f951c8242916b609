"""The client's side of a wire: bytes in, bytes out. Names and numbers cross it, never code."""

from __future__ import annotations

from typing import NamedTuple

from fedge.client.answer import answer
from fedge.client.client_side import ClientSide
from fedge.client.evaluate import measure
from fedge.core import message
from fedge.core.algorithm import Info
from fedge.core.errors import StreamError
from fedge.core.layout import Tree
from fedge.core.message import EvaluationAnswer, EvaluationRequest, WorkRequest
from fedge.core.question import Question, write_sums


class Served(NamedTuple):
    """A client's reply to a message, and the private state that it will have if the reply counts."""

    data: bytes
    kept: Tree | None = None


def serve(side: ClientSide, client: int, request: bytes) -> Served:
    """Answer a request for work or a question; a StreamError if it is neither."""
    opened: tuple[WorkRequest | EvaluationRequest, Tree] = message.unpack(request, (WorkRequest, EvaluationRequest))
    meta, down = opened
    if meta.work is not None:
        if meta.work not in side.algorithm.works:
            raise StreamError(f"expected one of the works {', '.join(side.algorithm.works)}, got {meta.work[:64]!r}")
        if (codec := side.algorithm.works[meta.work].down_codec) is not None:
            down = codec.decode(down, {})
    info = Info(**{name: getattr(meta, name) for name in Info._fields if name != "cohort"})
    if isinstance(meta, EvaluationRequest):
        sums = measure(side, client, Question(meta.measure, down, (client,), meta.work), info)
        return Served(message.pack(EvaluationAnswer(client), write_sums(sums)))
    given, kept = answer(side, client, meta.work, down, info)
    return Served(message.pack(given.meta(), given.upload), kept)
