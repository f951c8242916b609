"""On `points` the gradient at w is w - b and the Hessian 1, so everything scales the distance y - b."""

import pytest
import torch

from federation import Federation, Handmade, points, slope
from fedge.algorithms.per_fedavg import PerFedAvg
from fedge.data.clients import Samples


def steep() -> Handmade:
    """A client whose loss is (2w)^2/2: gradient 4w, Hessian 4."""
    return Handmade([Samples(torch.full((1, 1), 2.0), torch.zeros(1, 1))], 1, task="values")


def test_first_order_by_hand() -> None:
    federation = Federation(PerFedAvg(alpha=0.5).build, points(0, 4), make=slope, rate=1.0, steps=2)
    federation.round()
    # gradient at y - 0.5*(y - b) is 0.5*(y - b): a step halves the distance, two quarter it
    assert federation.weight() == 1.75
    federation.round()
    assert federation.weight() == 1.9375


def test_hessian_free_by_hand() -> None:
    build = PerFedAvg(alpha=0.5, hessian="free").build
    federation = Federation(build, points(0, 4), make=slope, rate=1.0, steps=2)
    federation.round()
    # (1 - alpha)^2*(y - b): a step leaves 3/4 of the distance, two 9/16
    assert federation.weight() == pytest.approx(2 - 0.5625, abs=1e-12)
    federation.round()
    assert federation.weight() == pytest.approx(2 - 0.5625**2, abs=1e-12)


@pytest.mark.parametrize("delta", [1e-3, 0.1, 10.0])
def test_hessian_free_is_exact_on_a_quadratic(delta: float) -> None:
    build = PerFedAvg(alpha=0.125, hessian="free", delta=delta).build
    federation = Federation(build, steep(), make=slope, rate=0.5, steps=1)
    federation.round()
    # w = 1 - 0.125*4 = 0.5, gradient there 2, minus alpha*Hessian*2 = 1: true meta-gradient (1 - 0.5)*2 = 1
    assert federation.weight() == pytest.approx(0.5, abs=1e-12)


def test_first_order_drops_the_hessian() -> None:
    federation = Federation(PerFedAvg(alpha=0.125).build, steep(), make=slope, rate=0.25, steps=1)
    federation.round()
    assert federation.weight() == 0.5  # 1 - 0.25*2


@pytest.mark.parametrize(("hessian", "num_batches"), [("first_order", 2), ("free", 3)])
def test_every_gradient_has_its_own_batch(hessian: str, num_batches: int) -> None:
    algorithm = Federation(PerFedAvg(hessian=hessian).build, points(0), make=slope).clients.algorithm
    assert algorithm.works["train"].batches_per_step == num_batches
    seen = []

    class Noting:
        def grad_at(self, x: torch.Tensor, batch: str) -> torch.Tensor:
            seen.append(batch)
            return x

    gradient = algorithm.works["train"].gradient
    assert gradient is not None
    gradient({"y": torch.ones(1)}, ["one", "two", "three"], Noting())  # type: ignore[arg-type]
    assert seen == ["one", "two", "three", "three"][: 2 if num_batches == 2 else 4]


def test_a_user_adapts_by_one_step_of_size_alpha() -> None:
    adapt = Federation(PerFedAvg(alpha=0.3).build, points(0), make=slope).clients.algorithm.adapt
    assert adapt is not None
    assert adapt.num_steps == 1
    assert adapt.affine is not None
    assert adapt.affine({}, None) == (1.0, None, 0.3)  # type: ignore[arg-type]
