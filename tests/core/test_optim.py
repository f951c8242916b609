from math import sqrt

import pytest
import torch

from fedge.core.optim import adam


def vector(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_statistics_start_as_told() -> None:
    s = adam(0.9, 0.99, 1e-3, v0=0.25, bias_correction=False).init(vector(5, 6))
    assert {name: value.tolist() for name, value in s.items()} == {"m": [0, 0], "v": [0.25, 0.25]}


def test_track_by_hand() -> None:
    optimiser = adam(0.5, 0.75, 1e-3, v0=0.0, bias_correction=False)
    s = {"m": vector(4, -2), "v": vector(8, 0)}
    found = optimiser.track(s, vector(2, 2))
    # m = 0.5*m + 0.5*g; v = 0.75*v + 0.25*g^2
    assert found["m"].tolist() == [3, 0]
    assert found["v"].tolist() == [7, 1]
    assert s["m"].tolist() == [4, -2]  # what it was given stays


def test_epsilon_is_outside_the_root() -> None:
    optimiser = adam(0.9, 0.99, epsilon=1.0, v0=0.0, bias_correction=False)
    assert optimiser.past(vector(3)) == {}
    # m/(sqrt(v) + 1)
    assert optimiser.move({"m": vector(6), "v": vector(4)}, {}, 1).tolist() == [2]


def test_bias_correction_counts_the_steps_before_and_since() -> None:
    optimiser = adam(0.5, 0.75, epsilon=1.0, v0=0.0, bias_correction=True)
    past = optimiser.past(vector(1))
    # t = 1 step before and 2 since are 3: m/(1 - 1/8) = 8, v/(1 - 27/64) = 9, 8/(3 + 1)
    direction = optimiser.move({"m": vector(7), "v": vector(9 * 37 / 64)}, past, 2)
    assert direction.item() == pytest.approx(2, abs=1e-14)


def test_the_first_corrected_step_has_the_size_of_the_rate() -> None:
    optimiser = adam(0.9, 0.999, epsilon=1e-7, v0=0.0, bias_correction=True)
    g = vector(3, -0.5, 1e-5)
    s = optimiser.track(optimiser.init(g), g)
    # corrected m is g and corrected v is g^2: g/(|g| + eps)
    expected = [3 / (3 + 1e-7), -0.5 / (0.5 + 1e-7), 1e-5 / (1e-5 + 1e-7)]
    assert optimiser.move(s, optimiser.past(vector(0)), 1).tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("epsilon", [1e-7, 0.1])
def test_corrected_steps_are_those_of_torch(epsilon: float) -> None:
    optimiser = adam(0.9, 0.999, epsilon, v0=0.0, bias_correction=True)
    theirs = torch.nn.Parameter(vector(1, -2, 3))
    torch_adam = torch.optim.Adam([theirs], lr=0.1, betas=(0.9, 0.999), eps=epsilon)
    y = theirs.detach().clone()
    s, past = optimiser.init(y), optimiser.past(vector(0))
    for step in range(5):
        g = y - vector(0, 1, -1)
        s = optimiser.track(s, g)
        y = y - 0.1 * optimiser.move(s, past, step + 1)
        theirs.grad = theirs.detach() - vector(0, 1, -1)
        torch_adam.step()
        assert y.tolist() == pytest.approx(theirs.tolist(), abs=1e-13)


def test_a_block_is_its_rows() -> None:
    optimiser = adam(0.9, 0.99, 1e-3, v0=1.0, bias_correction=True)
    m, v = vector(1, 2, 3, 4).view(2, 2), vector(4, 9, 16, 25).view(2, 2)
    past = optimiser.past(vector(0, 10).view(2, 1))  # the rows have taken different numbers of steps
    block = optimiser.move({"m": m, "v": v}, past, 1)
    for row, t in ((0, 1), (1, 11)):
        expected = [
            a / (1 - 0.9**t) / (sqrt(b / (1 - 0.99**t)) + 1e-3)
            for a, b in zip(m[row].tolist(), v[row].tolist(), strict=True)
        ]
        assert block[row].tolist() == pytest.approx(expected, rel=1e-12)
