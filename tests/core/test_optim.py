from math import sqrt

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedge.core.optim import Optimiser, make_optimiser

CLIENT = ("sgdm", "rmsprop", "adam")


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def make(name: str, **options: object) -> Optimiser:
    """Make an optimiser with simple numbers: m, and v of rmsprop, decay by 1/2; v with m decays by 3/4."""
    chosen = {"beta": 0.5, "beta2": 0.75, "epsilon": 1.0, "v0": 0.0, "bias_correction": False, **options}
    return make_optimiser(name, **chosen)  # type: ignore[arg-type]


def lists(tree: dict[str, Tensor]) -> dict[str, list[float]]:
    return {name: value.tolist() for name, value in tree.items()}


# ---------------------------------------------------------------- statistics


@pytest.mark.parametrize(
    ("name", "names"),
    [("sgdm", ("m",)), ("rmsprop", ("v",)), ("adagrad", ("v",)), ("adam", ("m", "v")), ("yogi", ("m", "v"))],
)
def test_initial_statistics(name: str, names: tuple[str, ...]) -> None:
    optimiser = make(name, v0=0.25)
    assert optimiser.names == names
    start = {"m": [0, 0], "v": [0.25, 0.25]}
    assert lists(optimiser.init(vector(5, 6))) == {which: start[which] for which in names}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sgdm", {"m": [3, 0]}),  # m/2 + g/2
        ("rmsprop", {"v": [6, 2]}),  # v/2 + g^2/2
        ("adam", {"m": [3, 0], "v": [7, 1]}),  # v*3/4 + g^2/4
        ("adagrad", {"v": [12, 4]}),  # v + g^2
        ("yogi", {"m": [3, 0], "v": [7, 1]}),  # v - g^2/4 * sign(v - g^2): 8 - 1, 0 + 1
    ],
)
def test_track_by_hand(name: str, expected: dict[str, list[float]]) -> None:
    s = {"m": vector(4, -2), "v": vector(8, 0)}
    assert lists(make(name).track(s, vector(2, 2))) == expected
    assert lists(s) == {"m": [4, -2], "v": [8, 0]}  # the input is unchanged


def test_yogi_keeps_a_second_moment_that_equals_the_squared_gradient() -> None:
    s = {"m": vector(0), "v": vector(4)}
    assert make("yogi").track(s, vector(2))["v"].tolist() == [4]
    assert make("yogi").track(s, vector(4))["v"].tolist() == [8]  # 4 + 16/4: grows no faster than by g^2


# ---------------------------------------------------------------- directions


@pytest.mark.parametrize(("name", "direction"), [("sgdm", 6), ("rmsprop", 3), ("adagrad", 3), ("adam", 2), ("yogi", 2)])
def test_epsilon_is_outside_the_root(name: str, direction: float) -> None:
    optimiser = make(name)
    assert optimiser.past(vector(3)) == {}
    # m = 6, g = 9 and sqrt(4) + 1 = 3: m, g/3 or m/3
    assert optimiser.move({"m": vector(6), "v": vector(4)}, vector(9), {}, 1).tolist() == [direction]


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("sgdm", 8),  # 7/(1 - 1/8)
        ("rmsprop", 5 / (sqrt(9 * 37 / 64 / (1 - 1 / 8)) + 1)),  # its v decays by 1/2
        ("adagrad", 5 / (sqrt(9 * 37 / 64) + 1)),  # a sum is not biased
        ("adam", 2),  # v/(1 - 27/64) = 9: 8/(3 + 1)
        ("yogi", 2),
    ],
)
def test_bias_correction_counts_earlier_and_current_steps(name: str, direction: float) -> None:
    optimiser = make(name, bias_correction=True)
    past = optimiser.past(vector(1))  # t = 1 step before and 2 since are 3
    found = optimiser.move({"m": vector(7), "v": vector(9 * 37 / 64)}, vector(5), past, 2)
    assert found.item() == pytest.approx(direction, abs=1e-14)


def test_the_first_corrected_step_has_the_size_of_the_rate() -> None:
    optimiser = make_optimiser("adam", 0.9, 0.999, epsilon=1e-7, v0=0.0, bias_correction=True)
    g = vector(3, -0.5, 1e-5)
    s = optimiser.track(optimiser.init(g), g)
    # corrected m is g and corrected v is g^2: g/(|g| + eps)
    expected = [3 / (3 + 1e-7), -0.5 / (0.5 + 1e-7), 1e-5 / (1e-5 + 1e-7)]
    assert optimiser.move(s, g, optimiser.past(vector(0)), 1).tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("epsilon", [1e-7, 0.1])
