"""The only code that advances the server halves."""

from collections.abc import Generator, Sequence

import numpy as np
import pytest
import torch

from fedge.core.algorithm import Algorithm, Costs, Exchange, Info, Reply, drive, moved
from fedge.core.layout import Tree

INFO = Info(round=1, rate=0.1, num_steps=1, num_epochs=None, num_clients=9, seed=0)


def state(exchanges: float, total: float = 0.0) -> Tree:
    return {"exchanges": torch.tensor([exchanges]), "total": torch.tensor([total])}


def infos(*cohorts: Sequence[int]) -> list[Info]:
    return [INFO._replace(cohort=tuple(cohort)) for cohort in cohorts]


class Asking:
    """A round of as many exchanges as the state says, which adds up what it is told; notes which were closed."""

    def __init__(self, optional: bool = False) -> None:
        self.optional = optional
        self.closed: list[tuple[int, ...]] = []
        self.algorithm = Algorithm({}, init=dict, keep=dict, works={}, round=self.round, model=lambda s, v: s)

    def round(self, state: Tree, info: Info) -> Generator[Exchange, Reply, Tree]:
        total = state["total"]
        try:
            for number in range(int(state["exchanges"])):
                reply = yield Exchange(f"work {number}", {}, info.cohort, optional=self.optional)
                total = total + reply.value["u"]
        except GeneratorExit:
            self.closed.append(info.cohort)
            raise
        return {**state, "total": total}


class Answering:
    """Replies with the sum of the cohort's numbers; clients that are silent from some exchange on are missing."""

    def __init__(self, silent: dict[int, int] | None = None, asking: Asking | None = None) -> None:
        self.silent, self.asking = silent or {}, asking or Asking()
        self.calls: list[list[tuple[str, tuple[int, ...]]]] = []
        self.closed: list[int] = []  # how many rounds were closed when each call came

    def run(self, exchanges: Sequence[Exchange], infos: Sequence[Info]) -> list[Reply]:
        assert [tuple(e.cohort) for e in exchanges] == [info.cohort for info in infos]
        number = len(self.calls)
        self.closed.append(len(self.asking.closed))
        self.calls.append([(exchange.work, tuple(exchange.cohort)) for exchange in exchanges])
        return [self._reply([c for c in e.cohort if self.silent.get(c, 99) > number], e.cohort) for e in exchanges]

    def _reply(self, ids: list[int], cohort: Sequence[int]) -> Reply:
        zeros = np.zeros(len(ids))
        value = {"u": torch.tensor([float(sum(ids))])}
        missing = tuple(client for client in cohort if client not in ids)
        return Reply(value, tuple(ids), zeros, missing, Costs.free(len(ids)), zeros, communicated=True)


def test_exchanges_of_one_moment_are_one_call() -> None:
    engine = Answering()
    drive(engine, Asking().algorithm, [state(2), state(0), state(3)], infos((1,), (2,), (3, 4)))
    assert engine.calls == [
        [("work 0", (1,)), ("work 0", (3, 4))],
        [("work 1", (1,)), ("work 1", (3, 4))],
        [("work 2", (3, 4))],
    ]


def test_every_state_gets_its_own_replies() -> None:
    outcomes = drive(Answering(), Asking().algorithm, [state(2), state(0), state(3)], infos((1,), (2,), (3, 4)))
    # twice client 1, nothing, three times clients 3 and 4
    assert [float(outcome.state["total"]) for outcome in outcomes] == [2, 0, 21]
    assert [[reply.ids for reply in outcome.replies] for outcome in outcomes] == [[(1,)] * 2, [], [(3, 4)] * 3]
    assert not any(outcome.void for outcome in outcomes)


def test_a_round_that_asks_nothing_needs_no_engine() -> None:
    engine = Answering()
    (outcome,) = drive(engine, Asking().algorithm, [state(0, total=5)], infos(()))
    assert (float(outcome.state["total"]), outcome.void, engine.calls) == (5, False, [])


def test_a_void_round_leaves_the_state_and_is_closed() -> None:
    asking, before = Asking(), state(3)
    engine = Answering(silent={7: 1, 8: 1}, asking=asking)  # both answer the first exchange only
    void, other = drive(engine, asking.algorithm, [before, state(3)], infos((7, 8), (1,)))
    assert void.void
    assert void.state is before
    assert float(before["total"]) == 0
    assert [reply.ids for reply in void.replies] == [(7, 8), ()]
    assert void.replies[1].missing == (7, 8)
    assert asking.closed == [(7, 8)]
    assert engine.closed == [0, 0, 1]  # at once, not when the last of the rounds is over
    assert (float(other.state["total"]), other.void) == (3, False)  # the other state's round goes on


def test_a_round_goes_on_without_an_answer_that_is_optional() -> None:
    asking = Asking(optional=True)
    (outcome,) = drive(Answering(silent={7: 1, 8: 2}), asking.algorithm, [state(3)], infos((7, 8)))
    assert [reply.ids for reply in outcome.replies] == [(7, 8), (8,), ()]
    assert (float(outcome.state["total"]), outcome.void, asking.closed) == (23, False, [])


def test_one_answer_is_enough() -> None:
    (outcome,) = drive(Answering(silent={7: 0}), Asking().algorithm, [state(1)], infos((7, 8)))
    assert (float(outcome.state["total"]), outcome.void) == (8, False)


def test_every_state_needs_its_info() -> None:
    with pytest.raises(ValueError, match="shorter"):
        drive(Answering(), Asking().algorithm, [state(1), state(1)], infos((1,)))


@pytest.mark.parametrize(
    ("decay", "drift", "expected"),
    [(1.0, None, [0.5, 3.0]), (0.5, None, [0.0, 1.0]), (1.0, [1.0, -1.0], [1.5, 2.0]), (0.5, [1.0, -1.0], [1.0, 0.0])],
)
def test_an_affine_step_by_hand(decay: float, drift: list[float] | None, expected: list[float]) -> None:
    # decay*y + drift - 0.25*gradient with y = (1, 4), gradient = (2, 4)
    y = torch.tensor([1.0, 4.0])
    after = moved(y, torch.tensor([2.0, 4.0]), (decay, None if drift is None else torch.tensor(drift), 0.25))
    assert after.tolist() == expected
    assert y.tolist() == [1, 4]
