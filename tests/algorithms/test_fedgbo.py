"""With beta = 1/2 and rate 1 a step of FedGBO(sgdm) from m = 0 halves the distance to b."""

from collections.abc import Callable
from math import sqrt

import pytest
import torch
from torch import Tensor

from federation import Federation, Handmade, Pair, dense, mixed, normed, points, slope
from fedge.algorithms.fedavg import FedAvg
from fedge.algorithms.fedgbo import FedGbo
from fedge.algorithms.mtfl import mtfl
from fedge.core.layout import pick
from fedge.data.clients import Samples

TWO = {"make": slope, "steps": 2}


def scalars(federation: Federation) -> dict[str, float]:
    return {name: value.item() for name, value in federation.state.items() if name != "stats"}


# ---------------------------------------------------------------- by hand


def test_presets() -> None:
    names = ("optimiser", "beta", "beta2", "epsilon", "v0", "weighting")
    assert [getattr(FedGbo(), name) for name in names] == ["adam", 0.9, 0.99, 1e-3, 1.0, "uniform"]


def test_momentum_by_hand() -> None:
    federation = Federation(FedGbo(optimiser="sgdm", beta=0.5).build, points(0, 4), rate=1.0, **TWO)
    federation.round()
    # gradients 1, 0.5 and -3, -1.5: y = 0.25 and 3.25, mean gradient -0.75, m = -0.75/2
    assert scalars(federation) == {"x": 1.75, "m": -0.375}
    federation.round()
    # y -= -0.1875 + g/2, with m fixed
    # client 0: g  1.75, y 1.0625; g  1.0625, y 0.71875
    # client 1: g -2.25, y 3.0625; g -0.9375, y 3.71875
    # mean gradient (1.75 + 1.0625 - 2.25 - 0.9375)/4 = -0.09375, m = -0.1875 - 0.046875
    assert scalars(federation) == {"x": 2.21875, "m": -0.234375}


def test_rmsprop_by_hand() -> None:
    build = FedGbo(optimiser="rmsprop", beta=0.5, epsilon=1.0).build
    federation = Federation(build, points(0, 4), rate=1.0, **TWO)
    federation.round()
    # sqrt(1) + 1 = 2: steps as above, v = 1/2 + 0.75^2/2
    assert scalars(federation) == {"x": 1.75, "v": 0.78125}
    federation.round()
    # a step leaves the share r = 1 - 1/(sqrt(v) + 1) of the distance, so x = 2 - 0.25*r^2,
    # and the mean gradient is that of the distances -0.25 and -0.25*r
    r = 1 - 1 / (sqrt(0.78125) + 1)
    g = -0.25 * (1 + r) / 2
    assert scalars(federation) == pytest.approx({"x": 2 - 0.25 * r * r, "v": 0.390625 + g * g / 2}, abs=1e-15)


def test_adam_by_hand() -> None:
    build = FedGbo(optimiser="adam", beta=0.5, beta2=0.75, epsilon=1.0).build
    federation = Federation(build, points(0, 4), rate=2.0, **TWO)
    federation.round()
    # 2*(g/2)/(sqrt(1) + 1): steps as above, m = -0.75/2, v = 3/4 + 0.75^2/4
    assert scalars(federation) == {"x": 1.75, "m": -0.375, "v": 0.890625}
    federation.round()
    # y -= 2*(-0.1875 + g/2)/(sqrt(v) + 1), on the mean of both clients, where g = y - 2
    scale = 2 / (sqrt(0.890625) + 1)
    y = 1.75 - scale * (-0.1875 - 0.125)
    x = y - scale * (-0.1875 + (y - 2) / 2)
    g = (-0.25 + y - 2) / 2
    expected = {"x": x, "m": -0.1875 + g / 2, "v": 0.75 * 0.890625 + g * g / 4}
    assert scalars(federation) == pytest.approx(expected, abs=1e-14)


# ---------------------------------------------------------------- the inverse


