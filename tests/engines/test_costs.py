"""Costs counted by the engines, derived by hand, and bytes compared with real messages."""

import pytest

from federation import BUILDS, ENGINES, Federation, dense, mixed
from fedge.algorithms.fedavg import FedAvg
from fedge.algorithms.mfl import FedAvgAdam
from fedge.algorithms.per_fedavg import PerFedAvg
from fedge.algorithms.scaffold import Scaffold
from fedge.client.client_side import ClientSide
from fedge.client.serve import Served
from fedge.core.algorithm import Build, Costs
from fedge.core.drive import Outcome
from fedge.engines import wire

F = 100  # FLOPs of one sample's gradient, as in `make_sides`
P = 8 * 6 + 6 + 6 * 3 + 3  # parameters of `dense`
B, K = 4, 3


def costs_of(build: Build, engine: str, **amount: int) -> Costs:
    """Return the costs of a round of clients with 6 and 9 samples."""
    (reply,) = Federation(build, mixed((6, 9)), engine, make=dense, batch_size=B, **amount).round().replies
    return reply.costs


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("build", "batches", "flops"),
    [
        (FedAvg().build, [K, K], [K * (B * F + 2 * P)] * 2),
        (FedAvgAdam().build, [K, K], [K * (B * F + 11 * P)] * 2),
        (Scaffold().build, [K, K], [K * (B * F + 4 * P)] * 2),
        # plus the gradient over all samples: 6 are two minibatches, 9 are three
        (Scaffold(option="I").build, [K + 2, K + 3], [K * (B * F + 4 * P) + 6 * F, K * (B * F + 4 * P) + 9 * F]),
        (PerFedAvg().build, [2 * K] * 2, [K * (2 * B * F + 2 * P)] * 2),
        (PerFedAvg(hessian="free").build, [4 * K] * 2, [K * (4 * B * F + 2 * P)] * 2),
    ],
    ids=["sgd", "adam", "scaffold II", "scaffold I", "per_fedavg", "per_fedavg free"],
)
def test_steps_batches_and_flops(build: Build, batches: list[int], flops: list[int], engine: str) -> None:
    costs = costs_of(build, engine, steps=K)
    assert costs.steps.tolist() == [K, K]
    assert costs.batches.tolist() == batches
    assert costs.flops.tolist() == flops


@pytest.mark.parametrize("engine", ENGINES)
def test_epochs_count_short_batches_as_they_are(engine: str) -> None:
    costs = costs_of(FedAvg().build, engine, epochs=1)
    # 6 samples in batches of 4 and 2, 9 in 4, 4 and 1
    assert costs.steps.tolist() == costs.batches.tolist() == [2, 3]
    assert costs.flops.tolist() == [6 * F + 2 * 2 * P, 9 * F + 3 * 2 * P]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_small_client_has_small_batches(engine: str) -> None:
    (reply,) = Federation(FedAvg().build, mixed((3,)), engine, make=dense, batch_size=B, steps=2).round().replies
    assert reply.costs.flops.tolist() == [2 * (3 * F + 2 * P)]
    (reply,) = Federation(Scaffold(option="I").build, mixed((3,)), engine, make=dense, steps=2).round().replies
    assert reply.costs.batches.tolist() == [2 + 1]


NAMES = (
    "fedavg",
    "independent",
    "scaffold",
    "fedavg_adam",
    "ce_fedavg",
    "dynavg(0.02)",
    "mtfl(fedavg, bn)",
    "mtfl(ce_fedavg, bn_params)",
)


@pytest.mark.parametrize("name", NAMES)
def test_bytes_are_the_lengths_of_the_messages(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[tuple[int, int]] = []

    def serve(side: ClientSide, client: int, request: bytes) -> Served:
        served = original(side, client, request)
        lengths.append((len(request), len(served.data)))
        return served

    original = wire.serve
    monkeypatch.setattr(wire, "serve", serve)
    # In a block, rounding may change what CE-FedAvg sends; the other algorithms send vectors of fixed length.
    engines = [engine for engine in ENGINES if engine != "block" or "ce_fedavg" not in name]
    federations = {engine: Federation(BUILDS[name], mixed(), engine) for engine in engines}
    for _ in range(2):
        lengths.clear()
        counted = {engine: byte_counts(federation.round()) for engine, federation in federations.items()}
        assert lengths
        assert counted == dict.fromkeys(engines, lengths)


def byte_counts(outcome: Outcome) -> list[tuple[int, int]]:
    costs = [reply.costs for reply in outcome.replies]
    return [pair for c in costs for pair in zip(c.bytes_down.tolist(), c.bytes_up.tolist(), strict=True)]


@pytest.mark.parametrize(
    ("name", "communicated"),
    [("fedavg", [True]), ("independent", [False]), ("ce_fedavg", [True]), ("dynavg(0.02)", [False, True, False])],
)
def test_what_counts_as_communication(name: str, communicated: list[bool]) -> None:
    """An upload with model-sized vectors counts; a flag does not."""
    replies = Federation(BUILDS[name], mixed(), steps=5).round().replies
    assert [reply.communicated for reply in replies] == communicated
