"""With beta = 1/2 and rate 1 a step of Mimelite(sgdm) from m = 0 halves the distance to b."""

from collections.abc import Callable

import pytest

from federation import Federation, Handmade, points, slope
from fedge.algorithms.fedgbo import FedGbo
from fedge.algorithms.mimelite import Mimelite, MimeXlite
from fedge.algorithms.mtfl import mtfl
from fedge.core.layout import pick

TWO = {"make": slope, "rate": 1.0, "steps": 2}


def scalars(federation: Federation) -> dict[str, float]:
    return {name: value.item() for name, value in federation.state.items() if name != "stats"}


@pytest.fixture
def uneven(crowd: Callable[..., Handmade]) -> Handmade:
    """Return one client with a sample at 0 and two at 6: gradients 1 and -5 at x = 1."""
    return Handmade([crowd((0, 1), (6, 2)).pooled_test()], 1, task="values")


@pytest.mark.parametrize("kind", [Mimelite, MimeXlite])
def test_presets(kind: type[Mimelite]) -> None:
    names = ("optimiser", "beta", "beta2", "epsilon", "v0", "weighting")
    assert [getattr(kind(), name) for name in names] == ["adam", 0.9, 0.99, 1e-3, 1.0, "uniform"]


@pytest.mark.parametrize("kind", [Mimelite, MimeXlite])  # with one sample, a minibatch has all samples
def test_momentum_by_hand(kind: type[Mimelite]) -> None:
    federation = Federation(kind(optimiser="sgdm", beta=0.5).build, points(0, 4), **TWO)
    federation.round()
    # y = 0.25 and 3.25; the gradients at x = 1 are 1 and -3, m = -1/2
    assert scalars(federation) == {"x": 1.75, "m": -0.5}
    federation.round()
    # y -= -0.25 + g/2: the distance to b + 0.5 is halved twice
    # client 0: 0.5 + 1.25/4; client 1: 4.5 - 2.75/4; the gradients at x = 1.75 are 1.75 and -2.25
    assert scalars(federation) == {"x": 2.3125, "m": -0.375}


@pytest.mark.parametrize("kind", [Mimelite, MimeXlite])
def test_adam_by_hand(kind: type[Mimelite]) -> None:
    build = kind(optimiser="adam", beta=0.5, beta2=0.75, epsilon=1.0, v0=4.0).build
    federation = Federation(build, points(0, 4), make=slope, rate=3.0, steps=2)
    federation.round()
    # 3*(g/2)/(sqrt(4) + 1) halves the distance in both steps; v = 3/4*4 + 1/4*(-1)^2
    assert scalars(federation) == {"x": 1.75, "m": -0.5, "v": 3.25}


def test_default_weighting_is_uniform(crowd: Callable[..., Handmade]) -> None:
    uniform, samples = (
        Federation(Mimelite(optimiser="sgdm", beta=0.5, weighting=weighting).build, crowd((0, 1), (4, 3)), **TWO)
        for weighting in ("uniform", "samples")
    )
    uniform.round()
    samples.round()
    assert scalars(uniform) == {"x": 1.75, "m": -0.5}
    assert scalars(samples) == {"x": 2.5, "m": -1}  # (0.25 + 3*3.25)/4, (1 - 3*3)/4/2


# ---------------------------------------------------------------- which gradient


def test_mimelite_uses_the_gradient_over_all_samples(uneven: Handmade) -> None:
    build = Mimelite(optimiser="sgdm", beta=0.5).build
    federation = Federation(build, uneven, make=slope, batch_size=1, steps=1)
    federation.round()
    assert federation.state["m"].item() == pytest.approx(-1.5, abs=1e-15)  # (1 - 5 - 5)/3/2


def test_mimexlite_uses_the_gradient_of_the_first_minibatch(uneven: Handmade) -> None:
    build = MimeXlite(optimiser="sgdm", beta=0.5).build
    seen = set()
    for number in range(6):
        federation = Federation(build, uneven, make=slope, batch_size=1, steps=3)
        federation.info = federation.info._replace(round=number)  # other batches
        (reply,) = federation.round().replies
        work = federation.clients.algorithm.works["train"]
        first, *_ = federation.clients.steps(work, 0, federation.info)
        gradient = 1 if first[0].item() == 0 else -5
        assert reply.value["g"].item() == gradient
        assert federation.state["m"].item() == gradient / 2
        seen.add(gradient)
    assert seen == {1, -5}


# ---------------------------------------------------------------- costs


@pytest.mark.parametrize("optimiser", ["sgdm", "rmsprop", "adam"])
def test_flops(optimiser: str, crowd: Callable[..., Handmade]) -> None:
    clients = crowd((0, 5), (4, 3))
    flops = {}
    for kind in (FedGbo, Mimelite, MimeXlite):
        (reply,) = Federation(kind(optimiser=optimiser).build, clients, make=slope, batch_size=2).round().replies
        flops[kind] = reply.costs.flops.tolist()
    fixed = 8 if optimiser == "adam" else 5
    assert flops[FedGbo] == [3 * (2 * 100 + fixed)] * 2  # three steps of two samples
    assert flops[MimeXlite] == flops[FedGbo]
    assert flops[Mimelite] == [flops[FedGbo][0] + 500, flops[FedGbo][1] + 300]  # and one gradient over all samples


# ---------------------------------------------------------------- private tensors


def test_private_statistics_track_the_clients_own_gradient() -> None:
    federation = Federation(mtfl(Mimelite(optimiser="sgdm", beta=0.5).build, ["*"]), points(0, 4), **TWO)
    federation.round()
    own = [pick("own", federation.clients.kept.read(client)) for client in (0, 1)]
    assert [kept["x"].item() for kept in own] == [0.25, 3.25]
    assert [kept["m"].item() for kept in own] == [0.5, -1.5]  # half of 1 and of -3
    federation.round(cohort=(0,))
    # y -= 0.25 + g/2: the distance to -0.5 is halved twice; m = 0.25 + 0.25/2, the gradient at 0.25
    own = [pick("own", federation.clients.kept.read(client)) for client in (0, 1)]
    assert [kept["x"].item() for kept in own] == [-0.3125, 3.25]
    assert [kept["m"].item() for kept in own] == [0.375, -1.5]
