"""Upload grants: the budget, the order, and slow uploads that yield."""

import math
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.net.actions import GrantAction, SendGrant, SendHold
from fedge.net.grants import Grants

MIB = 1 << 20


def test_buffer_limits_concurrent_uploads() -> None:
    grants = Grants(8 * MIB, 2 * MIB)
    for client in range(4):
        assert grants.request(client, 25 * MIB, 0.0) == [SendGrant(client)]
    assert grants.request(4, 25 * MIB, 0.0) == []
    assert grants.used_bytes == 8 * MIB
    assert grants.release(2, 1.0) == [SendGrant(4)]
    assert grants.granted == {0, 1, 3, 4}


def test_small_uploads_take_their_size() -> None:
    grants = Grants(100, 50)
    assert [bool(grants.request(client, 10, 0.0)) for client in range(11)] == [True] * 10 + [False]


def test_one_upload_is_always_allowed() -> None:
    grants = Grants(10, 50)
    assert grants.request(0, 1000, 0.0) == [SendGrant(0)]
    assert grants.request(1, 1, 0.0) == []
    assert grants.release(0, 0.0) == [SendGrant(1)]


def test_first_come_first_served_even_if_a_later_one_would_fit() -> None:
    grants = Grants(100, 100)
    grants.request(0, 60, 0.0)
    assert grants.request(1, 80, 0.0) == []
    assert grants.request(2, 10, 0.0) == []
    assert grants.waiting == (1, 2)
    assert grants.release(1, 0.0) == [SendGrant(2)]  # the first in the queue has left


def test_repeated_request_keeps_grant_or_place() -> None:
    grants = Grants(10, 10)
    grants.request(0, 10, 0.0)
    grants.request(1, 10, 0.0)
    grants.request(2, 10, 0.0)
    assert grants.request(0, 10, 1.0) == [SendGrant(0)]
    assert grants.request(1, 10, 1.0) == []
    assert grants.waiting == (1, 2)
    assert grants.used_bytes == 10


def test_a_slow_upload_yields_if_others_wait() -> None:
    grants = Grants(10, 10, min_rate=100.0)
    grants.request(0, 5000, 0.0)
    assert grants.next_wake() == math.inf  # nobody waits
    grants.progress(0, 999, 5.0)  # less than 100 bytes/s in 10 s
    grants.request(1, 5000, 6.0)
    assert grants.next_wake() == 10.0
    assert grants.tick(9.9) == []
    assert grants.tick(10.0) == [SendHold(0), SendGrant(1)]
    assert grants.waiting == (0,)
    grants.progress(1, 1000, 19.0)
    assert grants.tick(20.0) == []  # fast enough
    assert grants.release(1, 21.0) == [SendGrant(0)]


def test_slow_upload_continues_while_no_client_waits() -> None:
    grants = Grants(10, 10, min_rate=100.0)
    grants.request(0, 5000, 0.0)
    assert grants.tick(100.0) == []
    assert grants.request(1, 5000, 100.0) == [SendHold(0), SendGrant(1)]


def test_earlier_windows_do_not_count() -> None:
    grants = Grants(10, 10, min_rate=100.0)
    grants.request(0, 5000, 0.0)
    grants.request(1, 5000, 0.0)
    grants.progress(0, 100_000, 9.0)
    assert grants.tick(10.0) == []
    assert grants.tick(20.0) == [SendHold(0), SendGrant(1)]


def test_upload_that_became_fast_does_not_yield() -> None:
    grants = Grants(10, 10, min_rate=100.0)
    grants.request(0, 50_000, 0.0)
    for now in range(10, 100, 10):
        grants.progress(0, 1, float(now))
    grants.progress(0, 1000, 100.0)
    assert grants.request(1, 10, 101.0) == []


def test_a_late_tick_measures_the_rate_over_the_whole_time() -> None:
    grants = Grants(10, 10, min_rate=100.0)
    grants.request(0, 50_000, 0.0)
    grants.progress(0, 1500, 5.0)
    assert grants.request(1, 10, 20.0) == [SendHold(0), SendGrant(1)]  # 75 bytes/s


def test_no_more_uploads_are_held_than_clients_wait() -> None:
    grants = Grants(20, 10, min_rate=100.0)
    for client in range(3):
        grants.request(client, 50, 0.0)
    assert grants.tick(10.0) == [SendHold(0), SendGrant(2)]
    assert grants.granted == {1, 2}


def test_without_a_minimum_rate_no_upload_is_held() -> None:
    grants = Grants(10, 10, min_rate=0.0)
    grants.request(0, 10, 0.0)
    grants.request(1, 10, 0.0)
    assert grants.next_wake() == math.inf
    assert grants.tick(1e6) == []


