"""`loop` with every exchange turned into bytes and back: proof that an algorithm can travel.

The client side has a job of its own, made anew from the configuration: names and numbers cross the wire, never code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from fedge.core import message
from fedge.core.algorithm import Exchange, Info, Reply
from fedge.engines.job import Job
from fedge.engines.loop import answer
from fedge.engines.reduction import Answer, Effort, Reduction


class Wire:
    """Runs every exchange client by client, with nothing but bytes between the two sides."""

    def __init__(self, job: Job, make_client_job: Callable[[], Job]) -> None:
        self._job = job
        self._client_job = make_client_job()._replace(clients=job.clients, kept=job.kept)  # these live with the clients

    def run(self, exchanges: Sequence[Exchange], infos: Sequence[Info]) -> list[Reply]:
        return [self._run(exchange, info) for exchange, info in zip(exchanges, infos, strict=True)]

    def _run(self, exchange: Exchange, info: Info) -> Reply:
        request = self._job.send(exchange, info)
        reduction = Reduction(self._job, request)
        data = message.pack(request.meta(), request.coded)
        client_job = self._client_job._replace(kept=reduction.kept)
        for client in self._job.present(exchange):
            reduction.add(_receive(serve(client_job, client, data)))
        return reduction.reply()


def serve(job: Job, client: int, request: bytes) -> bytes:
    """The client's side of the wire: a request in, an answer out."""
    meta, down = message.unpack(request, message.WorkRequest)
    told = msgspec.structs.asdict(meta)
    work = told.pop("work")
    if (codec := job.algorithm.works[work].down_codec) is not None:
        down = codec.decode(down, {})
    given = answer(job, client, work, down, Info(**told))
    return message.pack(given.meta(), given.upload)


def _receive(response: bytes) -> Answer:
    meta, upload = message.unpack(response, message.WorkAnswer)
    client, samples, *effort = msgspec.structs.astuple(meta)
    return Answer(client, samples, Effort(*effort), upload)
