"""Who may upload: the budget, the order, and slow uploads that yield."""

import math

from fedge.net.actions import SendGrant, SendHold
from fedge.net.grants import Grants

MIB = 1 << 20


def test_the_buffer_limits_how_many_upload_at_once() -> None:
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
    assert grants.release(1, 0.0) == [SendGrant(2)]  # the first of the queue has gone


def test_asked_again_a_client_keeps_what_it_has() -> None:
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


def test_a_slow_upload_goes_on_while_nobody_waits() -> None:
    grants = Grants(10, 10, min_rate=100.0)
    grants.request(0, 5000, 0.0)
    assert grants.tick(100.0) == []
    assert grants.request(1, 5000, 100.0) == [SendHold(0), SendGrant(1)]


def test_bytes_of_the_past_do_not_help() -> None:
    grants = Grants(10, 10, min_rate=100.0)
    grants.request(0, 5000, 0.0)
    grants.request(1, 5000, 0.0)
    grants.progress(0, 100_000, 9.0)
    assert grants.tick(10.0) == []
    assert grants.tick(20.0) == [SendHold(0), SendGrant(1)]


def test_two_slow_clients_that_take_turns_finish_both() -> None:
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


def test_a_client_that_never_begins_yields() -> None:
    grants = Grants(10, 10, min_rate=1.0)
    grants.request(0, 10, 0.0)
    grants.request(1, 10, 0.0)
    assert grants.tick(10.0) == [SendHold(0), SendGrant(1)]
