import numpy as np
import pytest
import torch

from fedge.core.algorithm import Costs, Reply
from fedge.edge.clock import Times
from fedge.edge.ledger import COSTS, Ledger

NO_TIME = Times()


def reply(ids: tuple[int, ...], down: int, up: list[int], communicated: bool = True) -> Reply:
    """Every client takes 3 steps and 1000 FLOPs."""
    number = len(ids)
    costs = Costs(
        bytes_down=np.full(number, down, np.int64),
        bytes_up=np.array(up, np.int64),
        steps=np.full(number, 3, np.int64),
        batches=np.full(number, 7, np.int64),
        flops=np.full(number, 1000, np.int64),
    )
    return Reply({}, ids, np.ones(number), (), costs, np.zeros(number), communicated)


def two_rounds() -> Ledger:
    ledger = Ledger()
    ledger.charge([reply((0, 2), 100, [10, 20])], Times(5.0, 1.0, 2.0, 0.5))
    # a round of two exchanges: flags from both, then a model from client 2
    ledger.charge([reply((1, 2), 40, [1, 1], communicated=False), reply((2,), 30, [200])], Times(2.0, 0.5, 0.5, 0.5))
    return ledger


def test_the_record_of_a_round() -> None:
    ledger = Ledger()
    exchanges = [reply((1, 2), 40, [1, 1], communicated=False), reply((2,), 30, [200])]
    assert ledger.charge(exchanges, Times(2.0, 0.5, 0.75, 0.25)) == {
        "messages": 6,  # down and up, for each client of each exchange
        "bytes_down": 2 * 40 + 30,
        "bytes_up": 202,
        "local_steps": 9,
        "flops": 3000,
        "sim_seconds": 2.0,
        "sim_down_s": 0.5,
        "sim_compute_s": 0.75,
        "sim_up_s": 0.25,
        "sim_wait_s": 0.5,
    }


def test_a_void_round_costs_nothing() -> None:
    record = Ledger().charge([reply((), 100, [])], NO_TIME)
    assert {record[name] for name in COSTS} == {0}


def test_totals_add_up() -> None:
    assert two_rounds().totals == {
        "messages": 10,
        "bytes_down": 310,
        "bytes_up": 232,
        "local_steps": 15,
        "flops": 5000,
        "sim_seconds": 7.0,
    }


def test_accounts_of_clients() -> None:
    """Rounds count once, whatever the number of exchanges; communications are uploads of a model."""
    assert list(two_rounds().clients()) == [
        {"client": 0, "rounds": 1, "communications": 1, "bytes_down": 100, "bytes_up": 10},
        {"client": 1, "rounds": 1, "communications": 0, "bytes_down": 40, "bytes_up": 1},
        {"client": 2, "rounds": 2, "communications": 2, "bytes_down": 170, "bytes_up": 221},
    ]


@pytest.mark.parametrize("make", [Ledger, two_rounds], ids=["empty", "two rounds"])
def test_a_restored_ledger_goes_on_where_it_was(make: type[Ledger]) -> None:
    before, after = make(), Ledger()
    state = {name: value.clone() for name, value in before.state().items()}
    after.restore(dict(before.totals), state)
    assert after.totals == before.totals
    assert list(after.clients()) == list(before.clients())
    for ledger in (before, after):
        ledger.charge([reply((0, 5), 10, [1, 2])], Times(1.0))
    assert after.totals == before.totals
    assert list(after.clients()) == list(before.clients())


def test_what_it_was_restored_from_stays() -> None:
    state, totals = two_rounds().state(), two_rounds().totals
    saved = state["accounts"].clone()
    ledger = Ledger()
    ledger.restore(totals, state)
    ledger.charge([reply((0,), 10, [1])], NO_TIME)
    assert torch.equal(state["accounts"], saved)
    assert totals == two_rounds().totals