def test_two_slow_clients_taking_turns_both_finish() -> None:
    grants = Grants(10, 10, min_rate=100.0)
    size, rate = 1000, 25  # 40 s each, from the start after each hold
    now, sent, done = 0.0, {0: 0, 1: 0}, []
    for client in (0, 1):
        grants.request(client, size, now)
    while len(done) < 2:
        now += 1.0
        (client,) = grants.granted
        sent[client] += rate
        actions = grants.progress(client, rate, now) + grants.tick(now)
        if sent[client] == size and client in grants.granted:
            done.append(client)
            actions += grants.release(client, now)
        for action in actions:
            sent[action.client] = 0
        assert now < 300  # windows of 10, 20 and 40 s, each twice, and 40 s in which both finish: 180 s
    assert sorted(done) == [0, 1]


def test_client_that_never_uploads_yields() -> None:
    grants = Grants(10, 10, min_rate=1.0)
    grants.request(0, 10, 0.0)
    grants.request(1, 10, 0.0)
    assert grants.tick(10.0) == [SendHold(0), SendGrant(1)]


class Sender(NamedTuple):
    """A client with a simulated upload, which starts over after each hold."""

    size: int
    rate: int  # bytes/s
    asks_at: int


@settings(max_examples=200, deadline=None)
@given(
    senders=st.lists(
        st.builds(Sender, st.integers(0, 400), st.sampled_from([1, 5, 10, 50, 1000]), st.integers(0, 30)),
        min_size=1,
        max_size=8,
    ),
    buffer_bytes=st.integers(1, 500),
    stream_bytes=st.integers(1, 300),
    min_rate=st.sampled_from([0.0, 4.0, 20.0, 1e6]),
)
def test_every_upload_is_granted_and_finishes(
    senders: list[Sender], buffer_bytes: int, stream_bytes: int, min_rate: float
) -> None:
    grants = Grants(buffer_bytes, stream_bytes, min_rate)
    sent: dict[int, int] = {}
    first_grants: list[int] = []
    done: set[int] = set()

    def carry_out(actions: list[GrantAction]) -> None:
        for action in actions:
            if isinstance(action, SendHold):
                assert len(grants.granted) > 0  # it yields to a waiting client
                del sent[action.client]
            else:
                sent[action.client] = 0
                if action.client not in first_grants:
                    first_grants.append(action.client)
        assert sent.keys() == grants.granted
        cost = {client: min(senders[client].size, stream_bytes) for client in range(len(senders))}
        assert grants.used_bytes == sum(cost[client] for client in grants.granted)
        assert grants.used_bytes <= buffer_bytes or len(grants.granted) == 1
        if grants.waiting:
            assert grants.granted
            assert grants.used_bytes + cost[grants.waiting[0]] > buffer_bytes

    # In turn, with windows that double until they suffice: at most 4 times as long as undisturbed, plus 10 s.
    patience = 30 + sum(4 * sender.size / sender.rate + 20 for sender in senders) * len(senders)
    now = 0
    while len(done) < len(senders):
        for client, sender in enumerate(senders):
            if sender.asks_at == now:
                carry_out(grants.request(client, sender.size, float(now)))
        now += 1
        for client in list(sent):
            if client in sent:  # it may have been held meanwhile
                sent[client] += senders[client].rate
                carry_out(grants.progress(client, senders[client].rate, float(now)))
            if sent.get(client, -1) >= senders[client].size:
                done.add(client)
                del sent[client]
                carry_out(grants.release(client, float(now)))
        if grants.next_wake() <= now:
            carry_out(grants.tick(float(now)))
        assert now <= patience
    assert grants.used_bytes == 0
    order = sorted(range(len(senders)), key=lambda client: (senders[client].asks_at, client))
    assert first_grants == order  # first come, first served


def test_slow_uploads_leave_room_for_others() -> None:
    """A stream at 100 kB/s does not buffer 8 MiB: once its rate is measured, others may upload as well."""
    grants = Grants(16 << 20)
    for client in range(4):
        grants.request(client, 25_000_000, 0.0)
    assert grants.granted == {0, 1}
    assert grants.progress(0, 50_000, 0.5) == []
    assert grants.used_bytes == 16 << 20
    assert grants.progress(0, 50_000, 1.0) == []  # 8 MiB are not free yet
    assert grants.progress(1, 100_000, 1.0) == [SendGrant(2)]
    assert grants.used_bytes == (8 << 20) + 2 * (1 << 18)
    assert grants.progress(0, 30_000_000, 2.0) == []  # it became fast, and takes the rest of the buffer
    assert grants.used_bytes == 16 << 20
    assert grants.release(2, 2.0) == [SendGrant(3)]
    assert grants.used_bytes == 16 << 20
