"""A round at the server, as a state machine without sockets or clock."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from fedge.net.closing import Rules
from fedge.net.collection import AnswerCollection
from fedge.net.grants import Grants
from fedge.net.task import Observer, Transition, unobserved


class RoundState(StrEnum):
    """The states of a round."""

    GATHERING = "gathering"  # waiting for clients
    OPEN = "open"  # an exchange is in progress
    CLOSING = "closing"  # its tasks are settled or withdrawn; later answers do not count
    REDUCING = "reducing"
    COMMITTING = "committing"
    COMMITTED = "committed"
    VOID = "void"  # too few clients, or no answer: the server's state is unchanged


ROUND_TRANSITIONS: Mapping[RoundState, frozenset[RoundState]] = {
    RoundState.GATHERING: frozenset({RoundState.OPEN, RoundState.VOID}),
    RoundState.OPEN: frozenset({RoundState.CLOSING}),
    RoundState.CLOSING: frozenset({RoundState.REDUCING}),
    RoundState.REDUCING: frozenset({RoundState.OPEN, RoundState.COMMITTING, RoundState.VOID}),
    RoundState.COMMITTING: frozenset({RoundState.COMMITTED}),
    RoundState.COMMITTED: frozenset(),
    RoundState.VOID: frozenset(),
}
"""The allowed transitions."""


class RoundMachine:
    """The state machine of one round. `observer` receives its transitions and those of every client's task."""

    def __init__(self, observer: Observer = unobserved) -> None:
        self.state = RoundState.GATHERING
        self.exchange = 0  # number of exchanges opened
        self._observer = observer

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return not ROUND_TRANSITIONS[self.state]

    def advance(self, state: RoundState, now: float, reason: str = "") -> None:
        """Enter a state; raise a ValueError if it may not follow the current one."""
        if state not in ROUND_TRANSITIONS[self.state]:
            allowed = ", ".join(sorted(ROUND_TRANSITIONS[self.state])) or "none, it has ended"
            raise ValueError(f"round: {self.state} cannot become {state}; allowed: {allowed}")
        before, self.state = self.state, state
        self._observer(Transition("round", before, state, now, None, reason))

    def open_exchange(
        self, rules: Rules, tokens: Mapping[int, str], planned: int, grants: Grants, now: float
    ) -> AnswerCollection:
        """Open the next exchange; when it closes, the round enters CLOSING."""
        self.advance(RoundState.OPEN, now)
        self.exchange += 1

        def on_close(reason: str, now: float) -> None:
            self.advance(RoundState.CLOSING, now, reason)

        return AnswerCollection(rules, tokens, planned, grants, now, self._observer, on_close)
