"""The measured world: how many clients are asked, and how many answers are planned."""

from __future__ import annotations

import pytest

from fedge.edge.selection import Uniform
from fedge.net.planned_round import PlannedRound
from fedge.net.world import MeasuredWorld


def world(count: int, over: float, num_connected: int) -> MeasuredWorld:
    found = MeasuredWorld(Uniform(count=count), 7, over, lambda: range(num_connected), lambda phases: phases.up)
    found.begin(20, None, True)
    return found


@pytest.mark.parametrize(
    ("count", "over", "num_connected", "asked", "planned"),
    [
        (3, 1.0, 20, 3, 3),
        (3, 1.3, 20, 4, 3),  # 3.9 clients are asked
        (1, 1.5, 20, 2, 1),
        (10, 1.5, 20, 15, 10),
        (10, 1.5, 12, 12, 10),
        (10, 1.5, 8, 8, 8),  # fewer than selected: all their answers are wanted
    ],
)
def test_over_selection_plans_the_selected_number(
    count: int, over: float, num_connected: int, asked: int, planned: int
) -> None:
    found = world(count, over, num_connected)
    (cohort,) = found.gather(1)
    assert (len(cohort.asked), found.planned(len(cohort.asked))) == (asked, planned)
    found.begin(20, PlannedRound(1, 1, 20, tuple(cohort.asked)), True)  # the same after a restart
    assert found.gather(1) == [cohort]
    assert found.planned(asked) == planned


def test_all_answers_are_planned_if_everyone_is_asked() -> None:
    found = world(3, 1.3, 12)
    (cohort,) = found.gather(1, everyone=True)
    assert (len(cohort.asked), found.planned(12)) == (12, 12)


def test_connected_clients_are_part_of_the_commit() -> None:
    """Including a client that joined after the round began, and is not among its clients yet."""
    there: list[int] = []
    before = MeasuredWorld(Uniform(count=1), 7, 1.0, lambda: there, lambda phases: phases.up)
    fresh = before.state()
    there += [0, 2, 5]
    assert fresh["connected"].shape == before.state()["connected"].shape == (1,)  # as at the start of any run
    before.begin(3, None, True)
    after = MeasuredWorld(Uniform(count=1), 7, 1.0, list, lambda phases: phases.up)
    after.restore(before.state())
    assert after.awaited == {0, 2, 5}
    after.begin(3, None, True)
    assert not after.awaited  # once connected, they may leave
