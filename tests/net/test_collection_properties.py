"""Invariants of an exchange under any sequence of client and network events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from fractions import Fraction
from math import ceil, inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.net.actions import Action, Close, Ignore, SendGrant, SendHold, SendOffer, SendWithdraw
from fedge.net.closing import Rules
from fedge.net.collection import AnswerCollection
from fedge.net.grants import Grants
from fedge.net.task import ENDS, TaskState, Transition
from net.records import transitions

LEASE_S = 30.0
BUDGET, STREAM = 250, 100
STRANGER = 99
STEPS: dict[str, Callable[[AnswerCollection, int, str, int, int, float], list[Action]]] = {
    "connected": lambda c, client, token, upload, size, now: c.connected(client, now),
    "disconnected": lambda c, client, token, upload, size, now: c.disconnected(client, now),
    "tick": lambda c, client, token, upload, size, now: c.tick(now),
    "left": lambda c, client, token, upload, size, now: c.left(client, "goodbye", now),
    "withdraw": lambda c, client, token, upload, size, now: c.withdraw(client, "revoked", now),
    "accepted": lambda c, client, token, upload, size, now: c.accepted(client, token, now),
    "declined": lambda c, client, token, upload, size, now: c.declined(client, token, "policy", now),
    "fetching": lambda c, client, token, upload, size, now: c.fetching(client, token, now),
    "fetched": lambda c, client, token, upload, size, now: c.fetched(client, token, now),
    "beat": lambda c, client, token, upload, size, now: c.beat(client, token, now),
    "finished": lambda c, client, token, upload, size, now: c.finished(client, token, size, now),
    "upload_began": lambda c, client, token, upload, size, now: c.upload_began(client, token, now),
    "progress": lambda c, client, token, upload, size, now: c.progress(client, token, upload, size // 2, now),
    "upload_broke": lambda c, client, token, upload, size, now: c.upload_broke(client, token, upload, now),
    "received": lambda c, client, token, upload, size, now: c.received(client, token, upload, now),
    "rejected": lambda c, client, token, upload, size, now: c.rejected(client, token, upload, "NaN", now),
    "rejected_unseen": lambda c, client, token, upload, size, now: c.rejected_unseen(client, token, "large", now),
    "failed": lambda c, client, token, upload, size, now: c.failed(client, token, "no state", now),
}
BY_SERVER = {"connected", "disconnected", "tick", "left", "withdraw"}  # the others are about a task
NEXT = {
    TaskState.OFFERED: "accepted",
    TaskState.ACCEPTED: "fetching",
    TaskState.FETCHING: "fetched",
    TaskState.WORKING: "finished",
    TaskState.WAITING: "upload_began",
    TaskState.UPLOADING: "received",
}
"""An honest client's event in each state."""


def token_of(client: int) -> str:
    return f"task-{client}"


def due(log: list[Transition], rules: Rules, num_asked: int, planned: int, now: float) -> bool:
    """Return whether an exchange that began at 0 s must be closed, by definition, given the tasks' transitions."""
    accepted = received = ended = 0
    since = inf
    for transition in log:
        accepted += transition.after == "accepted"
        received += transition.after == "settled"
        ended += transition.after in ENDS
        enough = accepted > 0 and received >= ceil(Fraction(str(rules.fraction)) * accepted)
        since = min(since, transition.now) if enough else inf
    planned_received = planned < num_asked and received >= planned
    return ended == num_asked or planned_received or now >= since + rules.grace_s or now >= rules.deadline_s


