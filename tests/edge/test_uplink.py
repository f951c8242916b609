"""Uploads derived by hand, and compared with a simulation in small time steps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.edge.uplink import finish_times

Client = tuple[float, float, int]
"""A client: when it is ready, how long it sends, and its cell."""

WHOLE = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6), st.integers(0, 2)), max_size=12)
SECONDS = st.floats(0, 1e4)
ANY = st.lists(st.tuples(SECONDS, st.sampled_from([0.0, 0.1, 1.0]) | SECONDS, st.integers(0, 2)), max_size=30)


def arrays(clients: list[Client]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ready, transmission, cells = zip(*clients, strict=True) if clients else ((), (), ())
    return np.array(ready, float), np.array(transmission, float), np.array(cells, int)


def moment_by_moment(clients: list[Client]) -> list[int]:
    """Simulate completion times of integer inputs; in each time step one client of a cell sends."""
    finish = [ready for ready, _, _ in clients]  # of clients with nothing to send
    remaining = [transmission for _, transmission, _ in clients]
    now = 0
    while any(remaining):
        for cell in {cell for _, _, cell in clients}:
            waiting = [i for i, (ready, _, own) in enumerate(clients) if own == cell and ready <= now and remaining[i]]
            if waiting:
                sender = min(waiting, key=lambda i: (remaining[i], i))
                remaining[sender] -= 1
                finish[sender] = now + 1
        now += 1
    return finish


def last_in_order(clients: list[Client], cell: int) -> float:
    """Return when a cell's last client has sent, if clients send in the order in which they become ready."""
    now = 0.0
    for ready, transmission, _ in sorted(client for client in clients if client[2] == cell):
        now = max(now, ready) + transmission
    return now


def length_of_union(starts: np.ndarray, stops: np.ndarray) -> float:
    """Return the length of the union of intervals."""
    length, covered = 0.0, -np.inf
    for i in np.argsort(starts):
        length += max(0.0, stops[i] - max(starts[i], covered))
        covered = max(covered, stops[i])
    return length


def test_by_hand() -> None:
    one = np.zeros(3, int)
    # the first has 2 s left when the second comes with 2 s, so it continues; the third finds an idle link
    assert finish_times(np.array([0.0, 1, 10]), np.array([3.0, 2, 1]), one).tolist() == [3, 5, 11]
    assert finish_times(np.zeros(3), np.array([1.0, 2, 3]), one).tolist() == [1, 3, 6]


def test_a_client_with_less_to_send_interrupts() -> None:
    # client 0 sends until 1 and from 3 on (1 + 4 s), client 1 from 1 to 3; client 2, the longest, is last
    finish = finish_times(np.array([0.0, 1, 2]), np.array([5.0, 2, 9]), np.zeros(3, int))
    assert finish.tolist() == [7, 3, 16]


def test_cells_do_not_disturb_each_other() -> None:
    cells = np.array([7, 0, 7, 0])
    assert finish_times(np.zeros(4), np.array([2.0, 3, 1, 4]), cells).tolist() == [3, 3, 1, 7]


def test_ties_go_to_the_earlier_position() -> None:
    assert finish_times(np.zeros(3), np.full(3, 2.0), np.zeros(3, int)).tolist() == [2, 4, 6]
    # at 1 both have 2 s left, and the newcomer is listed before the sender
    assert finish_times(np.array([1.0, 0]), np.array([2.0, 3]), np.zeros(2, int)).tolist() == [3, 5]


def test_a_client_that_cannot_send_delays_no_other() -> None:
    finish = finish_times(np.array([0.0, 1, 2]), np.array([np.inf, 2, 3]), np.zeros(3, int))
    assert finish.tolist() == [np.inf, 3, 6]


def test_no_clients() -> None:
    assert finish_times(np.zeros(0), np.zeros(0), np.zeros(0, int)).shape == (0,)


@settings(max_examples=150, deadline=None)
@given(WHOLE)
def test_equals_a_time_step_simulation(clients: list[Client]) -> None:
    assert finish_times(*arrays(clients)).tolist() == moment_by_moment(clients)


@settings(max_examples=100, deadline=None)
@given(ANY)
def test_the_last_upload_finishes_as_early_as_in_any_order(clients: list[Client]) -> None:
    ready, transmission, cells = arrays(clients)
    finish = finish_times(ready, transmission, cells)
    for cell in set(cells.tolist()):
        assert finish[cells == cell].max() == pytest.approx(last_in_order(clients, cell))


@settings(max_examples=100, deadline=None)
@given(ANY)
def test_the_link_is_never_idle_while_a_client_is_ready(clients: list[Client]) -> None:
    ready, transmission, cells = arrays(clients)
    finish = finish_times(ready, transmission, cells)
    for cell in set(cells.tolist()):
        inside = cells == cell
        # some client is ready and unfinished for exactly the total transmission time: not longer, as with an idle
        # link, and not shorter, as with two concurrent senders
        busy = length_of_union(ready[inside], finish[inside])
        assert busy == pytest.approx(transmission[inside].sum(), rel=1e-9, abs=1e-7)


@settings(max_examples=100, deadline=None)
@given(ANY)
def test_waiting_times_are_not_negative(clients: list[Client]) -> None:
    ready, transmission, cells = arrays(clients)
    finish = finish_times(ready, transmission, cells)
    assert (finish >= ready + transmission).all()
    assert finish[transmission == 0].tolist() == ready[transmission == 0].tolist()


@settings(max_examples=60, deadline=None)
@given(WHOLE, st.integers(0, 1000))
def test_a_common_delay_delays_all_completions(clients: list[Client], delay: int) -> None:
    ready, transmission, cells = arrays(clients)
    later = finish_times(ready + delay, transmission, cells)
    assert later.tolist() == (finish_times(ready, transmission, cells) + delay).tolist()


@settings(max_examples=60, deadline=None)
@given(WHOLE)
def test_positions_permute_completion_times(clients: list[Client]) -> None:
    ready, transmission, cells = arrays(clients)
    finish = finish_times(ready, transmission, cells)
    reverse = finish_times(ready[::-1], transmission[::-1], cells[::-1])
    for cell in set(cells.tolist()):
        assert sorted(finish[cells == cell]) == sorted(reverse[cells[::-1] == cell])
