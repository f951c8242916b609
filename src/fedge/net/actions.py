"""Actions that a round's state machines return for their driver to carry out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fedge.net.task import TaskState


class SendOffer(NamedTuple):
    """Offer the client its task; it may have been offered before."""

    client: int


class SendWithdraw(NamedTuple):
    """Tell the client that its task no longer counts."""

    client: int
    reason: str


class SendGrant(NamedTuple):
    """Tell the client that it may upload."""

    client: int


class SendHold(NamedTuple):
    """Tell the client to stop its upload and to wait for the next grant."""

    client: int


class Ignore(NamedTuple):
    """The event was ignored. `state` is the task's final state; None if it has not ended or does not exist."""

    client: int
    reason: str
    state: TaskState | None = None


class Close(NamedTuple):
    """The exchange has closed, and all of its tasks have ended."""

    reason: str


GrantAction = SendGrant | SendHold
Action = SendOffer | SendWithdraw | GrantAction | Ignore | Close


def ignored(actions: Iterable[Action]) -> Ignore | None:
    """Return why an event was ignored; None if it was not."""
    return next((action for action in actions if isinstance(action, Ignore)), None)
