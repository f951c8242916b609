from itertools import combinations
from math import sqrt
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from federation import BUILDS, Federation, Handmade, Sign, dense, mixed, normed, points, slope
from fedge.algorithms.compressed import compressed
from fedge.algorithms.dynavg import DynAvg
from fedge.algorithms.fedavg import FedAvg
from fedge.algorithms.independent import Independent
from fedge.algorithms.mtfl import mtfl
from fedge.algorithms.per_fedavg import PerFedAvg
from fedge.client.network import Network
from fedge.config import TraceOptions
from fedge.core.algorithm import Build
from fedge.core.codecs.chain import parse_chain
from fedge.core.errors import ConfigError
from fedge.core.layout import Layout
from fedge.core.schema import read
from fedge.data.clients import Samples
from fedge.experiment.trace import Moments, Replay, Tracer, activations, cosine_distance, layer_slices, spread

Line = dict[str, Any]


def traced(federation: Federation, trace: TraceOptions) -> list[Line]:
    """Run one more round and return its trace."""
    replays = replay(federation, trace)
    federation.round()
    return list(Tracer(trace, federation.clients).lines(federation.state, federation.info, replays))


def replay(federation: Federation, trace: TraceOptions) -> list[Replay]:
    """Replay the clients' work of the next round."""
    coming = federation.info._replace(round=federation.info.round + 1)
    return Tracer(trace, federation.clients).replay(federation.state, coming)


def only(*switches: str) -> TraceOptions:
    off = dict.fromkeys(("user_accuracy", "gradients", "activations", "cosine_distance"), False)
    return TraceOptions(**{**off, **dict.fromkeys(switches, True)})


RIGHT = Samples(torch.tensor([[1.0], [-1.0], [2.0]]), torch.tensor([0, 1, 0]))
WRONG = Samples(torch.tensor([[1.0], [2.0], [-1.0]]), torch.tensor([1, 1, 0]))
NOTHING = Samples(torch.zeros(0, 1), torch.zeros(0, dtype=torch.int64))


# ---------------------------------------------------------------- a round by hand


def test_a_round_by_hand() -> None:
    lines = traced(Federation(FedAvg().build, points(0, 4), make=slope, rate=0.1, steps=2), TraceOptions())
    # The gradient is w - b: client 0 goes 1, 0.9, 0.81, client 1 goes 1, 1.3, 1.57; the mean of both is 1.19.
    steps = [(line["client"], line["step"], line["loss"], line["gradient"]["0"]) for line in lines[:4]]
    assert steps == [
        (0, 1, pytest.approx(0.5), pytest.approx(1.0)),
        (0, 2, pytest.approx(0.405), pytest.approx(0.9)),
        (1, 1, pytest.approx(4.5), pytest.approx(3.0)),
        (1, 2, pytest.approx(3.645), pytest.approx(2.7)),
    ]
    for line, change in zip(lines[4:6], (0.38, 0.38), strict=True):
        # the only input is 1, so the layer's output is its weight
        assert line["activations"] == {"0": {"mean_change": pytest.approx(change), "variance_change": 0, "variance": 0}}
    assert lines[6:] == [  # one weight decreased, the other increased
        {"kind": "updates", "round": 1, "cosine_distance": pytest.approx(2), "layers": {"0": pytest.approx(2)}}
    ]
    headings = {(line["kind"], line["round"], line["client"], line["group"]) for line in lines[:6]}
    assert headings == {(kind, 1, client, "all") for kind in ("step", "aggregation") for client in (0, 1)}


def test_user_accuracy_rises_with_steps_and_falls_with_the_aggregation() -> None:
    federation = Federation(FedAvg().build, Handmade([RIGHT, WRONG], 2), make=Sign, rate=10.0, steps=1)
    lines = traced(federation, only("user_accuracy"))
    # The gradient of client 1 at w = 1 is above 1: a step of size 10 flips its sign. Client 0's is tiny and negative,
    # so client 0 stays correct; the mean of both weights is negative.
    assert [(line["kind"], line["client"], line.get("step"), line["user_accuracy"]) for line in lines] == [
        ("step", 0, 0, 1),
        ("step", 0, 1, 1),
        ("step", 1, 0, 0),
        ("step", 1, 1, 1),
        ("aggregation", 0, None, 0),
        ("aggregation", 1, None, 1),
    ]