class Watched:
    """A collection whose invariants are checked after every event."""

    def __init__(self, rules: Rules, num_clients: int, planned: int, connected: set[int], min_rate: float) -> None:
        self.rules, self.num_clients, self.planned = rules, num_clients, planned
        self.grants = Grants(BUDGET, STREAM, min_rate)
        self.log: list[Transition] = []
        self.open_log: list[Transition] | None = None  # the transitions before the exchange closed
        tokens = {client: token_of(client) for client in range(num_clients)}
        self.collection = AnswerCollection(rules, tokens, planned, self.grants, 0.0, self.log.append, self.on_close)
        self.there = set(connected)
        self.contact = dict.fromkeys(range(num_clients), 0.0)  # when each client was last seen
        self.ready: set[int] = set()  # requested a grant in their current session
        self.now, self.checked = 0.0, True
        self.check(self.collection.start(connected, 0.0), set())

    def on_close(self, reason: str, now: float) -> None:
        assert self.open_log is None
        self.open_log = list(self.log)

    def ended(self) -> set[int]:
        return {client for client, task in self.collection.tasks.items() if task.ended}

    def do(self, name: str, client: int, now: float, size: int = 80, stale: bool = False) -> list[Action]:
        self.now = now
        task = self.collection.tasks.get(client)
        upload = task.uploads - stale if task else 1
        token = "stale" if stale and "upload" not in name else token_of(client)
        before = self.ended()
        if name == "connected":
            self.there.add(client)
        elif name == "disconnected":
            self.there.discard(client)
            self.ready.discard(client)
        actions = STEPS[name](self.collection, client, token, upload, size, now)
        heard = name == "connected" or (name not in BY_SERVER and token == token_of(client))
        if heard and client in self.contact and client not in before:  # later contact renews no lease
            self.contact[client] = now
        if name == "finished" and not any(isinstance(action, Ignore) for action in actions) and client in self.there:
            self.ready.add(client)
        self.check(actions, before)
        if name == "tick" and self.checked:
            self.check_leases()
        return actions

    def check(self, actions: list[Action], ended_before: set[int]) -> None:
        if not self.checked:
            return
        self.check_actions(actions, ended_before)
        self.check_log()
        self.check_grants()
        closed = self.collection.closed is not None
        assert closed == (self.open_log is not None)
        log = self.log if self.open_log is None else self.open_log
        assert due(log, self.rules, self.num_clients, self.planned, self.now) == closed
        wake = self.collection.next_wake()
        assert (wake is None) == closed
        assert wake is None or wake <= self.rules.deadline_s
        if closed:
            assert self.ended() == set(range(self.num_clients))

    def check_actions(self, actions: list[Action], ended_before: set[int]) -> None:
        was_closed = ended_before == set(range(self.num_clients))
        for action in actions:
            if isinstance(action, SendOffer | SendGrant | SendHold):
                assert action.client not in ended_before
            if isinstance(action, SendOffer | SendGrant | SendWithdraw):
                assert action.client in self.there
            if isinstance(action, SendWithdraw):
                assert action.client in self.ended() - ended_before
            if was_closed and self.num_clients:
                assert isinstance(action, Ignore)
        closes = [i for i, action in enumerate(actions) if isinstance(action, Close)]
        assert len(closes) <= 1
        assert all(isinstance(action, Ignore) for i in closes for action in actions[i + 1 :])

    def check_log(self) -> None:
        state = dict.fromkeys(range(self.num_clients), TaskState.OFFERED)
        for transition in self.log:
            assert transition.name in NAMES
            assert transition.client is not None
            assert transition.before == state[transition.client]  # so no task ends twice
            state[transition.client] = TaskState(transition.after)
        assert state == {client: task.state for client, task in self.collection.tasks.items()}

    def check_grants(self) -> None:
        if self.collection.closed is not None:
            return
        grants, tasks = self.grants, self.collection.tasks
        assert not grants.granted & set(grants.waiting)
        assert grants.used_bytes == sum(min(tasks[client].size, STREAM) for client in grants.granted)
        assert grants.used_bytes <= BUDGET or len(grants.granted) == 1
        if grants.waiting:  # the next in the queue does not fit
            assert grants.granted
            assert grants.used_bytes + min(tasks[grants.waiting[0]].size, STREAM) > BUDGET
        for client in {*grants.granted, *grants.waiting}:
            assert tasks[client].state == TaskState.UPLOADING or (
                tasks[client].state == TaskState.WAITING and client in self.there
            )
        for client in self.ready:
            if tasks[client].state == TaskState.WAITING:
                assert client in {*grants.granted, *grants.waiting}

    def check_leases(self) -> None:
        expired = {client for client, heard in self.contact.items() if self.now >= heard + LEASE_S}
        assert expired <= self.ended()
        lost = [t.client for t in self.log if t.after == "lost" and t.now == self.now and "lease" in t.reason]
        assert set(lost) <= expired

    def wait_until(self, now: float) -> None:
        """Advance time, with a tick at every requested wake-up."""
        while (wake := self.collection.next_wake()) is not None and wake <= now:
            self.do("tick", STRANGER, max(wake, self.now))
            after = self.collection.next_wake()
            assert after is None or after > self.now  # the driver does not spin


