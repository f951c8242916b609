"""A round at the server, as a state machine without sockets and without a clock of its own."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from fedge.net.closing import Rules
from fedge.net.collection import AnswerCollection
from fedge.net.grants import Grants
from fedge.net.task import TASK_TRANSITIONS, Observer, Transition, transition_name, unobserved


class RoundState(StrEnum):
    """Where the server is in a round."""

    GATHERING = "gathering"  # waits for clients
    OPEN = "open"  # an exchange is on its way
    CLOSING = "closing"  # its tasks are settled or withdrawn; no answer counts any more
    REDUCING = "reducing"
    COMMITTING = "committing"
    COMMITTED = "committed"
    VOID = "void"  # too few clients, or no answer: the server's state stays as it was


ROUND_TRANSITIONS: Mapping[RoundState, frozenset[RoundState]] = {
    RoundState.GATHERING: frozenset({RoundState.OPEN, RoundState.VOID}),
    RoundState.OPEN: frozenset({RoundState.CLOSING}),
    RoundState.CLOSING: frozenset({RoundState.REDUCING}),
    RoundState.REDUCING: frozenset({RoundState.OPEN, RoundState.COMMITTING, RoundState.VOID}),
    RoundState.COMMITTING: frozenset({RoundState.COMMITTED}),
    RoundState.COMMITTED: frozenset(),
    RoundState.VOID: frozenset(),
}
"""Which states may follow which."""


def transitions() -> list[str]:
    """Return the names of all transitions of rounds and tasks, as observers are told them."""
    return [
        transition_name(machine, before, after)
        for machine, table in (("round", ROUND_TRANSITIONS), ("task", TASK_TRANSITIONS))
        for before, follow in table.items()
        for after in sorted(follow)
    ]


class RoundMachine:
    """The states of one round. `observer` is told of each change, and of those of every client's task."""

    def __init__(self, now: float, observer: Observer = unobserved) -> None:
        self.state = RoundState.GATHERING
        self.entered: dict[RoundState, float] = {self.state: now}  # when each state was entered last
        self.exchange = 0  # how many exchanges were opened
        self._observer = observer

    @property
    def ended(self) -> bool:
        """Return whether the state is final."""
        return not ROUND_TRANSITIONS[self.state]

    def advance(self, state: RoundState, now: float, reason: str = "") -> None:
        """Enter a state; a ValueError if it may not follow the present one."""
        if state not in ROUND_TRANSITIONS[self.state]:
            allowed = ", ".join(sorted(ROUND_TRANSITIONS[self.state])) or "none, it has ended"
            raise ValueError(f"round: {self.state} cannot become {state}; allowed: {allowed}")
        before, self.state = self.state, state
        self.entered[state] = now
        self._observer(Transition("round", before, state, now, None, reason))

    def gather(self, num_connected: int, needed: int, wait_s: float, now: float) -> bool:
        """Return whether enough clients are connected; without them, the round is void `wait_s` after its start."""
        if self.state == RoundState.GATHERING and num_connected < needed and now >= self.gather_end(wait_s):
            reason = f"{num_connected} of {needed} clients were connected after {wait_s:g} s"
            self.advance(RoundState.VOID, now, reason)
        return num_connected >= needed

    def gather_end(self, wait_s: float) -> float:
        """Return when the wait for clients ends."""
        return self.entered[RoundState.GATHERING] + wait_s

    def open_exchange(
        self, rules: Rules, tokens: Mapping[int, str], planned: int, grants: Grants, now: float
    ) -> AnswerCollection:
        """Open the next exchange; once it closes, the round is closing."""
        self.advance(RoundState.OPEN, now)
        self.exchange += 1

        def on_close(reason: str, now: float) -> None:
            self.advance(RoundState.CLOSING, now, reason)

        return AnswerCollection(rules, tokens, planned, grants, now, self._observer, on_close)