@pytest.mark.parametrize(("weighting", "x", "g"), [("uniform", 2.0625, -1.0625), ("samples", 2.84375, -1.475)])
def test_clients_with_different_numbers_of_steps(
    weighting: str, x: float, g: float, crowd: Callable[..., Handmade]
) -> None:
    build = FedGbo(optimiser="sgdm", beta=0.5, weighting=weighting).build
    federation = Federation(build, crowd((0, 1), (4, 3)), make=slope, rate=1.0, epochs=1, batch_size=1)
    federation.round()
    # client 0: one step, gradient 1, y = 0.5; client 1: three, gradients -3, -1.5, -0.75, y = 3.625
    # uniform: K = 2, and (1 - 5.25)/4 is the mean over all four steps
    # samples: K = (1*1 + 3*3)/4 = 2.5, and (1*1 - 3*5.25)/(1*1 + 3*3) the mean with clients that weigh 1 and 3
    assert federation.weight() == x
    assert federation.state["m"].item() == pytest.approx(g / 2, abs=1e-15)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-3)])
@pytest.mark.parametrize("optimiser", ["sgdm", "rmsprop", "adam"])
def test_the_statistics_track_the_mean_of_all_gradients(
    optimiser: str, dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = FedGbo(optimiser=optimiser, beta=0.5, beta2=0.5)
    federation = Federation(options.build, mixed(), make=dense, steps=5, dtype=dtype).rounds(2)
    before, gradients = federation.state, []
    gradient = federation.clients.network.gradient

    def note(*given: object) -> tuple[Tensor, Tensor, Tensor]:
        found = gradient(*given)  # type: ignore[arg-type]
        gradients.append(found[1])
        return found

    monkeypatch.setattr(federation.clients.network, "gradient", note)
    federation.round()
    assert len(gradients) == 4 * 5
    mean = torch.stack(gradients).double().mean(0).to(dtype)
    tracked, forgotten = (options.make_optimiser().track(before, g) for g in (mean, torch.zeros_like(mean)))
    for name, expected in tracked.items():
        torch.testing.assert_close(federation.state[name], expected, rtol=0, atol=tolerance)
        assert (federation.state[name] - forgotten[name]).abs().max() > 5 * tolerance  # the gradients do count


@pytest.mark.parametrize("engine", ["loop", "block"])
def test_without_momentum_it_equals_fedavg(engine: str) -> None:
    ours = Federation(FedGbo(optimiser="sgdm", beta=0.0).build, mixed(), engine, make=normed, dtype=torch.float32)
    fedavg = Federation(FedAvg(weighting="uniform").build, mixed(), engine, make=normed, dtype=torch.float32)
    for cohort in ((0, 1, 2, 3), (1, 3), (0, 2)):
        ours.round(cohort)
        fedavg.round(cohort)
        assert torch.equal(ours.state["x"], fedavg.state["x"])
        assert torch.equal(ours.state["stats"], fedavg.state["stats"])


# ---------------------------------------------------------------- costs


@pytest.mark.parametrize(("optimiser", "flops"), [("rmsprop", 5), ("sgdm", 5), ("adam", 8)])
def test_flops_of_fixed_statistics(optimiser: str, flops: int) -> None:
    federation = Federation(FedGbo(optimiser=optimiser).build, points(0), **TWO)
    (reply,) = federation.round().replies
    assert reply.costs.flops.tolist() == [2 * (100 + flops)]  # two steps, one sample, one parameter


# ---------------------------------------------------------------- private tensors


def test_private_statistics_track_the_clients_own_gradients() -> None:
    one = torch.ones(1, 1)
    clients = Handmade([Samples(one, torch.tensor([[b, b]])) for b in (0.0, 4.0)], 2, task="values")
    build = mtfl(FedGbo(optimiser="sgdm", beta=0.5).build, ["own"])
    federation = Federation(build, clients, make=Pair, rate=1.0, steps=2)
    federation.round()
    assert scalars(federation) == {"x": 1.75, "m": -0.375}  # shared: the test by hand above
    own = [pick("own", federation.clients.kept.read(client)) for client in (0, 1)]
    assert [kept["x"].item() for kept in own] == [0.25, 3.25]
    assert [kept["m"].item() for kept in own] == [0.375, -1.125]  # half of the means of 1, 0.5 and of -3, -1.5
    federation.round(cohort=(0,))
    # shared: gradients 1.75, 1.0625 as above, of client 0 alone: m = -0.1875 + 1.40625/2
    assert scalars(federation) == {"x": 0.71875, "m": 0.515625}
    # own: y -= 0.1875 + g/2: g 0.25, y -0.0625; g -0.0625, y -0.21875; m = 0.1875 + 0.09375/2
    own = [pick("own", federation.clients.kept.read(client)) for client in (0, 1)]
    assert [kept["x"].item() for kept in own] == [-0.21875, 3.25]
    assert [kept["m"].item() for kept in own] == [0.234375, -1.125]
