"""A round: its states, and the transitions that its observer receives."""

from itertools import pairwise, product

import pytest

from fedge.net.actions import Close, SendOffer
from fedge.net.closing import Rules
from fedge.net.grants import Grants
from fedge.net.round import ROUND_TRANSITIONS, RoundMachine, RoundState
from fedge.net.task import TASK_TRANSITIONS, Transition
from net.records import transitions

RULES = Rules(fraction=0.9, grace_s=30.0, deadline_s=3600.0, lease_s=30.0)
FOLLOW = {
    "gathering": "open void",
    "open": "closing",
    "closing": "reducing",
    "reducing": "open committing void",
    "committing": "committed",
    "committed": "",
    "void": "",
}
WAYS = {
    "gathering": "",
    "open": "open",
    "closing": "open closing",
    "reducing": "open closing reducing",
    "committing": "open closing reducing committing",
    "committed": "open closing reducing committing committed",
    "void": "void",
}


@pytest.mark.parametrize(("before", "after"), [*product(RoundState, RoundState)])
def test_allowed_transitions(before: RoundState, after: RoundState) -> None:
    told: list[Transition] = []
    machine = RoundMachine(told.append)
    for state in WAYS[before].split():
        machine.advance(RoundState(state), 1.0)
    told.clear()
    if after in FOLLOW[before].split():
        machine.advance(after, 2.0, "why")
        assert told == [Transition("round", before, after, 2.0, None, "why")]
        assert machine.state == after
        assert machine.ended == (after in ("committed", "void"))
    else:
        with pytest.raises(ValueError, match=f"round: {before} cannot become {after}; allowed: "):
            machine.advance(after, 2.0)
        assert (machine.state, told) == (before, [])


def test_names_of_all_transitions() -> None:
    names = transitions()
    assert {"round open -> closing", "round reducing -> open", "task uploading -> settled"} <= set(names)
    rows = [*ROUND_TRANSITIONS.values(), *TASK_TRANSITIONS.values()]
    assert len(names) == len(set(names)) == sum(map(len, rows))


def test_two_exchanges_of_a_round() -> None:
    told: list[str] = []
    machine = RoundMachine(lambda transition: told.append(transition.name))
    for number in (1, 2):
        collection = machine.open_exchange(RULES, {7: f"t{number}"}, 1, Grants(1 << 20), 1.0)
        assert machine.exchange == number
        assert collection.start([7], 1.0) == [SendOffer(7)]
        collection.fetching(7, f"t{number}", 2.0)
        collection.finished(7, f"t{number}", 10, 3.0)
        collection.upload_began(7, f"t{number}", 4.0)
        assert collection.received(7, f"t{number}", 1, 5.0) == [Close("all tasks have ended")]
        assert machine.state == RoundState.CLOSING
        machine.advance(RoundState.REDUCING, 6.0)
    machine.advance(RoundState.COMMITTING, 7.0)
    machine.advance(RoundState.COMMITTED, 8.0)
    states = ["offered", "accepted", "fetching", "working", "waiting", "uploading", "settled"]
    task = [f"task {before} -> {after}" for before, after in pairwise(states)]
    rest = ["round open -> closing", "round closing -> reducing"]
    assert told == [
        "round gathering -> open",
        *task,
        *rest,
        "round reducing -> open",
        *task,
        *rest,
        "round reducing -> committing",
        "round committing -> committed",
    ]
    assert set(told) <= set(transitions())


def test_an_exchange_opens_only_when_the_last_one_is_reduced() -> None:
    machine = RoundMachine()
    machine.open_exchange(RULES, {7: "t"}, 1, Grants(1 << 20), 1.0)
    with pytest.raises(ValueError, match="round: open cannot become open"):
        machine.open_exchange(RULES, {7: "t"}, 1, Grants(1 << 20), 1.0)
