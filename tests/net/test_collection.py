"""Collecting the answers of an exchange: closing, offers, grants, dropped clients, ignored events."""

import pytest

from fedge.core.net_options import NetOptions
from fedge.net.actions import Close, Ignore, SendGrant, SendHold, SendOffer, SendWithdraw, ignored
from fedge.net.closing import Rules
from fedge.net.collection import AnswerCollection
from fedge.net.engine import evaluation_rules
from fedge.net.grants import Grants
from fedge.net.task import TaskState

RULES = Rules(fraction=0.9, grace_s=30.0, deadline_s=3600.0, lease_s=60.0)
SIZE = 100


def token(client: int) -> str:
    return f"r1.e1.{client}"


def collect(
    num_clients: int,
    rules: Rules = RULES,
    planned: int | None = None,
    grants: Grants | None = None,
    connected: int | None = None,
) -> AnswerCollection:
    """Return an exchange with clients 0, 1, ... that started at 0 s."""
    tokens = {client: token(client) for client in range(num_clients)}
    made = AnswerCollection(rules, tokens, num_clients if planned is None else planned, grants or Grants(1 << 20), 0.0)
    there = range(num_clients if connected is None else connected)
    assert made.start(there, 0.0) == [SendOffer(client) for client in there]
    return made


def bring(collection: AnswerCollection, client: int, state: str, now: float) -> list:
    """Bring the client's task into a state; return the actions of its last step."""
    name = token(client)
    steps = {
        "accepted": lambda: collection.accepted(client, name, now),
        "fetching": lambda: collection.fetching(client, name, now),
        "working": lambda: collection.fetched(client, name, now),
        "waiting": lambda: collection.finished(client, name, SIZE, now),
        "uploading": lambda: collection.upload_began(client, name, now),
        "settled": lambda: collection.received(client, name, collection.tasks[client].uploads, now),
    }
    order = list(steps)
    present = collection.tasks[client].state
    begin = order.index(present) + 1 if present in order else 0
    actions = []
    for step in order[begin : order.index(state) + 1]:
        actions = steps[step]()
    return actions


def state_of(collection: AnswerCollection, client: int) -> TaskState:
    return collection.tasks[client].state


def test_closes_when_every_task_has_ended() -> None:
    collection = collect(5)
    assert bring(collection, 0, "settled", 1.0) == []
    assert collection.declined(1, token(1), "on battery", 2.0) == []
    assert collection.failed(2, token(2), "no private state", 3.0) == []
    assert collection.left(3, "goodbye", 4.0) == [SendWithdraw(3, "goodbye")]
    bring(collection, 4, "uploading", 5.0)
    assert collection.rejected(4, token(4), 1, "not finite", 6.0) == [Close("all tasks have ended")]
    assert collection.closed == "all tasks have ended"
    ends = ["settled", "declined", "failed", "lost", "rejected"]
    assert [collection.tasks[client].state for client in range(5)] == ends
    assert [collection.tasks[client].reason for client in range(5)] == [
        "", "on battery", "no private state", "goodbye", "not finite",
    ]  # fmt: skip


def test_closes_when_the_planned_number_is_received() -> None:
    collection = collect(4, planned=2)
    bring(collection, 1, "settled", 1.0)
    bring(collection, 2, "waiting", 2.0)
    assert bring(collection, 3, "settled", 3.0) == [
        SendWithdraw(0, "all 2 planned answers received"),
        SendWithdraw(2, "all 2 planned answers received"),
        Close("all 2 planned answers received"),
    ]
    assert (state_of(collection, 0), state_of(collection, 2)) == (TaskState.WITHDRAWN, TaskState.LATE)


def test_closes_when_the_fraction_is_received_and_the_grace_period_over() -> None:
    collection = collect(10)
    for client in range(10):
        bring(collection, client, "accepted", 1.0)
    for client in range(9):
        assert collection.next_wake() == 60.0  # the first lease check
        bring(collection, client, "settled", 10.0 + client)
    assert collection.next_wake() == 18.0 + 30.0
    assert collection.tick(47.9) == []
    assert collection.tick(48.0)[-1] == Close("9 of 10 answers received, and 30 s passed")
    assert state_of(collection, 9) == TaskState.LATE
    assert collection.next_wake() is None


def test_grace_period_does_not_restart_with_each_answer() -> None:
    collection = collect(4, RULES._replace(fraction=0.5))
    for client in range(4):
        bring(collection, client, "accepted", 1.0)
    for client, now in enumerate((2.0, 3.0, 20.0)):
        bring(collection, client, "settled", now)
    assert collection.next_wake() == 33.0
    assert isinstance(collection.tick(33.0)[-1], Close)


