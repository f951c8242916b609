"""The types that all worlds share, with made-up seconds."""

import numpy as np
import pytest

from fedge.core.algorithm import Costs, Late, Phases, Rejected, Reply
from fedge.core.world import Spent, Timeline, answered, late_of, mean_seconds, workers


def costs_of(*seconds: tuple[float, float, float], measured: bool = True) -> Costs:
    """Return costs of clients with these seconds of download, compute and upload; bytes identify the client."""
    down, compute, up = np.array(seconds, np.float64).reshape(-1, 3).T
    costs = Costs.free(len(seconds))._replace(bytes_up=(100 * compute).astype(np.int64))
    return costs._replace(measured=Phases(down, compute, up, down + compute + up) if measured else None)


def exchange(measured: bool = True) -> Reply:
    """Clients 1 and 6 are accepted, 4 is late and 2 is rejected."""
    return Reply(
        value={},
        ids=(1, 6),
        samples=np.ones(2),
        missing=(2, 4),
        costs=costs_of((1, 2, 3), (1, 4, 1), measured=measured),
        losses=np.zeros(2),
        communicated=True,
        late=Late((4,), costs_of((2, 9, 3), measured=measured)),
        rejected=Rejected((2,), costs_of((1, 1, 1), measured=measured), ("not finite",)),
    )


def nobody() -> Reply:
    return Reply({}, (), np.zeros(0), (3,), costs_of(), np.zeros(0), communicated=False)


def test_workers_are_in_client_order() -> None:
    ids, costs = workers(exchange())
    assert ids.tolist() == [1, 2, 4, 6]
    assert costs.bytes_up.tolist() == [200, 100, 900, 400]
    assert costs.measured is not None
    assert costs.measured.finish.tolist() == [6, 3, 14, 6]


def test_seconds_are_measured_for_all_clients_or_none() -> None:
    """Clients without measured seconds cannot be placed on a timeline."""
    assert workers(exchange(measured=False))[1].measured is None
    partly = exchange()._replace(late=Late((4,), costs_of((2, 9, 3), measured=False)))
    assert workers(partly)[1].measured is None


def test_a_timeline_of_measured_seconds() -> None:
    timeline = Timeline.measured(exchange())
    assert timeline.ids.tolist() == [1, 2, 4, 6]
    assert np.stack(timeline.phases).tolist() == [[1, 1, 2, 1], [2, 1, 9, 4], [3, 1, 3, 1], [6, 3, 14, 6]]
    assert timeline.late.tolist() == [False, False, True, False]


def test_a_timeline_needs_measured_seconds() -> None:
    with pytest.raises(ValueError, match="expected costs with measured seconds, got none"):
        Timeline.measured(exchange(measured=False))


def test_late_of_marks_late_clients() -> None:
    assert late_of(exchange(), np.array([4, 5, 6])).tolist() == [True, False, False]
    assert late_of(nobody(), np.array([4, 5])).tolist() == [False, False]


def test_answered_omits_exchanges_without_answers() -> None:
    only_late = nobody()._replace(late=Late((3,), costs_of((1, 1, 1))))
    only_rejected = nobody()._replace(rejected=Rejected((3,), costs_of((1, 1, 1)), ("norm",)))
    accepted = exchange()
    found = answered([nobody(), accepted, only_late, nobody(), only_rejected])
    assert [reply is expected for reply, expected in zip(found, (accepted, only_late, only_rejected), strict=True)] == [
        True
    ] * 3


def test_mean_seconds_average_over_cells_and_sum_over_exchanges() -> None:
    first, second = Timeline.measured(exchange()), Timeline.measured(exchange()._replace(late=None, rejected=None))
    # In exchange 0 clients 1, 2 and 6 are in time in cell 0, and 1 and 6 in cell 3; in exchange 1 again 1 and 6.
    found = mean_seconds({(0, 0): first, (3, 0): second, (3, 1): second})
    assert found == pytest.approx((1 + 1, (2 + 1 + 4 + 2 + 4) / 5 + 3, (3 + 1 + 1 + 3 + 1) / 5 + 2))


def test_an_exchange_with_only_late_clients_adds_zero() -> None:
    timeline = Timeline.measured(exchange())
    assert mean_seconds({(0, 0): timeline._replace(late=np.ones(4, bool))}) == (0, 0, 0)
    assert mean_seconds({}) == (0, 0, 0)


def test_the_wait_is_the_rest_of_the_time() -> None:
    assert Spent(10.0, 1.0, 2.0, 3.0).wait == 4.0
    assert Spent(0.6, 0.1, 0.2, 0.3 + 1e-9).wait == 0.0