def test_accuracy_on_other_data_on_request() -> None:
    federation = Federation(FedAvg().build, Handmade([RIGHT, WRONG], 2), make=Sign, rate=10.0, steps=1)
    trace = TraceOptions(user_accuracy=False, train_accuracy=True, accuracy=True, gradients=False, activations=False)
    steps = [line for line in traced(federation, trace) if line["kind"] == "step"]
    assert [(line["train_accuracy"], line["accuracy"]) for line in steps] == [(1, 0.5), (1, 0.5), (0, 0.5), (1, 0.5)]
    assert not any("user_accuracy" in line for line in steps)


def test_clients_without_a_test_set_have_no_accuracy() -> None:
    class Untested(Handmade):
        def test(self, client: int, round: int) -> Samples:
            return NOTHING

    federation = Federation(FedAvg().build, Untested([RIGHT, WRONG], 2), make=Sign)
    assert {line["kind"] for line in traced(federation, TraceOptions())} == {"step", "updates"}
    assert traced(federation, only("user_accuracy")) == []


def test_gradient_and_loss_are_those_of_the_step() -> None:
    """Per-FedAvg takes its gradient at another point, w = 1 - 0.1; the loss is still that of the model."""
    federation = Federation(PerFedAvg(alpha=0.1).build, points(0), make=slope, steps=1)
    (line,) = traced(federation, only("gradients"))
    assert (line["loss"], line["gradient"]) == (pytest.approx(0.5), {"0": pytest.approx(0.9)})


def test_layer_norms_add_up_to_the_norm_of_the_gradient() -> None:
    federation = Federation(FedAvg().build, mixed(), make=dense, rate=0.5, steps=1)
    lines = traced(federation, only("gradients"))
    before = federation.clients.network.variables["x"]
    for line in lines:
        alone = Federation(FedAvg().build, mixed(), make=dense, rate=0.5, steps=1)
        alone.round(cohort=(line["client"],))
        length = float((before - alone.state["x"]).norm()) / 0.5
        assert sqrt(sum(part**2 for part in line["gradient"].values())) == pytest.approx(length)
        assert line["gradient"].keys() == {"0", "2"}


# ---------------------------------------------------------------- traced clients and rounds


def test_rounds_are_traced_at_the_interval() -> None:
    federation = Federation(FedAvg().build, points(0, 4), make=slope)
    trace = TraceOptions(every=2)
    found = [{line["round"] for line in traced(federation, trace)} for _ in range(4)]
    assert found == [set(), {2}, set(), {4}]


def test_both_groups_are_traced() -> None:
    clients = points(*range(10))
    clients.noisy = np.array([1, 3])
    federation = Federation(FedAvg().build, clients, make=slope)
    # in the order 0 2 4 5 6 7 8 9 | 1 3, every third
    found = [(replay.client, replay.group) for replay in replay(federation, TraceOptions(clients=4))]
    assert found == [(0, "clean"), (5, "clean"), (8, "clean"), (3, "noisy")]


def test_clients_without_samples_are_not_traced() -> None:
    federation = Federation(FedAvg().build, Handmade([RIGHT, NOTHING, WRONG], 2), make=Sign)
    assert [replay.client for replay in replay(federation, TraceOptions())] == [0, 2]


@given(st.sets(st.integers(0, 50), min_size=1), st.integers(1, 60))
@settings(max_examples=50, deadline=None)
def test_spread(cohort: set[int], count: int) -> None:
    ordered = sorted(cohort)
    found = spread(ordered, count)
    assert len(found) == len(set(found)) == min(count, len(ordered))
    places = [ordered.index(client) for client in found]
    gaps = np.diff(places)
    assert places[0] == 0
    assert len(found) == 1 or (places[-1] == len(ordered) - 1 and gaps.max() - gaps.min() <= 1)


