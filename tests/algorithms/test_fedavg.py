"""On `points`, two steps at rate 1/2 bring client b from w to b + (w - b)/4."""

from collections.abc import Callable

import pytest

from federation import Federation, Handmade, points, slope
from fedge.algorithms.fedavg import Dsgd, FedAvg

HALF = {"make": slope, "rate": 0.5, "steps": 2}


def test_two_rounds_by_hand() -> None:
    federation = Federation(FedAvg().build, points(0, 4), **HALF)
    federation.round()
    assert federation.weight() == 1.75  # mean of 0 + 1/4 and 4 - 3/4
    federation.round()
    assert federation.weight() == 1.9375  # mean of 1.75/4 and 4 - 2.25/4: 2 - 0.25/4


def test_clients_are_weighted_by_samples(crowd: Callable[..., Handmade]) -> None:
    federation = Federation(FedAvg().build, crowd((0, 1), (4, 3)), **HALF)
    federation.round()
    assert federation.weight() == 2.5  # (1*0.25 + 3*3.25)/4
    federation.round()
    assert federation.weight() == 2.875  # (1*2.5/4 + 3*(4 - 1.5/4))/4


def test_uniform_weighting(crowd: Callable[..., Handmade]) -> None:
    federation = Federation(FedAvg(weighting="uniform").build, crowd((0, 1), (4, 3)), **HALF)
    federation.round()
    assert federation.weight() == 1.75
    federation.round()
    assert federation.weight() == 1.9375


def test_only_the_cohort_counts() -> None:
    federation = Federation(FedAvg().build, points(0, 4, 100), **HALF)
    federation.round(cohort=(0, 1))
    assert federation.weight() == 1.75


def test_epochs_end_in_a_short_batch(crowd: Callable[..., Handmade]) -> None:
    federation = Federation(FedAvg().build, crowd((0, 5)), make=slope, rate=0.5, epochs=1, batch_size=2)
    (reply,) = federation.round().replies
    assert federation.weight() == 0.125  # three steps: 2 + 2 + 1 samples
    assert reply.costs.steps.tolist() == [3]


def test_dsgd_always_takes_one_step() -> None:
    amounts = {Dsgd().amount, Dsgd(local_steps=5).amount, Dsgd(local_epochs=3).amount}
    assert amounts == {(1, None)}
    federation = Federation(Dsgd().build, points(0, 4), make=slope, rate=0.5, steps=1)
    federation.round()
    assert federation.weight() == 1.5  # mean of 1 - 1/2 and 1 + 3/2
    federation.round()
    assert federation.weight() == 1.75


@pytest.mark.parametrize(
    ("options", "amount"),
    [({}, (None, 1)), ({"local_steps": 7}, (7, None)), ({"local_epochs": 3}, (None, 3))],
)
def test_amount_of_steps_or_epochs(options: dict[str, int], amount: tuple[int | None, int | None]) -> None:
    assert FedAvg(**options).amount == amount


def test_steps_and_epochs_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="local_steps and local_epochs exclude each other"):
        FedAvg(local_steps=1, local_epochs=1)
