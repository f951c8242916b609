import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.schema import read
from fedge.data.synthetic import Synthetic


def test_a_mixture_is_a_classification() -> None:
    clients = Synthetic(clients=5, features=7, classes=3, samples=11, test_samples=4).build(seed=1)
    assert (clients.shape, clients.num_outputs, clients.task) == ((7,), 3, "classes")
    assert clients.sizes.tolist() == [11] * 5
    assert clients.num_samples(2, round=1) == 11
    train, test = clients.train(2, 1), clients.test(2, 1)
    assert (train.x.shape, train.y.shape, test.x.shape, test.y.shape) == ((11, 7), (11,), (4, 7), (4,))
    assert (train.x.dtype, train.y.dtype) == (torch.float32, torch.int64)
    assert set(train.y.tolist()) <= {0, 1, 2}


def test_a_quadratic_is_a_regression() -> None:
    clients = Synthetic(kind="quadratic", clients=5, features=7, samples=11).build(seed=1)
    assert (clients.shape, clients.num_outputs, clients.task) == ((7,), 1, "values")
    train = clients.train(2, 1)
    assert (train.x.shape, train.y.shape) == ((11, 7), (11, 1))
    assert (train.x.dtype, train.y.dtype) == (torch.float32, torch.float32)


@pytest.mark.parametrize("kind", ["mixture", "quadratic"])
def test_client_does_not_depend_on_the_round_or_the_number_of_clients(kind: str) -> None:
    few, many = (read({"kind": kind, "clients": n, "name": "synthetic"}, Synthetic).build(seed=3) for n in (5, 5000))
    many.train(4000, 1)
    for give in ("train", "test"):
        first, second = getattr(few, give)(4, 1), getattr(many, give)(4, 9)  # rounds make no difference
        assert torch.equal(first.x, second.x)
        assert torch.equal(first.y, second.y)
    assert not torch.equal(few.train(4, 1).x[:20], few.test(4, 1).x)
    assert not torch.equal(few.train(4, 1).x, few.train(3, 1).x)


@pytest.mark.parametrize("kind", ["mixture", "quadratic"])
def test_a_million_clients_cost_nothing(kind: str) -> None:
    options = read({"kind": kind, "clients": 10**6, "name": "synthetic"}, Synthetic)
    tracemalloc.start()
    clients = options.build(seed=1)
    clients.train(999_999, 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(clients.sizes) == 10**6
    assert peak < 1_000_000


def test_pooled_test_set_has_evenly_spaced_clients() -> None:
    clients = Synthetic(clients=1000, test_samples=3).build(seed=1)
    x, y = clients.pooled_test()
    assert len(x) == len(y) == 300
    assert torch.equal(x[3:6], clients.test(10, 1).x)
    assert torch.equal(x[-3:], clients.test(990, 1).x)
    assert len(Synthetic(clients=7, test_samples=3).build(seed=1).pooled_test()) == 21


def test_homogeneous_clients_share_class_means() -> None:
    alike = Synthetic(heterogeneity=0, alpha=1e6, classes=2, features=4, samples=4000, clients=2).build(seed=1)
    first, second = alike.train(0, 1), alike.train(1, 1)
    for label in (0, 1):
        means = [part.x[part.y == label].mean(0) for part in (first, second)]
        # Each is the mean of about 2000 samples of deviation 1; the standard deviation of the difference is 0.03.
        assert torch.allclose(*means, atol=0.2)
        assert abs(int((first.y == label).sum()) - 2000) < 200


def test_heterogeneity_shifts_and_alpha_skews() -> None:
    # The squared norm of a client's shift is 25 on average; its mean over 50 clients of 16 features has
    # standard deviation 25 * sqrt(2 / 800) = 1.25.
    options = {"classes": 2, "features": 16, "samples": 400, "clients": 50, "separation": 0.0}
    shifted = Synthetic(**options, heterogeneity=5.0).build(seed=1)
    squares = [float((shifted.train(client, 1).x.mean(0) ** 2).sum()) for client in range(50)]
    assert np.mean(squares) == pytest.approx(25, abs=6)
    skewed = Synthetic(**options, alpha=1e-6).build(seed=1)
    assert all(len(set(skewed.train(client, 1).y.tolist())) == 1 for client in range(50))


def test_separation_is_the_typical_norm_of_a_class_mean() -> None:
    clients = Synthetic(
        classes=50, features=16, samples=20_000, clients=1, separation=6.0, heterogeneity=0, alpha=1e6
    ).build(seed=1)
    x, y = clients.train(0, 1)
    squares = [float((x[y == label].mean(0) ** 2).sum()) for label in range(50)]
    assert np.mean(squares) == pytest.approx(36, abs=8)  # standard deviation 36 * sqrt(2 / 800) = 1.8


def solve(clients: object, client: int) -> np.ndarray:
    x, y = clients.train(client, 1)  # type: ignore[attr-defined]
    return np.linalg.lstsq(x.numpy().astype(float), y.numpy().astype(float), rcond=None)[0][:, 0]


def test_each_quadratic_has_its_own_optimum_and_curvature() -> None:
    options = {"kind": "quadratic", "features": 5, "samples": 2000, "clients": 40, "deviation": 0.0}
    alike = Synthetic(**options, heterogeneity=0.0).build(seed=1)
    assert solve(alike, 0) == pytest.approx(solve(alike, 39), abs=1e-4)

    apart = Synthetic(**options, heterogeneity=3.0, curvature=9.0).build(seed=1)
    offsets = [np.sum((solve(apart, client) - solve(alike, client)) ** 2) for client in range(40)]
    assert np.mean(offsets) == pytest.approx(9, abs=5 * 9 * np.sqrt(2 / 200))

    # E[x^2] of 2000 samples is the curvature within a few percent, and those of all clients span [1/9, 9].
    curvatures = np.array([(apart.train(client, 1).x ** 2).mean(0).numpy() for client in range(40)])
    assert 1 / 9 * 0.8 < curvatures.min() < 0.2
    assert 5 < curvatures.max() < 9 * 1.2
    assert np.median(curvatures) == pytest.approx(1, rel=0.6)


def test_deviation_is_that_of_the_targets() -> None:
    clients = Synthetic(kind="quadratic", samples=5000, deviation=0.5).build(seed=1)
    x, y = clients.train(0, 1)
    residuals = y.numpy()[:, 0] - x.numpy() @ solve(clients, 0)
    assert residuals.std() == pytest.approx(0.5, rel=0.05)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["mixture", "quadratic"]),
    st.floats(-6, 6).map(lambda e: 10.0**e),
    st.floats(0, 100),
    st.integers(0, 10**6),
)
def test_samples_are_finite(kind: str, alpha: float, heterogeneity: float, seed: int) -> None:
    table = {"name": "synthetic", "kind": kind, "alpha": alpha, "heterogeneity": heterogeneity}
    x, y = read(table, Synthetic).build(seed).train(0, 1)
    assert torch.isfinite(x).all()
    assert torch.isfinite(y).all()
