"""What an engine does around the client half, for `loop`, and for `block` where it has its own code."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from federation import Federation, Handmade, mixed, normed, points, slope
from fedge.algorithms.ce_fedavg import CeFedAvg
from fedge.algorithms.dynavg import DynAvg
from fedge.algorithms.fedavg import FedAvg
from fedge.algorithms.scaffold import Scaffold
from fedge.core.algorithm import ALL, Algorithm, Batch, Build, Context
from fedge.core.errors import TrainingError
from fedge.core.layout import Layout, Tree
from fedge.data.clients import Samples

ENGINES = ("loop", "block")


def spoilt() -> Handmade:
    """Return four clients, the third with a NaN input."""
    samples = [mixed().train(client, 1) for client in range(4)]
    samples[2] = Samples(samples[2].x.clone().fill_(float("nan")), samples[2].y)
    return Handmade(samples, 3)


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize("engine", ENGINES)
def test_a_loss_that_is_not_finite_names_round_and_client(engine: str) -> None:
    federation = Federation(FedAvg().build, spoilt(), engine)
    federation.round(cohort=(0, 1, 3))
    with pytest.raises(TrainingError, match=r"^round 2, client 2: the loss is not finite.*algorithm\.learning_rate"):
        federation.round()


@pytest.mark.parametrize("engine", ENGINES)
def test_an_upload_that_is_not_finite_names_round_and_client(engine: str) -> None:
    federation = Federation(FedAvg().build, points(0, 4), engine, make=slope, rate=1e200, steps=3)
    # the first loss is 0.5, but weights of -1e200, 1e400, ... soon leave the range
    with pytest.raises(TrainingError, match=r"^round 1, client 0: the upload 'y' is not finite.*first step: 0\.5"):
        federation.round()


def test_a_compressed_upload_that_is_not_finite_names_round_and_client() -> None:
    with pytest.raises(TrainingError, match=r"^round 1, client 2: "):
        Federation(CeFedAvg().build, spoilt()).round()


def without_stats(where: str) -> Build:
    """FedAvg that forgets the BatchNorm statistics in `init` or in `final`."""

    def build(layout: Layout) -> Algorithm:
        algorithm = FedAvg().build(layout)
        work = algorithm.works["train"]

        def init(down: Tree, kept: Tree, ctx: Context) -> Tree:
            return {"y": down["x"]}

        def final(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
            return {"y": local["y"]}, kept

        changed = work._replace(init=init) if where == "init" else work._replace(final=final)
        return algorithm._replace(works={"train": changed})

    return build


@pytest.mark.parametrize("where", ["init", "final"])
@pytest.mark.parametrize("engine", ENGINES)
def test_forgotten_statistics_raise(engine: str, where: str) -> None:
    with pytest.raises(TypeError, match=f"{where} must pass on 'stats'"):
        Federation(without_stats(where), mixed(), engine, make=normed).round()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_gradient_over_all_samples_leaves_the_statistics(engine: str) -> None:
    def build(layout: Layout) -> Algorithm:
        algorithm = FedAvg().build(layout)

        def gradient(local: Tree, batches: Sequence[Batch], ctx: Context) -> Tensor:
            return ctx.grad_at(local["y"], ALL)

        return algorithm._replace(works={"train": algorithm.works["train"]._replace(gradient=gradient)})

    federation = Federation(build, mixed(), engine, make=normed)
    before = federation.state
    federation.round()
    assert torch.equal(federation.state["stats"], before["stats"])
    assert not torch.equal(federation.state["x"], before["x"])


# ---------------------------------------------------------------- replies


@pytest.mark.parametrize("engine", ENGINES)
def test_the_loss_is_that_of_the_first_step(engine: str) -> None:
    (reply,) = Federation(FedAvg().build, points(0, 4), engine, make=slope, steps=3).round().replies
    assert reply.losses.tolist() == [0.5, 4.5]  # (1 - b)^2/2


@pytest.mark.parametrize("engine", ENGINES)
def test_the_first_gradient_over_all_samples_counts(engine: str) -> None:
    clients = Handmade([Samples(torch.ones(3, 1), torch.tensor([[1.0], [1.0], [4.0]]))], 1, task="values")
    build = Scaffold(option="I").build
    (reply,) = Federation(build, clients, engine, make=slope, steps=1, batch_size=1).round().replies
    assert reply.losses.tolist() == pytest.approx([1.5])  # (0 + 0 + 9)/2/3, whichever sample the step took


@pytest.mark.parametrize("engine", ENGINES)
def test_work_that_trains_nothing_costs_nothing_and_has_no_loss(engine: str) -> None:
    outcome = Federation(DynAvg(delta=0).build, points(0, 4), engine, make=slope).round()
    _, pull, renew = outcome.replies
    for reply in (pull, renew):
        assert torch.from_numpy(reply.losses).isnan().all()
        assert (reply.costs.steps.tolist(), reply.costs.batches.tolist(), reply.costs.flops.tolist()) == ([0, 0],) * 3


@pytest.mark.parametrize("engine", ENGINES)
def test_replies_are_in_client_order_without_empty_clients(engine: str) -> None:
    federation = Federation(FedAvg().build, mixed((6, 9, 0, 6, 9)), engine)
    (reply,) = federation.round(cohort=(4, 2, 3, 0)).replies
    assert reply.ids == (0, 3, 4)
    assert reply.samples.tolist() == [6, 6, 9]
    assert reply.missing == (2,)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cohort_without_samples_makes_the_round_void(engine: str) -> None:
    federation = Federation(FedAvg().build, mixed((6, 0)), engine)
    before = federation.state
    outcome = federation.round(cohort=(1,))
    assert outcome.void
    assert federation.state is before


# ---------------------------------------------------------------- randomness


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 6), nn.Dropout(0.5), nn.Linear(6, 3))


def test_dropout_depends_on_client_and_round_only() -> None:
    def loss_of_last(round: int, cohort: tuple[int, ...]) -> float:
        federation = Federation(FedAvg().build, mixed(), make=dropping)
        federation.info = federation.info._replace(round=round - 1)
        (reply,) = federation.round(cohort).replies
        return float(reply.losses[-1])

    torch.manual_seed(3)
    first = loss_of_last(1, (0, 1, 2, 3))
    torch.manual_seed(4)
    assert loss_of_last(1, (3,)) == first
    assert loss_of_last(2, (3,)) != first  # client 3 has only one sample, so only the dropout differs


def test_the_global_generator_is_left_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    Federation(FedAvg().build, mixed(), make=dropping).round()
    assert torch.equal(torch.rand(2), expected)