def test_grace_period_restarts_when_more_clients_accept() -> None:
    collection = collect(2)
    bring(collection, 0, "settled", 1.0)  # the only one that accepted
    assert collection.next_wake() == 31.0
    bring(collection, 1, "accepted", 20.0)
    collection.beat(1, token(1), 50.0)
    assert collection.tick(60.0) == []
    assert bring(collection, 1, "settled", 70.0) == [Close("all tasks have ended")]


def test_an_evaluation_waits_for_clients_that_have_not_accepted_yet() -> None:
    collection = collect(2, evaluation_rules(NetOptions(evaluate_s=50.0, lease_s=60.0)))
    assert bring(collection, 0, "settled", 1.0) == []
    assert collection.tick(2.0) == []
    bring(collection, 1, "accepted", 3.0)
    assert collection.tick(49.0) == []
    assert collection.tick(50.0)[-1] == Close("the deadline of 50 s has passed")


def test_verdict_on_an_old_upload_does_not_affect_a_newer_one() -> None:
    """The gate examines an upload that the client has abandoned meanwhile; the next one may be valid."""
    collection = collect(1)
    bring(collection, 0, "uploading", 1.0)
    collection.upload_broke(0, token(0), 1, 2.0)
    collection.upload_began(0, token(0), 3.0)
    (found,) = collection.rejected(0, token(0), 1, "cut short", 4.0)
    assert isinstance(found, Ignore)
    assert (state_of(collection, 0), collection.closed) == (TaskState.UPLOADING, None)
    assert collection.received(0, token(0), 2, 5.0) == [Close("all tasks have ended")]


def test_rejected_answers_do_not_count_as_received() -> None:
    rules = RULES._replace(fraction=0.5)
    collection = collect(4, rules, planned=2)
    for client in range(4):
        bring(collection, client, "uploading", 1.0)
    assert collection.rejected(0, token(0), 1, "too large", 2.0) == []
    assert bring(collection, 1, "settled", 3.0) == []
    assert collection.next_wake() == 60.0  # no grace period yet: 1 of 4
    assert isinstance(bring(collection, 2, "settled", 4.0)[-1], Close)


def test_fraction_is_robust_to_rounding() -> None:
    rules = RULES._replace(fraction=0.55, grace_s=0.0)  # 0.55 * 100 = 55.00000000000001
    collection = collect(100, rules)
    for client in range(100):
        bring(collection, client, "accepted", 1.0)
    for client in range(54):
        assert bring(collection, client, "settled", 2.0) == []
    assert isinstance(bring(collection, 54, "settled", 3.0)[-1], Close)


@pytest.mark.parametrize("by_tick", [True, False], ids=("tick", "event"))
def test_closes_at_the_deadline_whatever_happens(by_tick: bool) -> None:
    collection = collect(2, RULES._replace(deadline_s=100.0))
    for now in (50.0, 99.9):
        collection.beat(0, token(0), now)
        bring(collection, 1, "uploading", now)
        assert collection.closed is None
    actions = collection.tick(100.0) if by_tick else collection.received(1, token(1), 1, 100.0)
    reason = "the deadline of 100 s has passed"
    expected = [SendWithdraw(0, reason), SendWithdraw(1, reason), Close(reason)]
    late = Ignore(1, f"the task has ended as late: {reason}", TaskState.LATE)
    assert actions == (expected if by_tick else [*expected, late])
    assert (state_of(collection, 0), state_of(collection, 1)) == (TaskState.WITHDRAWN, TaskState.LATE)


def test_exchange_without_clients_closes_at_once() -> None:
    collection = AnswerCollection(RULES, {}, 0, Grants(1), 0.0)
    assert collection.start([], 0.0) == [Close("all tasks have ended")]


def test_a_client_that_never_connects_is_lost_after_a_lease() -> None:
    collection = collect(2, connected=1)
    bring(collection, 0, "accepted", 50.0)
    assert collection.tick(59.9) == []
    assert collection.tick(60.0) == []
    assert (state_of(collection, 0), state_of(collection, 1)) == (TaskState.ACCEPTED, TaskState.LOST)
    assert collection.next_wake() == 110.0
    assert collection.tick(110.0) == [
        SendWithdraw(0, "the lease of 60 s has expired"),
        Close("all tasks have ended"),
    ]


