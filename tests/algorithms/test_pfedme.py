"""On `points`, with lambda 2 and two inner steps of size 1/4, theta = w - 0.3125*(w - b) if it starts at w.

The first step subtracts (w - b)/4. Then the gradient is 3/4*(w - b) - 2*(w - b)/4, of which a quarter is subtracted:
0.25 + 0.0625. At rate 1/4, a local step is w -= 0.25*2*(w - theta) = 0.15625*(w - b).
"""

import pytest
import torch

from federation import ENGINES, Federation, mixed, points, slope
from fedge.algorithms.pfedme import PFedMe

INNER = {"penalty": 2.0, "personal_steps": 2, "personal_rate": 0.25}
QUARTER = {"make": slope, "rate": 0.25}


def personal(federation: Federation, client: int) -> float:
    """Return the weight used for a client's user accuracy."""
    algorithm, variables = federation.clients.algorithm, federation.clients.network.variables
    assert algorithm.personal is not None
    model = algorithm.model(federation.state, variables)
    return algorithm.personal(model, federation.clients.kept.read(client))["x"].item()


def test_one_step_by_hand() -> None:
    federation = Federation(PFedMe(**INNER).build, points(0, 4), steps=1, **QUARTER)
    federation.round()
    assert federation.weight() == 1.15625  # mean of 1 - 0.15625 and 1 + 3*0.15625
    assert [personal(federation, client) for client in (0, 1)] == [0.6875, 1.9375]


def test_the_personal_model_is_theta_of_the_last_step() -> None:
    federation = Federation(PFedMe(start="w", **INNER).build, points(0, 4), steps=2, **QUARTER)
    federation.round()
    # client 0: w = 0.84375; theta = 0.6875*w, w = 0.84375*w
    # client 1: w - 4 = -2.53125; theta = 4 - 2.53125*0.6875, w = 4 - 2.53125*0.84375
    assert federation.weight() == 2 - 0.84375**2
    assert [personal(federation, client) for client in (0, 1)] == [0.84375 * 0.6875, 4 - 2.53125 * 0.6875]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_step_continues_from_the_theta_of_the_last_one(engine: str) -> None:
    """An inner step is theta/4 + b/4 + w/2, so two of them from theta are theta/16 + 5*b/16 + 5*w/8."""
    federation = Federation(PFedMe(**INNER).build, points(0, 4), engine, steps=2, **QUARTER)
    federation.round()
    # client 0: theta = 0.6875 and w = 0.84375 as above, then theta = 0.6875/16 + 5*0.84375/8
    theta = 0.5703125
    w = (0.84375 + theta) / 2  # w -= 0.25*2*(w - theta)
    # client 1 is at -3 times these values from 4, so that the mean is (w + 4 - 3*w)/2
    assert federation.weight() == 2 - w
    assert [personal(federation, client) for client in (0, 1)] == [theta, 4 - 3 * theta]
    federation.round(cohort=(0,))
    # a round begins at x, not at the client's theta: all of the first round, times x - 0
    assert federation.weight() == pytest.approx((2 - w) * w, abs=1e-15)


def test_beta_interpolates_between_the_old_and_the_mean_model() -> None:
    federation = Federation(PFedMe(beta=0.5, **INNER).build, points(0, 4), steps=1, **QUARTER)
    federation.round()
    assert federation.weight() == 1.078125  # (1 + 1.15625)/2


def test_many_inner_steps_reach_the_proximal_point() -> None:
    options = PFedMe(penalty=2.0, personal_steps=100, personal_rate=0.25)
    federation = Federation(options.build, points(0), steps=1, **QUARTER)
    federation.round()
    # theta minimises theta^2/2 + (theta - 1)^2: 2/3
    assert personal(federation, 0) == pytest.approx(2 / 3, abs=1e-12)
    assert federation.weight() == pytest.approx(1 - 0.25 * 2 / 3, abs=1e-12)


def test_an_absent_client_keeps_its_personal_model() -> None:
    federation = Federation(PFedMe(**INNER).build, points(0, 4), steps=1, **QUARTER)
    federation.round(cohort=(0,))
    federation.round(cohort=(0,))
    assert federation.weight() == 0.84375**2
    assert personal(federation, 0) == 0.84375 * 0.6875
    assert personal(federation, 1) == 1  # never trained: the initial model


def test_batchnorm_statistics_are_personal_too() -> None:
    federation = Federation(PFedMe(**INNER).build, mixed()).rounds(1)
    means = [federation.clients.kept.read(client)["stats"] for client in range(4)]
    assert not torch.equal(means[0], means[1])
    assert not torch.equal(means[0], federation.state["stats"])


def test_the_inner_steps_see_one_batch() -> None:
    gradient = Federation(PFedMe(**INNER).build, points(0), make=slope).clients.algorithm.works["train"].gradient
    assert gradient is not None
    seen = []

    class Noting:
        def grad_at(self, x: torch.Tensor, batch: str) -> torch.Tensor:
            seen.append((x.item(), batch))
            return x

    found = gradient({"y": torch.ones(1), "theta": torch.ones(1)}, ["one"], Noting())  # type: ignore[arg-type]
    assert seen == [(1, "one"), (0.75, "one")]
    assert found.item() == 0.625


def test_flops() -> None:
    (reply,) = Federation(PFedMe(**INNER).build, points(0), steps=3, **QUARTER).round().replies
    # each step: two gradients of one sample, 5 per parameter in each inner step, and 2
    assert reply.costs.flops.tolist() == [3 * (2 * 100 + 2 * 5 + 2)]