@pytest.mark.parametrize("name", ["adam", "rmsprop", "adagrad"])
def test_steps_equal_those_of_torch(name: str, epsilon: float) -> None:
    """Adam with bias correction; RMSprop and Adagrad without."""
    optimiser = make_optimiser(name, 0.9, 0.999, epsilon, v0=0.0, bias_correction=name == "adam")  # type: ignore[arg-type]
    theirs = torch.nn.Parameter(vector(1, -2, 3))
    peers = {
        "adam": lambda: torch.optim.Adam([theirs], lr=0.1, betas=(0.9, 0.999), eps=epsilon),
        "rmsprop": lambda: torch.optim.RMSprop([theirs], lr=0.1, alpha=0.9, eps=epsilon),
        "adagrad": lambda: torch.optim.Adagrad([theirs], lr=0.1, eps=epsilon),
    }
    peer = peers[name]()
    y = theirs.detach().clone()
    s, past = optimiser.init(y), optimiser.past(vector(0))
    for step in range(5):
        g = y - vector(0, 1, -1)
        s = optimiser.track(s, g)
        y = y - 0.1 * optimiser.move(s, g, past, step + 1)
        theirs.grad = theirs.detach() - vector(0, 1, -1)
        peer.step()
        assert y.tolist() == pytest.approx(theirs.tolist(), abs=1e-13)


@pytest.mark.parametrize(("name", "direction"), [("sgdm", 4), ("rmsprop", 0.8), ("adam", 0.8)])
def test_without_decay_only_the_gradient_counts(name: str, direction: float) -> None:
    optimiser = make(name, beta=0.0, beta2=0.0)
    s = optimiser.track({"m": vector(7), "v": vector(9)}, vector(4))
    assert optimiser.move(s, vector(4), {}, 1).item() == pytest.approx(direction, rel=1e-15)  # 4 or 4/(4 + 1)


def test_a_block_equals_its_rows() -> None:
    optimiser = make_optimiser("adam", 0.9, 0.99, 1e-3, v0=1.0, bias_correction=True)
    m, v = vector(1, 2, 3, 4).view(2, 2), vector(4, 9, 16, 25).view(2, 2)
    past = optimiser.past(vector(0, 10).view(2, 1))  # the rows have taken different numbers of steps
    block = optimiser.move({"m": m, "v": v}, torch.zeros(2, 2), past, 1)
    for row, t in ((0, 1), (1, 11)):
        expected = [
            a / (1 - 0.9**t) / (sqrt(b / (1 - 0.99**t)) + 1e-3)
            for a, b in zip(m[row].tolist(), v[row].tolist(), strict=True)
        ]
        assert block[row].tolist() == pytest.approx(expected, rel=1e-12)


# ---------------------------------------------------------------- fixed statistics: U and its inverse


@pytest.mark.parametrize(
    ("name", "a", "b"),
    [
        ("sgdm", [4], 0.25),  # 3/4*m + 1/4*g
        ("rmsprop", None, [0.5]),  # g/(sqrt(1) + 1)
        ("adam", [2], [0.125]),
    ],
)
def test_the_update_is_linear_in_the_gradient(name: str, a: list[float] | None, b: float | list[float]) -> None:
    s = {"m": vector(16 / 3), "v": vector(1)}
    found_a, found_b = make(name, beta=0.75).linear(s)
    assert (found_a if found_a is None else found_a.tolist()) == a
    assert (found_b.tolist() if isinstance(found_b, Tensor) else found_b) == b


@pytest.mark.parametrize(("name", "gain"), [("sgdm", 0.25), ("adam", 0.25), ("rmsprop", 1)])
def test_the_gain_is_the_share_of_the_gradient(name: str, gain: float) -> None:
    assert make(name, beta=0.75).gain == gain


numbers = st.floats(-1, 1, width=32)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-3)])
@pytest.mark.parametrize("name", CLIENT)
@given(
    gradients=st.lists(st.tuples(numbers, numbers), min_size=1, max_size=10),
    x=numbers,
    m=numbers,
    v=st.floats(0.125, 4, width=32),
    beta=st.sampled_from([0.0, 0.5, 0.9]),
)
@settings(max_examples=15, deadline=None)
def test_the_inverse_of_fixed_steps_is_the_mean_gradient(
    name: str,
    dtype: torch.dtype,
    tolerance: float,
    gradients: list[tuple[float, float]],
    x: float,
    m: float,
    v: float,
    beta: float,
) -> None:
    """For K steps with arbitrary gradients, including K equal ones."""
    optimiser = make_optimiser(name, beta, 0.99, 1e-3, v0=1.0, bias_correction=False)  # type: ignore[arg-type]
    rows = torch.tensor(gradients, dtype=dtype)
    s = {"m": torch.full((2,), m, dtype=dtype), "v": torch.full((2,), v, dtype=dtype)}
    a, b = optimiser.linear(s)
    start = torch.full((2,), x, dtype=dtype)
    y = start
    for g in rows:
        y = y - 0.1 * ((0 if a is None else a) + b * g)
    found = optimiser.invert(s, (start - y) / (0.1 * len(rows)))
    torch.testing.assert_close(found, rows.mean(0), rtol=0, atol=tolerance)


# ---------------------------------------------------------------- cost


@pytest.mark.parametrize(("name", "fixed", "moving"), [("rmsprop", 5, 5), ("sgdm", 5, 8), ("adam", 8, 11)])
def test_flops_for_each_parameter(name: str, fixed: int, moving: int) -> None:
    assert (make(name).fixed_flops, make(name).moving_flops) == (fixed, moving)
