"""Normalisation, by given numbers and by sums that clients send."""

from typing import Any

import pytest
import torch

from fedge.core.errors import DataError
from fedge.core.layout import Tree
from fedge.data.digits import Digits
from fedge.data.divided_dataset import Divided
from fedge.data.normalise import Scaling, combine, moments_of, normaliser_of, problem_of_moments
from fedge.data.partition import Dirichlet, Iid
from fedge.data.whole import SamplePool, Whole


def test_sums_by_hand() -> None:
    sums = moments_of(torch.tensor([[1.0, 4.0], [3.0, 4.0]]))
    assert sums["count"] == 2
    assert sums["sum"].tolist() == [4, 8]
    assert sums["square"].tolist() == [10, 32]
    found = normaliser_of(sums, (2,))
    assert found.mean.tolist() == [2, 4]
    assert found.std.tolist() == [1, 1]  # the second feature is constant, and becomes zero
    images = moments_of(torch.tensor([[[[1.0, 2.0]], [[0.0, 4.0]]]]))  # one image of two channels, 1x2 pixels
    assert (images["count"], images["sum"].tolist(), images["square"].tolist()) == (2, [3, 4], [5, 16])


def test_inputs_are_shifted_and_scaled() -> None:
    scaling = Scaling(mean=[1.0, 2.0], std=2.0)
    assert scaling.normaliser((2,))(torch.tensor([[3.0, 2.0]])).tolist() == [[1, 0]]
    images = torch.ones(1, 2, 1, 1)
    assert scaling.normaliser((2, 1, 1))(images).flatten().tolist() == [0, -0.5]
    with pytest.raises(DataError, match=r"normalise\.mean: expected one number, or 3 \(one per channel\), got 2"):
        scaling.normaliser((3, 4, 4))


def test_numbers_survive_conversion_to_text() -> None:
    found = normaliser_of(moments_of(torch.randn(50, 3, generator=torch.Generator().manual_seed(1))), (3,))
    again = found.scaling().normaliser((3,))
    assert torch.equal(again.mean, found.mean)
    assert torch.equal(again.std, found.std)


@pytest.mark.parametrize("partition", [Iid(), Dirichlet(alpha=0.3)])
def test_sums_of_clients_give_the_same_bits_as_simulation(partition: Iid | Dirichlet) -> None:
    """Pixels are multiples of 1/16, whose sums are exact in any order: the same bits."""
    plain = Digits(clients=20, partition=partition).build(1)
    simulated = Digits(clients=20, partition=partition, normalise=True).build(1)
    found = normaliser_of(combine(moments_of(plain.train(client, 1).x) for client in range(20)), plain.shape)
    for client in (0, 19):
        assert torch.equal(found(plain.train(client, 1).x), simulated.train(client, 1).x)


@pytest.mark.parametrize("offset", [0.0, 100.0, 10_000.0])
def test_other_sums_differ_by_rounding(offset: float) -> None:
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(5000, 8, generator=draw) + offset
    parts = [moments_of(x[rows]) for rows in torch.randperm(5000, generator=draw).split(137)]
    found, whole = normaliser_of(combine(parts), (8,)), normaliser_of(moments_of(x), (8,))
    torch.testing.assert_close(found.mean, whole.mean, rtol=2.4e-7, atol=1e-12)  # two units in the last place
    torch.testing.assert_close(found.std, whole.std, rtol=2.4e-7, atol=0)


def test_given_numbers_normalise_all_parts() -> None:
    x, y = torch.arange(8.0).view(4, 2), torch.arange(4) % 2
    whole = Whole(SamplePool(x, y), SamplePool(x, y), 2)
    clients = Divided(clients=1, normalise=Scaling(mean=[0.0, 1.0], std=[1.0, 2.0])).divide(whole, 1)
    expected = (x - torch.tensor([0.0, 1.0])) / torch.tensor([1.0, 2.0])
    assert torch.equal(clients.train(0, 1).x, expected)
    assert torch.equal(clients.test(0, 1).x, expected)
    assert torch.equal(clients.pooled_test().x, expected)


def spoil(sums: Tree, **changes: Any) -> Tree:
    return {**sums, **{name: torch.as_tensor(value, dtype=torch.float64) for name, value in changes.items()}}


def test_impossible_sums_are_detected() -> None:
    x = torch.randn(7, 2, 3, 3, generator=torch.Generator().manual_seed(1))
    sums = moments_of(x)
    shape = (2, 3, 3)
    assert problem_of_moments(sums, shape, 7) is None
    assert problem_of_moments(moments_of(torch.full((9, 2), 0.1)), (2,), 9) is None  # constant features
    wrong = {
        "count: expected 72": (sums, 8),
        "sum: expected finite": (spoil(sums, sum=[float("nan"), 0.0]), 7),
        "square: expected finite": (spoil(sums, square=[float("inf"), 0.0]), 7),
        "square: is smaller": (spoil(sums, square=[-1.0, 1.0]), 7),
        "sum: expected float64 of shape": (spoil(sums, sum=[0.0, 0.0, 0.0]), 7),
        "count, sum and square": ({"count": sums["count"]}, 7),
        "count: expected float64": ({**sums, "count": torch.tensor(63)}, 7),
    }
    for problem, (given, size) in wrong.items():
        assert problem in str(problem_of_moments(given, shape, size))
    assert "square: is smaller" in str(problem_of_moments(spoil(sums, sum=[1e9, 0.0]), shape, 7))
