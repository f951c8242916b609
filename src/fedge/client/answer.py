"""A client's complete part in an exchange."""

from __future__ import annotations

from fedge.client.client_side import ClientSide
from fedge.client.perform import Observer, perform
from fedge.core.algorithm import Info
from fedge.core.answer import Answer, seal
from fedge.core.layout import Tree


def answer(
    side: ClientSide, client: int, work_name: str, down: Tree, info: Info, observe: Observer | None = None
) -> tuple[Answer, Tree | None]:
    """Return the encoded answer, and the private state to store if the server accepts it.

    The private state is None if it does not change. The caller stores it once the answer has been accepted.
    """
    work = side.algorithm.works[work_name]
    before = side.kept.read(client)
    upload, after, effort = perform(side, work, client, down, before, info, observe=observe)
    given = Answer(client, side.data.num_samples(client, info.round), effort, upload)
    return seal(work, work_name, given, down, info), None if after is before else after
