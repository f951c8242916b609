"""MTFL around every algorithm: by hand, at both extremes (nothing private, all private), and in the bytes sent."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from federation import BUILDS, SINGLE, Federation, Pair, mixed, normed, pairs
from fedge.algorithms.fedavg import FedAvg
from fedge.algorithms.fedsgd import FedSgd
from fedge.algorithms.independent import Independent
from fedge.algorithms.mfl import FedAvgAdam
from fedge.algorithms.mtfl import mtfl
from fedge.algorithms.scaffold import Scaffold
from fedge.client.client_side import ClientSide
from fedge.client.serve import Served
from fedge.core.errors import ConfigError
from fedge.core.layout import pick
from fedge.engines import wire

INNER = [*SINGLE, "prox(scaffold)", "maxent(fedavg)", "momentum(fedavg_adam)", "weight_decay(fedgbo)"]
COHORTS = ((0, 1, 2, 3), (1, 3), (0, 2))


def own(federation: Federation, client: int) -> dict[str, Tensor]:
    """Return the state of a client's federation of one."""
    return pick("own", federation.clients.kept.read(client))


# ---------------------------------------------------------------- by hand


def test_private_and_shared_weights_by_hand() -> None:
    federation = Federation(mtfl(FedAvg().build, ["own"]), pairs(0, 4), make=Pair, rate=0.5, steps=2)
    federation.round()
    # two steps at rate 1/2 move w to b + (w - b)/4: 0.25 and 3.25; only the shared weights are averaged
    assert federation.state["x"].tolist() == [1.75]
    assert [own(federation, client)["x"].tolist() for client in (0, 1)] == [[0.25], [3.25]]
    federation.round(cohort=(0,))
    assert federation.state["x"].tolist() == [0.4375]  # 1.75/4
    assert [own(federation, client)["x"].tolist() for client in (0, 1)] == [[0.0625], [3.25]]


def test_evaluated_models() -> None:
    federation = Federation(mtfl(FedAvg().build, ["own"]), pairs(0, 4), make=Pair, rate=0.5, steps=2).rounds(1)
    algorithm, variables = federation.clients.algorithm, federation.clients.network.variables
    model = algorithm.model(federation.state, variables)
    assert model["x"].tolist() == [1.75, 1]  # CA: initial private tensors
    assert algorithm.personal is not None
    personal = [algorithm.personal(model, federation.clients.kept.read(client))["x"].tolist() for client in (0, 1)]
    assert personal == [[1.75, 0.25], [1.75, 3.25]]  # UA: each client with its own


def test_the_server_update_does_not_change_private_tensors() -> None:
    """Private weights stay where the client's training left them, regardless of the server's update."""
    build = mtfl(FedSgd().build, ["own"])
    federation = Federation(build, pairs(0, 4), make=Pair, rate=0.5, server_rate=0.5, steps=2).rounds(1)
    assert federation.state["x"].tolist() == [1.375]  # 1 - 0.5*(mean of 0.75 and -2.25)
    assert [own(federation, client)["x"].tolist() for client in (0, 1)] == [[0.25], [3.25]]


def test_private_tensors_have_no_scaffold_correction() -> None:
    federation = Federation(mtfl(Scaffold().build, ["own"]), pairs(0, 4), make=Pair, rate=0.5, steps=2).rounds(2)
    # shared: the second round is corrected (see the test of SCAFFOLD); private: b + (1 - b)/16
    assert federation.state["x"].tolist() == [1.9375]
    assert federation.state["c"].tolist() == [-0.1875]
    assert [own(federation, client)["x"].tolist() for client in (0, 1)] == [[0.0625], [3.8125]]


def test_private_tensors_have_their_own_adam() -> None:
    federation = Federation(mtfl(FedAvgAdam().build, ["own"]), pairs(0, 4), make=Pair, rate=0.1, steps=2)
    for cohort in ((0, 1), (1,), (0, 1)):
        federation.round(cohort)
    # Client 0 was absent from the second round: four steps of Adam on its own, t = 1, 2, 3, 4:
    # g 1,                 m 0.1,               v 0.001,             y 0.900000009999999
    # g 0.900000009999999, m 0.180000001000000, v 0.001809000018000, y 0.800412248082150
    # g 0.800412248082150, m 0.242041225708215, v 0.002447850784862, y 0.701586302555335
    # g 0.701586302555335, m 0.287995733392927, v 0.002937626274010, y 0.603939100632614
    found = {name: own(federation, 0)[name].item() for name in ("x", "m", "v", "t")}
    assert found == pytest.approx(
        {"x": 0.603939100632614, "m": 0.287995733392927, "v": 0.002937626274010, "t": 4}, abs=2e-15
    )
    assert own(federation, 1)["t"].item() == 6
    # The shared weight has been through six steps, by the recursion in the test of FedAvg-Adam
    # with the cohorts (0, 1), (1), (0, 1).
    shared = {name: federation.state[name].item() for name in ("x", "m", "v", "t")}
    assert shared == pytest.approx(
        {"x": 1.281149543880286, "m": -0.735225261712204, "v": 0.036371534986795, "t": 6}, abs=2e-15
    )


@pytest.mark.parametrize("name", INNER)
def test_an_absent_client_keeps_its_private_state(name: str) -> None:
    federation = Federation(mtfl(BUILDS[name], "bn"), mixed()).rounds(2)
    before = federation.clients.kept.read(2)
    federation.round(cohort=(0, 1, 3))
    after = federation.clients.kept.read(2)
    assert before.keys() == after.keys()
    for key, value in before.items():
        assert torch.equal(value, after[key]), key


