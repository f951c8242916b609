"""Composition of an algorithm from a configuration. On `points`, two steps at rate 1/2 quarter a distance."""

import pytest
import torch

from federation import Federation, mixed, normed, points, slope
from fedge.algorithms import ALGORITHMS, Cluster, CodecOptions, Personal, compose
from fedge.algorithms.compose import trained
from fedge.algorithms.dynavg import DynAvg
from fedge.algorithms.fedavg import FedAvg, FedMax, FedProx
from fedge.algorithms.options import TrainingOptions
from fedge.algorithms.per_fedavg import PerFedAvg
from fedge.algorithms.reduced import ByMean, ByMedian
from fedge.core.errors import ConfigError
from fedge.core.layout import Layout
from fedge.core.schema import tag

HALF = {"make": slope, "rate": 0.5, "steps": 2}


@pytest.mark.parametrize("kind", ALGORITHMS, ids=tag)
def test_defaults_do_not_wrap_the_algorithm(kind: type[TrainingOptions]) -> None:
    """Except where the name implies it: FedMAX has a penalty, FedProx a proximal term of 3 FLOPs per parameter."""
    plain, found = (build(Layout(())).works["train"] for build in (kind().build, trained(kind())))
    assert (found.penalty is not None) == (kind is FedMax)
    assert found.flops_per_param - plain.flops_per_param == (3 if kind is FedProx else 0)


def test_momentum_includes_weight_decay_and_prox() -> None:
    options = FedAvg(momentum=0.5, weight_decay=1.0, prox=0.5)
    federation = Federation(trained(options), points(0), make=slope, rate=0.25, steps=2)
    federation.round()
    # g + y + (y - 1)/2: 1 + 1 + 0 = 2, m 2, y 0.5
    # 0.5 + 0.5 - 0.25 = 0.75, m 1 + 0.75, y 0.5 - 0.4375
    assert federation.weight() == 0.0625


def test_the_default_reducer_is_the_mean() -> None:
    mean = Federation(compose(FedAvg(), ByMean()), points(0, 4, 100), **HALF).rounds(1)
    median = Federation(compose(FedAvg(), ByMedian()), points(0, 4, 100), **HALF).rounds(1)
    assert mean.weight() == pytest.approx((0.25 + 3.25 + 75.25) / 3, abs=1e-13)
    assert median.weight() == 3.25


def test_private_tensors() -> None:
    federation = Federation(compose(FedAvg(), ByMean(), personal=Personal(private=["*"])), points(0, 4), **HALF)
    federation.round()
    assert federation.weight() == 1
    assert [federation.clients.kept.read(client)["own.x"].item() for client in (0, 1)] == [0.25, 3.25]


def test_a_codec_only_sees_shared_tensors() -> None:
    codec = CodecOptions(up=["fp16"])
    build = compose(FedAvg(), ByMean(), personal=Personal(private="bn"), codec=codec)
    federation = Federation(build, mixed(), make=normed, dtype=torch.float32)
    assert federation.clients.algorithm.works["train"].codec is not None
    (coded,) = federation.round().replies
    (plain,) = Federation(FedAvg().build, mixed(), make=normed, dtype=torch.float32).round().replies
    # 69 of 81 parameters at 2 bytes instead of 4: at least 69*2 + 12*4 + 12*4 less, but for the header
    assert plain.costs.bytes_up[0] - coded.costs.bytes_up[0] > 150


def test_clusters() -> None:
    build = compose(FedAvg(), ByMean(), cluster=Cluster(count=2, round=1))
    federation = Federation(build, points(0, 4), **HALF).rounds(1)
    assert [federation.state[f"{cluster}.x"].item() for cluster in (0, 1)] == [0.25, 3.25]


def test_fine_tuning() -> None:
    assert compose(FedAvg(), ByMean())(Layout(())).adapt is None
    adapt = compose(FedAvg(), ByMean(), fine_tune_steps=3)(Layout(())).adapt
    assert adapt is not None
    assert adapt.num_steps == 3


def test_an_algorithm_keeps_its_own_adaptation() -> None:
    adapt = compose(PerFedAvg(), ByMean())(Layout(())).adapt
    assert adapt is not None
    assert adapt.num_steps == 1


def test_invalid_combinations_are_rejected() -> None:
    with pytest.raises(ConfigError, match="personal: needs one exchange per round"):
        compose(DynAvg(), ByMean(), personal=Personal(private="none"))(Layout(()))
    with pytest.raises(ConfigError, match="cluster: needs one exchange per round"):
        compose(DynAvg(), ByMean(), cluster=Cluster())(Layout(()))
