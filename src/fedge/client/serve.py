"""The client's side of a wire: bytes in, bytes out. Names and numbers cross it, never code."""

from __future__ import annotations

from typing import NamedTuple

from fedge.client.answer import answer
from fedge.client.client_side import ClientSide
from fedge.client.evaluate import measure
from fedge.core import message
from fedge.core.algorithm import Info
from fedge.core.layout import Tree
from fedge.core.question import Question, write_sums


class Served(NamedTuple):
    """A client's reply to a message, and the private state that it will have if the reply counts."""

    data: bytes
    kept: Tree | None = None


def serve(side: ClientSide, client: int, request: bytes) -> Served:
    """Answer a request for work or a question; a StreamError if it is neither."""
    meta, down = message.unpack(request)
    work = meta.pop("work")
    if work is not None and (codec := side.algorithm.works[work].down_codec) is not None:
        down = codec.decode(down, {})
    if "measure" in meta:
        question = Question(meta.pop("measure"), down, (client,), work)
        return Served(message.pack({"client": client}, write_sums(measure(side, client, question, Info(**meta)))))
    given, kept = answer(side, client, work, down, Info(**meta))
    return Served(message.pack(given.meta(), given.upload), kept)
