"""On `points`, two steps at rate 1/2 bring client b from w to b + (w - b)/4."""

import pytest
import torch

from federation import BUILDS, Federation, mixed, points, slope
from fedge.algorithms.adapted import adaptation, fine_tuned
from fedge.algorithms.fedavg import FedAvg
from fedge.algorithms.mtfl import mtfl
from fedge.client.perform import perform
from fedge.core.algorithm import Build
from fedge.core.effort import Effort
from fedge.core.layout import Tree


def adapted(federation: Federation, client: int) -> tuple[Tree, Effort]:
    """Return the model used for a client's user accuracy, and the effort of its adaptation."""
    algorithm, variables = federation.clients.algorithm, federation.clients.network.variables
    assert algorithm.adapt is not None
    model = algorithm.model(federation.state, variables)
    if algorithm.personal:
        model = algorithm.personal(model, federation.clients.kept.read(client))
    found, kept, effort = perform(
        federation.clients, algorithm.adapt, client, model, {}, federation.info, purpose="adapt"
    )
    assert kept == {}
    return found, effort


@pytest.mark.parametrize(("num_steps", "weights"), [(1, [0.5, 2.5]), (2, [0.25, 3.25]), (3, [0.125, 3.625])])
def test_fine_tuning_by_hand(num_steps: int, weights: list[float]) -> None:
    build = fine_tuned(FedAvg().build, num_steps)
    federation = Federation(build, points(0, 4), make=slope, rate=0.5, steps=7)
    assert [adapted(federation, client)[0]["x"].item() for client in (0, 1)] == weights
    assert adapted(federation, 0)[1].steps == num_steps  # regardless of the round's number


def test_fine_tuning_starts_from_the_private_tensors() -> None:
    build = fine_tuned(mtfl(FedAvg().build, ["*"]), 1)
    federation = Federation(build, points(0, 4), make=slope, rate=0.5, steps=2)
    federation.round(cohort=(1,))
    assert [adapted(federation, client)[0]["x"].item() for client in (0, 1)] == [0.5, 3.625]  # from 1 and 3.25


def test_adaptation_uses_the_given_steps() -> None:
    adapt = adaptation(lambda local, ctx: (0.5, torch.full((1,), 3.0), 0.25), num_steps=2)

    def build(layout: object) -> object:
        return FedAvg().build(layout)._replace(adapt=adapt)  # type: ignore[arg-type]

    federation = Federation(build, points(0), make=slope)  # type: ignore[arg-type]
    # w = w/2 + 3 - w/4: 1 to 3.25 to 3.8125
    assert adapted(federation, 0)[0]["x"].item() == 3.8125


def test_batchnorm_statistics_adapt_too() -> None:
    federation = Federation(fine_tuned(FedAvg().build, 2), mixed())
    before = federation.clients.network.variables["stats"]
    assert not torch.equal(adapted(federation, 0)[0]["stats"], before)
    assert torch.equal(federation.clients.network.variables["stats"], before)


@pytest.mark.parametrize("build", [FedAvg().build, BUILDS["scaffold"], BUILDS["mtfl(fedavg_adam, bn)"]])
def test_training_is_that_of_the_inner_algorithm(build: Build) -> None:
    tuned, plain = Federation(fine_tuned(build, 5), mixed()).rounds(2), Federation(build, mixed()).rounds(2)
    ours, theirs = tuned.everything(), plain.everything()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(value, theirs[key]) for key, value in ours.items())