def test_a_client_that_connects_later_gets_its_offer() -> None:
    collection = collect(2, connected=1)
    assert collection.connected(1, 59.0) == [SendOffer(1)]
    assert collection.connected(5, 59.0) == []  # not asked
    collection.beat(0, token(0), 59.0)
    assert collection.tick(118.9) == []  # its lease began when it connected


@pytest.mark.parametrize("state", ["offered", "accepted", "fetching", "working", "waiting", "uploading"])
def test_a_client_that_reconnects_is_offered_its_task_again(state: str) -> None:
    collection = collect(2)
    if state != "offered":
        bring(collection, 0, state, 1.0)
    collection.disconnected(0, 10.0)
    assert collection.tick(50.0) == []
    assert collection.connected(0, 50.0) == [SendOffer(0)]
    assert state_of(collection, 0) == state
    if state in ("waiting", "uploading"):
        assert collection.finished(0, token(0), SIZE, 52.0) == [SendGrant(0)]
    bring(collection, 0, "settled", 53.0)
    assert state_of(collection, 0) == TaskState.SETTLED


def test_client_cut_off_longer_than_the_lease_is_lost() -> None:
    collection = collect(2)
    bring(collection, 0, "working", 1.0)
    collection.disconnected(0, 10.0)
    collection.beat(1, token(1), 50.0)
    assert collection.tick(61.0) == []
    assert state_of(collection, 0) == TaskState.LOST
    assert collection.connected(0, 62.0) == []
    refused = collection.finished(0, token(0), SIZE, 63.0)
    assert refused == [Ignore(0, "the task has ended as lost: the lease of 60 s has expired", TaskState.LOST)]


def test_restarted_client_starts_over() -> None:
    collection = collect(2, grants=Grants(SIZE))
    bring(collection, 0, "uploading", 1.0)
    assert bring(collection, 1, "waiting", 1.0) == []
    assert collection.fetching(0, token(0), 20.0) == [SendGrant(1)]
    assert state_of(collection, 0) == TaskState.FETCHING
    assert ignored(collection.received(0, token(0), 1, 21.0))


def test_grants_go_to_connected_clients_in_order_of_finishing() -> None:
    collection = collect(4, grants=Grants(SIZE))
    assert [bring(collection, client, "waiting", 1.0) for client in (2, 0, 1, 3)] == [[SendGrant(2)], [], [], []]
    assert collection.disconnected(0, 2.0) == []
    bring(collection, 2, "uploading", 3.0)
    assert collection.received(2, token(2), 1, 4.0) == [SendGrant(1)]
    assert collection.disconnected(1, 5.0) == [SendGrant(3)]  # before its upload began


def test_broken_upload_waits_for_another_grant() -> None:
    collection = collect(2, grants=Grants(SIZE))
    bring(collection, 0, "uploading", 1.0)
    bring(collection, 1, "waiting", 1.0)
    assert collection.upload_broke(0, token(0), 1, 2.0) == [SendGrant(1)]
    assert state_of(collection, 0) == TaskState.WAITING
    bring(collection, 1, "uploading", 3.0)
    assert collection.received(1, token(1), 1, 4.0) == [SendGrant(0)]
    bring(collection, 0, "uploading", 5.0)
    assert collection.tasks[0].uploads == 2
    for event in (collection.upload_broke, collection.received):  # of the first upload
        assert ignored(event(0, token(0), 1, 6.0))
    assert collection.received(0, token(0), 2, 7.0) == [Close("all tasks have ended")]
    assert collection.tasks[0].seconds() == (0.0, 0.0, 1.0 + 2.0, 7.0)


def test_repeated_upload_starts_from_the_first_byte() -> None:
    collection = collect(2)
    bring(collection, 0, "uploading", 1.0)
    collection.progress(0, token(0), 1, SIZE - 1, 2.0)
    collection.upload_broke(0, token(0), 1, 3.0)
    bring(collection, 0, "uploading", 4.0)
    assert collection.progress(0, token(0), 2, SIZE, 5.0) == []
    assert state_of(collection, 0) == TaskState.UPLOADING


def test_an_answer_of_another_size_is_queued_with_that_size() -> None:
    grants = Grants(SIZE)
    collection = collect(2, grants=grants)
    bring(collection, 0, "waiting", 1.0)
    assert collection.finished(0, token(0), 40, 2.0) == [SendGrant(0)]
    assert (grants.used_bytes, collection.tasks[0].size) == (40, 40)