def test_a_single_client_has_no_distance() -> None:
    federation = Federation(FedAvg().build, points(0), make=slope)
    assert [line["kind"] for line in traced(federation, TraceOptions())] == ["step"] * 3 + ["aggregation"]


@pytest.mark.parametrize(
    ("switch", "kinds"),
    [
        ("user_accuracy", {"step", "aggregation"}),
        ("gradients", {"step"}),
        ("activations", {"aggregation"}),
        ("cosine_distance", {"updates"}),
    ],
)
def test_only_enabled_measurements_are_recorded(switch: str, kinds: set[str]) -> None:
    assert {line["kind"] for line in traced(Federation(FedAvg().build, mixed()), only(switch))} == kinds


def test_a_trace_without_measurements_is_refused() -> None:
    off = dict.fromkeys(("user_accuracy", "gradients", "activations", "cosine_distance"), False)
    with pytest.raises(ConfigError, match="trace: nothing is traced; set one of the switches to true"):
        read(off, TraceOptions, "trace")


# ---------------------------------------------------------------- no side effects, and correct replays


EVERY_SORT = (
    "fedavg",
    "scaffold(I)",
    "fedavg_adam",
    "mimelite",
    "per_fedavg(free)",
    "pfedme",
    "dynavg(0.02)",
    "ce_fedavg",
    "mtfl(fedavg_adam, bn)",
    "clustered(fedavg)",
    "maxent(scaffold)",
)
"""Algorithms with each kind of step, state and exchange."""


@pytest.mark.parametrize("name", EVERY_SORT)
def test_the_run_is_unaffected(name: str) -> None:
    watched, alone = (Federation(BUILDS[name], mixed(), steps=2) for _ in range(2))
    for _ in range(2):
        assert traced(watched, TraceOptions())
    alone.rounds(2)
    before, after = alone.everything(), watched.everything()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize("build", [FedAvg().build, mtfl(FedAvg().build, "bn")], ids=["fedavg", "mtfl"])
def test_a_replay_equals_the_clients_actual_work(build: Build) -> None:
    federation = Federation(build, mixed(), steps=3).rounds(2)
    federation.info = federation.info._replace(cohort=(1,))
    (found,) = replay(federation, TraceOptions())
    federation.round()
    model = federation.clients.algorithm.model(federation.state, federation.clients.network.variables)
    if federation.clients.algorithm.personal:
        model = federation.clients.algorithm.personal(model, federation.clients.kept.read(1))
    assert torch.equal(found.model["x"], model["x"])
    assert torch.equal(found.model["stats"], model["stats"])


def test_clients_start_from_the_decoded_download() -> None:
    build = compressed(FedAvg().build, None, None, parse_chain(["fp16"]))
    federation = Federation(build, points(0), make=slope)
    federation.state = {**federation.state, "x": torch.tensor([1 / 3], dtype=torch.float64)}
    (found,) = replay(federation, TraceOptions())
    assert found.start.item() == float(np.float16(1 / 3)) != 1 / 3


# ---------------------------------------------------------------- private parts


def test_private_layers_are_not_part_of_an_update() -> None:
    federation = Federation(mtfl(FedAvg().build, ["1.*"]), mixed())
    lines = traced(federation, TraceOptions())
    updates = lines[-1]
    assert (updates["kind"], updates["layers"].keys()) == ("updates", {"2", "4"})
    assert lines[1]["gradient"].keys() == {"1", "2", "4"}


@pytest.mark.parametrize("build", [Independent().build, DynAvg(delta=1e9).build], ids=["independent", "dynavg"])
def test_without_aggregation_nothing_changes(build: Build) -> None:
    lines = traced(Federation(build, mixed()), only("activations"))
    assert len(lines) == 4
    for line in lines:
        for layer in line["activations"].values():
            assert (layer["mean_change"], layer["variance_change"]) == (0, 0)


