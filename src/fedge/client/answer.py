"""A client's whole part in an exchange."""

from __future__ import annotations

from fedge.client.client_side import ClientSide
from fedge.client.perform import Observer, perform
from fedge.core.algorithm import Info
from fedge.core.answer import Answer, seal
from fedge.core.layout import Tree


def answer(
    side: ClientSide, client: int, work_name: str, down: Tree, info: Info, observe: Observer | None = None
) -> tuple[Answer, Tree | None]:
    """Return the client's answer as it travels, and the private state that it will have if the answer counts.

    None: the state does not change. The caller writes it once it is known that the answer counts.
    """
    work = side.algorithm.works[work_name]
    before = side.kept.read(client)
    upload, after, effort = perform(side, work, client, down, before, info, observe=observe)
    given = Answer(client, side.data.num_samples(client, info.round), effort, upload)
    return seal(work, work_name, given, down, info), None if after is before else after