def test_held_client_that_is_disconnected_loses_its_place() -> None:
    grants = Grants(SIZE, min_rate=1.0)
    collection = collect(2, grants=grants)
    bring(collection, 0, "uploading", 0.0)
    bring(collection, 1, "waiting", 1.0)
    collection.disconnected(0, 2.0)
    assert collection.tick(10.0) == [SendHold(0), SendGrant(1)]
    assert grants.waiting == ()
    assert collection.connected(0, 11.0) == [SendOffer(0)]
    assert collection.finished(0, token(0), SIZE, 11.0) == []
    assert grants.waiting == (0,)


def test_a_slow_upload_is_held_while_others_wait() -> None:
    collection = collect(2, grants=Grants(SIZE, min_rate=1.0))
    bring(collection, 0, "uploading", 0.0)
    bring(collection, 1, "waiting", 1.0)
    assert collection.progress(0, token(0), 1, 9, 9.0) == []
    assert collection.next_wake() == 10.0
    assert collection.tick(10.0) == [SendHold(0), SendGrant(1)]
    assert state_of(collection, 0) == TaskState.WAITING
    assert ignored(collection.progress(0, token(0), 1, 1, 11.0))
    assert ignored(collection.upload_began(0, token(0), 11.0))


def test_complete_upload_is_not_held_while_the_gate_examines_it() -> None:
    collection = collect(2, grants=Grants(SIZE, min_rate=1.0))
    bring(collection, 0, "uploading", 0.0)
    bring(collection, 1, "waiting", 1.0)
    assert collection.progress(0, token(0), 1, SIZE, 2.0) == [SendGrant(1)]
    collection.beat(1, token(1), 50.0)
    assert SendHold(0) not in collection.tick(50.0)
    assert collection.received(0, token(0), 1, 51.0) == []
    assert collection.tasks[0].state == TaskState.SETTLED


def test_more_bytes_than_announced_are_rejected() -> None:
    collection = collect(2)
    bring(collection, 0, "uploading", 0.0)
    collection.progress(0, token(0), 1, SIZE, 1.0)
    reason = f"expected an answer of {SIZE} bytes, as announced, got at least {SIZE + 1}"
    assert collection.progress(0, token(0), 1, 1, 2.0) == [Ignore(0, reason, TaskState.REJECTED)]
    assert state_of(collection, 0) == TaskState.REJECTED


def test_payload_streams_may_overtake_the_control_stream() -> None:
    collection = collect(2)
    assert collection.fetching(0, token(0), 1.0) == []
    assert collection.accepted(0, token(0), 2.0) == []
    assert state_of(collection, 0) == TaskState.FETCHING
    assert collection.finished(0, token(0), SIZE, 3.0) == [SendGrant(0)]
    assert ignored(collection.fetched(0, token(0), 4.0))
    assert state_of(collection, 0) == TaskState.WAITING


def test_unexpected_events_are_ignored() -> None:
    collection = collect(2)
    unknown = "the client has no such task in this exchange"
    assert collection.accepted(9, token(9), 1.0) == [Ignore(9, unknown)]
    assert collection.accepted(0, "stale", 1.0) == [Ignore(0, unknown)]
    assert collection.accepted(0, token(1), 1.0) == [Ignore(0, unknown)]
    assert ignored(collection.finished(0, token(0), SIZE, 1.0))
    assert ignored(collection.upload_began(0, token(0), 1.0))
    assert ignored(collection.received(0, token(0), 0, 1.0))
    assert state_of(collection, 0) == TaskState.OFFERED
    bring(collection, 0, "settled", 2.0)
    assert collection.received(0, token(0), 1, 3.0) == [Ignore(0, "the task has ended as settled", TaskState.SETTLED)]


def test_a_revoked_client_is_withdrawn() -> None:
    collection = collect(2)
    bring(collection, 0, "working", 1.0)
    assert collection.withdraw(0, "certificate revoked", 2.0) == [SendWithdraw(0, "certificate revoked")]
    assert collection.withdraw(0, "certificate revoked", 3.0) == []
    assert [task.state for task in collection.tasks.values()] == [TaskState.WITHDRAWN, TaskState.OFFERED]


def test_closed_by_the_server() -> None:
    collection = collect(1)
    assert collection.close("the server stops", 1.0) == [SendWithdraw(0, "the server stops"), Close("the server stops")]
    assert collection.close("again", 2.0) == collection.tick(3.0) == collection.connected(0, 4.0) == []
