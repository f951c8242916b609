"""One step at rate 1/2 moves a client half of the way to its b; all start at x = 1."""

import pytest
import torch

from federation import Federation, Losing, mixed, points, slope
from fedge.algorithms.fedavg import FedAvg
from fedge.algorithms.periodic import Periodic

STEP = {"make": slope, "rate": 0.5, "steps": 1}


def local(federation: Federation, name: str = "y") -> list[float]:
    """Return what each client has kept."""
    return [federation.clients.kept.read(client)[name].item() for client in range(len(federation.clients.data.sizes))]


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_with_period_one_it_equals_fedavg(weighting: str) -> None:
    periodic, fedavg = (
        Federation(kind.build, mixed(), epochs=1).rounds(4)
        for kind in (Periodic(period=1, weighting=weighting), FedAvg(weighting=weighting))
    )
    for name in ("x", "stats"):
        assert torch.equal(periodic.state[name], fedavg.state[name])
        own = "y" if name == "x" else name
        assert all(torch.equal(periodic.clients.kept.read(client)[own], fedavg.state[name]) for client in range(4))


def test_between_averages_clients_keep_their_work() -> None:
    federation = Federation(Periodic(period=2).build, points(0, 4), **STEP)
    (silent,) = federation.round().replies
    assert not silent.communicated
    assert (federation.weight(), local(federation)) == (1, [0.5, 2.5])
    outcome = federation.round()
    assert [reply.communicated for reply in outcome.replies] == [False, True, False]
    assert (federation.weight(), local(federation)) == (1.75, [1.75, 1.75])  # mean of 0.25 and 3.25
    assert len(federation.round().replies) == 1
    assert local(federation) == [0.875, 2.875]


def test_users_have_their_own_models() -> None:
    federation = Federation(Periodic(period=2).build, points(0, 4), **STEP).rounds(1)
    personal = federation.clients.algorithm.personal
    assert personal is not None
    own = [personal(federation.clients.network.variables, federation.clients.kept.read(client)) for client in (0, 1)]
    assert [variables["x"].item() for variables in own] == [0.5, 2.5]


# ---------------------------------------------------------------- unavailable clients


def test_clients_outside_the_cohort_continue_from_their_own_model() -> None:
    federation = Federation(Periodic(period=2).build, points(0, 4, 8), **STEP)
    federation.round((0, 1))
    federation.round((0, 2))
    # 0 has taken two steps to 0.25, client 2 one to 4.5
    assert federation.weight() == 2.375
    assert local(federation) == [2.375, 2.5, 2.375]


def test_a_client_that_does_not_answer_does_not_block_others() -> None:
    federation = Federation(Periodic(period=1).build, points(0, 4, 8), **STEP)
    federation.engine = Losing(federation.engine, lambda work, info: (2,) if work == "pull" else ())
    outcome = federation.round()
    assert [reply.ids for reply in outcome.replies] == [(0, 1, 2), (0, 1), (0, 1)]
    assert federation.weight() == 1.5  # mean of 0.5 and 2.5
    assert local(federation) == [1.5, 1.5, 4.5]


# ---------------------------------------------------------------- optimisers


def test_the_optimiser_state_of_a_client_is_local_and_persistent() -> None:
    federation = Federation(Periodic(period=1, optimiser="sgdm", beta=0.5).build, points(0, 4), **STEP)
    federation.round()
    # m = g/2: y = 1 - 0.5*0.5 and 1 + 0.5*1.5
    assert (federation.weight(), local(federation, "m")) == (1.25, [0.5, -1.5])
    federation.round()
    # at 1.25 gradients are 1.25 and -2.75: m = 0.25 + 0.625 and -0.75 - 1.375
    assert local(federation, "m") == [0.875, -2.125]
    assert federation.weight() == 1.25 - 0.5 * (0.875 - 2.125) / 2
    assert local(federation, "t") == [2, 2]


def test_adam_equals_torch_adam() -> None:
    """Between averages, a client equals one continuous run of torch.optim.Adam."""
    federation = Federation(Periodic(period=100, optimiser="adam").build, points(4), make=slope, rate=0.1, steps=2)
    federation.rounds(3)
    weight = torch.ones(1, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([weight], lr=0.1)
    for _ in range(6):
        adam.zero_grad()
        ((weight - 4) ** 2 / 2).sum().backward()
        adam.step()
    assert local(federation) == pytest.approx([weight.item()], rel=1e-12)


def test_plain_sgd_keeps_only_its_model_and_has_affine_steps() -> None:
    algorithm = Federation(Periodic().build, points(0, 4), **STEP).clients.algorithm
    assert set(algorithm.keep({"x": torch.ones(1), "stats": torch.zeros(0)})) == {"y", "stats"}
    assert algorithm.works["train"].affine is not None
