"""A client's task: its transitions, its lease, and its time by phase."""

from itertools import product

import pytest

from fedge.net.task import ENDS, TASK_TRANSITIONS, ClientTask, TaskSeconds, TaskState

WAYS = {
    "offered": "",
    "accepted": "accepted",
    "fetching": "accepted fetching",
    "working": "accepted fetching working",
    "waiting": "accepted fetching working waiting",
    "uploading": "accepted fetching working waiting uploading",
    "settled": "accepted fetching working waiting uploading settled",
    "late": "accepted late",
    **{end: end for end in ("declined", "withdrawn", "lost", "rejected", "failed")},
}
"""The states on the way to each state."""
FOLLOW = {
    "offered": "accepted",
    "accepted": "fetching late",
    "fetching": "working late",
    "working": "waiting fetching late",
    "waiting": "uploading fetching late",
    "uploading": "settled waiting fetching late",
}
"""The states that may follow each state, besides the final ones that may follow any."""


def task_in(state: str) -> ClientTask:
    task = ClientTask(3, "r1-3", 0.0)
    for step in WAYS[state].split():
        task.advance(TaskState(step), 0.0)
    return task


def test_the_table_has_every_state() -> None:
    assert TASK_TRANSITIONS.keys() == set(TaskState) == WAYS.keys()
    assert {state for state, follow in TASK_TRANSITIONS.items() if not follow} == ENDS


@pytest.mark.parametrize(("before", "after"), [*product(TaskState, TaskState)])
def test_allowed_transitions(before: TaskState, after: TaskState) -> None:
    task = task_in(before)
    anywhere = "declined withdrawn lost rejected failed" if before in FOLLOW else ""
    if after in f"{FOLLOW.get(before, '')} {anywhere}".split():
        task.advance(after, 5.0, "why")
        assert (task.state, task.reason, task.entered[after], task.ended) == (after, "why", 5.0, after in ENDS)
    else:
        with pytest.raises(ValueError, match=f"task of client 3: {before} cannot become {after}; allowed: "):
            task.advance(after, 5.0)
        assert task.state == before


def test_a_lease_is_renewed_by_beats_and_by_steps() -> None:
    task = ClientTask(0, "a", 100.0)
    assert not task.expired(129.9, lease_s=30.0)
    assert task.expired(130.0, lease_s=30.0)
    task.renew(120.0)
    assert not task.expired(149.9, lease_s=30.0)
    task.advance(TaskState.ACCEPTED, 140.0)
    assert task.lease_end(30.0) == 170.0
    task.advance(TaskState.LOST, 170.0)
    assert not task.expired(1e9, lease_s=30.0)


def test_seconds_of_each_phase_with_two_grants() -> None:
    task = ClientTask(0, "a", 100.0)
    times = {
        "accepted": 101.0,
        "fetching": 103.0,
        "working": 107.0,  # 4 s down
        "waiting": 117.0,  # 10 s compute
    }
    for state, now in times.items():
        task.advance(TaskState(state), now)
    for state, now in (("uploading", 120.0), ("waiting", 123.0), ("uploading", 130.0), ("settled", 132.0)):
        task.advance(TaskState(state), now)  # 3 + 2 s up
    assert task.seconds() == TaskSeconds(down=4.0, compute=10.0, up=5.0, finish=32.0)
    assert task.entered[TaskState.UPLOADING] == 130.0


def test_seconds_of_a_client_that_started_over() -> None:
    task = ClientTask(0, "a", 0.0)
    for state, now in (
        ("accepted", 1),
        ("fetching", 2),
        ("working", 4),
        ("fetching", 9),
        ("working", 12),
        ("lost", 20),
    ):
        task.advance(TaskState(state), float(now))
    assert task.seconds() == TaskSeconds(down=2.0 + 3.0, compute=5.0 + 8.0, up=0.0, finish=20.0)