# ---------------------------------------------------------------- extremes


@pytest.mark.parametrize("name", INNER)
def test_with_nothing_private_it_is_the_inner_algorithm(name: str) -> None:
    wrapped = Federation(mtfl(BUILDS[name], "none"), mixed(), dtype=torch.float32)
    plain = Federation(BUILDS[name], mixed(), dtype=torch.float32)
    for cohort in COHORTS:
        wrapped.round(cohort)
        plain.round(cohort)
    same(wrapped.state, plain.state)
    for client in range(4):
        same(pick("kept", wrapped.clients.kept.read(client)), plain.clients.kept.read(client))
    models = [f.clients.algorithm.model(f.state, f.clients.network.variables) for f in (wrapped, plain)]
    same(*models)


@pytest.mark.parametrize("name", ["fedavg", "dsgd", "fedsgd", "fedsgd(gradient_sum)"])
def test_with_all_private_it_is_independent_training(name: str) -> None:
    wrapped, alone = after_all_private(BUILDS[name])
    for client in range(4):
        same(own(wrapped, client), alone.clients.kept.read(client))


@pytest.mark.parametrize("option", ["I", "II"])
def test_with_all_private_scaffold_is_independent_training_to_rounding(option: str) -> None:
    wrapped, alone = after_all_private(Scaffold(option=option).build)
    for client in range(4):
        for name, value in alone.clients.kept.read(client).items():
            torch.testing.assert_close(own(wrapped, client)[name], value, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", INNER)
def test_with_all_private_nothing_of_the_model_travels(name: str) -> None:
    wrapped, _ = after_all_private(BUILDS[name])
    sizes = {key: value.numel() for key, value in wrapped.state.items()}
    assert {key: size for key, size in sizes.items() if size and key != "t"} == {}


def after_all_private(build: Callable) -> tuple[Federation, Federation]:
    wrapped = Federation(mtfl(build, ["*"]), mixed(), dtype=torch.float32)
    alone = Federation(Independent().build, mixed(), dtype=torch.float32)
    for cohort in COHORTS:
        wrapped.round(cohort)
        alone.round(cohort)
    return wrapped, alone


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for key, value in one.items():
        assert torch.equal(value, other[key]), key


# ---------------------------------------------------------------- on the wire


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Record every message in both directions."""
    messages: list[bytes] = []

    def serve(side: ClientSide, client: int, request: bytes) -> Served:
        served = original(side, client, request)
        messages.extend((request, served.data))
        return served

    original = wire.serve
    monkeypatch.setattr(wire, "serve", serve)
    return messages


def distinctive() -> nn.Module:
    """Return `normed` with BatchNorm parameters and statistics that no other number equals by chance."""
    module = normed()
    norm = module[2]
    for tensor in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
        nn.init.uniform_(tensor, 0.7, 1.3)
    return module


def occurrences(vectors: Sequence[Tensor], messages: list[bytes]) -> int:
    """Return how many of the vectors' values occur, as float32, anywhere in the messages."""
    values = {value for vector in vectors for value in vector.reshape(-1).tolist() if value}
    patterns = [torch.tensor([value]).numpy().tobytes() for value in values]
    assert patterns
    haystack = b"\xff".join(messages)
    return sum(pattern in haystack for pattern in patterns)


@pytest.mark.parametrize(
    "private",
    ["bn", *(pytest.param(part, marks=pytest.mark.full) for part in ("bn_params", "bn_stats", ["1.*", "4.bias"]))],
    ids=str,
)
@pytest.mark.parametrize("name", INNER)
def test_no_byte_of_a_private_tensor_travels(name: str, private: str | list[str], traffic: list[bytes]) -> None:
    federation = Federation(mtfl(BUILDS[name], private), mixed(), "wire", make=distinctive, dtype=torch.float32)
    secrets: list[Tensor] = []
    for number in (1, 2):
        federation.round()
        for client in range(4):
            # not v: without gradients, it is a power of beta2 for both private and shared tensors
            secrets += [value for key, value in own(federation, client).items() if key not in ("v", "t")]
            if name == "independent":  # keeps its whole model itself
                secrets += pick("kept", federation.clients.kept.read(client)).values()
        assert len(traffic) == 8 * number
    assert occurrences(secrets, traffic) == 0


def test_the_search_finds_shared_tensors(traffic: list[bytes]) -> None:
    federation = Federation(FedAvg().build, mixed((9,)), "wire", make=distinctive, dtype=torch.float32)
    initial = federation.clients.network.variables["x"]
    federation.round()
    vectors = [initial, federation.state["x"], federation.state["stats"]]
    assert occurrences(vectors, traffic) == len({value for vector in vectors for value in vector.tolist() if value})


def test_uploads_are_too_short_for_private_tensors(traffic: list[bytes]) -> None:
    federation = Federation(mtfl(FedAvgAdam().build, "bn"), mixed((9,)), "wire", make=normed)
    federation.round()
    _, upload = wire.message.unpack(traffic[1], wire.message.WorkAnswer)
    # of 48 + 6 + 6 + 18 + 3 parameters the 12 of BatchNorm are missing, of 12 statistics all
    assert {name: value.numel() for name, value in upload.items()} == {"y": 69, "m": 69, "v": 69, "stats": 0, "t": 1}


# ---------------------------------------------------------------- limitations


def test_algorithms_with_several_exchanges_per_round_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"personal: needs one exchange per round; .* train, pull, push, renew"):
        Federation(mtfl(BUILDS["dynavg"], "bn"), mixed())