NAMES = set(transitions())
CLIENTS = st.integers(0, 4)
EVENTS = st.tuples(
    st.sampled_from(["next", "next", "next", *STEPS]),
    st.one_of(CLIENTS, CLIENTS, CLIENTS, st.just(STRANGER)),
    st.sampled_from([0.0, 0.0, 0.5, 3.0, 10.0, 29.0, 30.0, 70.0]),
    st.sampled_from([0, 1, 80, 5000]),
    st.sampled_from([False] * 9 + [True]),
)
RULES = st.builds(
    Rules,
    fraction=st.sampled_from([0.1, 0.5, 0.55, 0.9, 1.0]),
    grace_s=st.sampled_from([0.0, 5.0, 30.0]),
    deadline_s=st.sampled_from([1.0, 100.0, 200.0]),
    lease_s=st.just(LEASE_S),
)


@settings(max_examples=400, deadline=None)
@given(
    rules=RULES,
    num_clients=st.integers(0, 5),
    planned=st.integers(1, 5),
    connected=st.sets(CLIENTS),
    min_rate=st.sampled_from([0.0, 20.0]),
    events=st.lists(EVENTS, max_size=80),
    punctual=st.booleans(),
)
def test_any_sequence_of_events(
    rules: Rules,
    num_clients: int,
    planned: int,
    connected: set[int],
    min_rate: float,
    events: list[tuple[str, int, float, int, bool]],
    punctual: bool,
) -> None:
    watched = Watched(rules, num_clients, planned, {c for c in connected if c < num_clients}, min_rate)
    now = 0.0
    for name, client, seconds, size, stale in events:
        now += seconds
        if punctual:
            watched.wait_until(now)
        task = watched.collection.tasks.get(client)
        if name == "next":
            name = NEXT.get(task.state, "beat") if task else "accepted"
        watched.do(name, client, now, size, stale)
    watched.wait_until(rules.deadline_s)
    if now < rules.deadline_s:
        assert watched.collection.closed is not None
        assert watched.now <= rules.deadline_s


Path = tuple[tuple[str, int], ...]


def replayed(path: Path) -> Watched:
    """Return two clients, one of them connected, after these events. Only the last event is checked."""
    rules = Rules(fraction=1.0, grace_s=1e6, deadline_s=1e6, lease_s=LEASE_S)
    watched = Watched(rules, 2, 2, {0}, min_rate=1.0)
    for i, (name, client) in enumerate(path):
        watched.checked = i == len(path) - 1
        if name == "expire":  # the lease of this client
            watched.do("beat", 1 - client, watched.now + LEASE_S)
            watched.do("tick", STRANGER, watched.now)
        elif name == "stall":  # until slow uploads are held
            for each in (0, 1):
                watched.do("beat", each, watched.now + LEASE_S / 3)
            watched.do("tick", STRANGER, watched.now)
        elif name == "close":
            watched.collection.close("the server stops", watched.now)
        else:
            watched.do(name, client, watched.now, size=240)
    return watched


def snapshot(watched: Watched) -> Any:
    tasks = watched.collection.tasks.values()
    return (
        tuple((task.state, task.state == TaskState.UPLOADING and task.num_bytes) for task in tasks),
        frozenset(watched.there),
        watched.grants.granted,
        watched.grants.waiting,
        frozenset(watched.ready),
    )


ANY = (*(STEPS.keys() - {"tick"}), "expire", "stall", "close")
HONEST = ("connected", "fetching", "finished", "upload_began", "received")


@pytest.mark.parametrize("others", [HONEST, pytest.param(ANY, marks=pytest.mark.full)], ids=("honest", "any"))
def test_every_event_in_every_reachable_state_of_two_clients(others: tuple[str, ...]) -> None:
    """Client 0 does anything; the other one does too, or behaves honestly."""
    events = [*((name, 0) for name in ANY), *((name, 1) for name in others)]
    seen, todo, met = set(), deque[Path]([()]), set()
    while todo:
        path = todo.popleft()
        for event in events:
            watched = replayed((*path, event))
            met |= {transition.name for transition in watched.log}
            key = snapshot(watched)
            if key not in seen and watched.collection.closed is None:
                seen.add(key)
                todo.append((*path, event))
    assert met == {name for name in transitions() if name.startswith("task ")}  # every transition of the table occurs