def test_outputs_of_private_layers_do_not_change() -> None:
    """The first layer is private, so only outputs of later layers change."""
    lines = traced(Federation(mtfl(FedAvg().build, ["1.*", "2.*"]), mixed()), only("activations"))
    for line in lines:
        moved = {name: layer["mean_change"] for name, layer in line["activations"].items()}
        assert (moved["1"], moved["2"]) == (0, 0)
        assert moved["4"] > 0


# ---------------------------------------------------------------- measures


def test_layers_by_name() -> None:
    assert layer_slices(Layout.of(normed())) == {"1": slice(0, 48), "2": slice(48, 60), "4": slice(60, 81)}
    assert layer_slices(Layout.of(Sign())) == {"model": slice(0, 1)}


VECTORS = st.integers(1, 5).flatmap(
    lambda size: st.lists(st.lists(st.integers(-9, 9), min_size=size, max_size=size), min_size=2, max_size=6)
)


@given(VECTORS)
@settings(max_examples=50, deadline=None)
def test_cosine_distance_is_the_mean_over_pairs(vectors: list[list[int]]) -> None:
    def distance(u: np.ndarray, v: np.ndarray) -> float:
        lengths = np.linalg.norm(u) * np.linalg.norm(v)
        return 1 - float(u @ v) / lengths if lengths else 1.0

    expected = np.mean([distance(np.array(u), np.array(v)) for u, v in combinations(vectors, 2)])
    found = cosine_distance([torch.tensor(vector, dtype=torch.float64) for vector in vectors])
    assert found == pytest.approx(expected, abs=1e-12)


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_moments_do_not_depend_on_batching(first: int, second: int, neurons: int) -> None:
    rows = torch.randn(first + second, neurons, generator=torch.Generator().manual_seed(first * 10 + second))
    moments = Moments()
    moments.add(rows[:first])
    moments.add(rows[first:])
    torch.testing.assert_close(moments.mean, rows.double().mean(0))
    torch.testing.assert_close(moments.variance, rows.double().var(0, correction=0))


def test_change_of_moments_by_hand() -> None:
    before, after = Moments(), Moments()
    before.add(torch.tensor([[0.0, 1.0], [2.0, 5.0]]))  # means 1, 3; variances 1, 4
    after.add(torch.tensor([[2.0, 2.0], [2.0, 2.0]]))  # means 2, 2; variances 0, 0
    assert before.change(after) == {"mean_change": 1, "variance_change": 2.5, "variance": 2.5}


class Sequences(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(2, 3, batch_first=True)
        self.head = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs, _ = self.gru(x)
        return self.head(outputs[:, -1])


@pytest.mark.parametrize(
    ("make", "shape", "sizes"),
    [
        (lambda: nn.Sequential(nn.Conv2d(1, 5, 3), nn.BatchNorm2d(5), nn.ReLU()), (1, 6, 6), {"0": 5, "1": 5}),
        (Sequences, (4, 2), {"gru": 3, "head": 2}),
        (Sign, (1,), {"model": 2}),
    ],
    ids=["convolution", "recurrent", "itself"],
)
def test_neurons_of_each_layer(make: Any, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
    network = Network(make, 1, "classes")
    found = activations(network, network.variables, torch.randn(7, *shape, generator=torch.Generator().manual_seed(1)))
    assert {name: len(moments.mean) for name, moments in found.items()} == sizes
    assert not any(part._forward_hooks for part in network.module.modules())


def test_each_channel_has_its_own_moments() -> None:
    network = Network(lambda: nn.Sequential(nn.Conv2d(1, 2, 1, bias=False)), 1, "classes", torch.float64)
    variables = {"x": torch.tensor([1.0, -3.0], dtype=torch.float64), "stats": torch.zeros(0, dtype=torch.float64)}
    (moments,) = activations(network, variables, torch.tensor([[[[0.0, 2.0]]], [[[0.0, 2.0]]]]).double()).values()
    assert moments.mean.tolist() == [1, -3]
    assert moments.variance.tolist() == [1, 9]
