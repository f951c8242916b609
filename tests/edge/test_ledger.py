import numpy as np
import pytest
import torch

from fedge.core.algorithm import Costs, Late, Rejected, Reply
from fedge.core.fields import COSTS
from fedge.core.world import Spent
from fedge.edge.ledger import Ledger

NO_TIME = Spent()


def costs_of(down: int, up: list[int]) -> Costs:
    """Return costs in which every client takes 3 steps and 1000 FLOPs."""
    number = len(up)
    return Costs(
        bytes_down=np.full(number, down, np.int64),
        bytes_up=np.array(up, np.int64),
        steps=np.full(number, 3, np.int64),
        batches=np.full(number, 7, np.int64),
        flops=np.full(number, 1000, np.int64),
        samples=np.full(number, 21, np.int64),
    )


def reply(ids: tuple[int, ...], down: int, up: list[int], communicated: bool = True, late: Late | None = None) -> Reply:
    number = len(ids)
    return Reply({}, ids, np.ones(number), (), costs_of(down, up), np.zeros(number), communicated, late=late)


def spent(total: float, down: float, compute: float, up: float, joules: dict[int, float] | None = None) -> Spent:
    ids, used = list(joules or {}), list((joules or {}).values())
    return Spent(total, down, compute, up, np.array(ids, np.int64), np.array(used))


def two_rounds() -> Ledger:
    ledger = Ledger()
    ledger.charge([reply((0, 2), 100, [10, 20])], spent(5.0, 1.0, 2.0, 0.5, {0: 1.5, 2: 2.5}))
    # a round of two exchanges: flags from both, then a model from client 2
    exchanges = [reply((1, 2), 40, [1, 1], communicated=False), reply((2,), 30, [200])]
    ledger.charge(exchanges, spent(2.0, 0.5, 0.5, 0.5, {1: 0.25, 2: 4.0})._replace(bytes_backhaul=70))
    return ledger


def test_the_record_of_a_round() -> None:
    ledger = Ledger()
    exchanges = [reply((1, 2), 40, [1, 1], communicated=False), reply((2,), 30, [200])]
    took = spent(2.0, 0.5, 0.75, 0.25, {1: 3.0, 2: 4.5})._replace(bytes_backhaul=1000)
    assert ledger.charge(exchanges, took) == {
        "messages": 6,  # down and up for each client of each exchange
        "bytes_down": 2 * 40 + 30,
        "bytes_up": 202,
        "bytes_backhaul": 1000,
        "local_steps": 9,
        "flops": 3000,
        "sim_seconds": 2.0,
        "energy_j": 7.5,
        "sim_down_s": 0.5,
        "sim_compute_s": 0.75,
        "sim_up_s": 0.25,
        "sim_wait_s": 0.5,
    }


def test_an_unanswered_round_costs_only_time() -> None:
    record = Ledger().charge([reply((), 100, [])], Spent(60.0))
    assert {name: record[name] for name in COSTS if record[name]} == {"sim_seconds": 60.0}
    assert record["sim_wait_s"] == 60.0


def test_late_answers_are_charged() -> None:
    ledger = Ledger()
    late = Late((5,), costs_of(100, [30]))
    record = ledger.charge([reply((0,), 100, [10], late=late)], spent(1.0, 0.0, 0.0, 0.0, {0: 1.0, 5: 2.0}))
    assert [record[name] for name in ("messages", "bytes_down", "bytes_up", "local_steps", "flops", "energy_j")] == [
        4,
        200,
        40,
        6,
        2000,
        3.0,
    ]
    # its upload was discarded, so it is not a communication
    assert list(ledger.clients()) == [
        {"client": 0, "rounds": 1, "communications": 1, "bytes_down": 100, "bytes_up": 10, "energy_j": 1.0},
        {"client": 5, "rounds": 1, "communications": 0, "bytes_down": 100, "bytes_up": 30, "energy_j": 2.0},
    ]


def test_rejected_answers_are_charged() -> None:
    ledger = Ledger()
    rejected = Rejected((3, 5), costs_of(100, [30, 7]), ("'y' is not finite", "no weight"))
    answered = reply((0,), 100, [10], late=Late((4,), costs_of(100, [2])))._replace(rejected=rejected)
    record = ledger.charge([answered], spent(1.0, 0.0, 0.0, 0.0, {3: 2.0}))
    assert {name: record[name] for name in ("messages", "bytes_down", "bytes_up", "local_steps", "flops")} == {
        "messages": 8,
        "bytes_down": 400,
        "bytes_up": 10 + 2 + 30 + 7,
        "local_steps": 12,
        "flops": 4000,
    }
    # a rejected upload is not a communication
    accounts = [(row["client"], row["rounds"], row["communications"], row["bytes_up"]) for row in ledger.clients()]
    assert accounts == [(0, 1, 1, 10), (3, 1, 0, 30), (4, 1, 0, 2), (5, 1, 0, 7)]


def test_a_round_without_any_exchange() -> None:
    """No client was available."""
    record = Ledger().charge([], Spent(60.0))
    assert {name: record[name] for name in COSTS if record[name]} == {"sim_seconds": 60.0}


def test_totals_add_up() -> None:
    assert two_rounds().totals == {
        "messages": 10,
        "bytes_down": 310,
        "bytes_up": 232,
        "bytes_backhaul": 70,
        "local_steps": 15,
        "flops": 5000,
        "sim_seconds": 7.0,
        "energy_j": 8.25,
    }


def test_accounts_of_clients() -> None:
    """Rounds count once, whatever the number of exchanges; communications are uploads of a model."""
    assert list(two_rounds().clients()) == [
        {"client": 0, "rounds": 1, "communications": 1, "bytes_down": 100, "bytes_up": 10, "energy_j": 1.5},
        {"client": 1, "rounds": 1, "communications": 0, "bytes_down": 40, "bytes_up": 1, "energy_j": 0.25},
        {"client": 2, "rounds": 2, "communications": 2, "bytes_down": 170, "bytes_up": 221, "energy_j": 6.5},
    ]


@pytest.mark.parametrize("make", [Ledger, two_rounds], ids=["empty", "two rounds"])
def test_a_restored_ledger_continues(make: type[Ledger]) -> None:
    before, after = make(), Ledger()
    state = {name: value.clone() for name, value in before.state().items()}
    after.restore(dict(before.totals), state)
    assert after.totals == before.totals
    assert list(after.clients()) == list(before.clients())
    for ledger in (before, after):
        ledger.charge([reply((0, 5), 10, [1, 2])], spent(1.0, 0.0, 0.0, 0.0, {0: 0.5, 5: 0.125}))
    assert after.totals == before.totals
    assert list(after.clients()) == list(before.clients())


def test_restoring_copies_the_state() -> None:
    state, totals = two_rounds().state(), two_rounds().totals
    saved = state["accounts"].clone()
    ledger = Ledger()
    ledger.restore(totals, state)
    ledger.charge([reply((0,), 10, [1])], NO_TIME)
    assert torch.equal(state["accounts"], saved)
    assert totals == two_rounds().totals
