from math import log
from typing import get_args

import pytest
import torch
from torch import Tensor, nn

from blocks import SIZES, batch_of, check_gradients, check_steps, kernels_of, network_of
from fedge.core.registered import Task
from fedge.engines.kernels.losses import LOSSES, penalise, weigh

PADDED = torch.tensor([[0.5, 0.5, 0.0]])


def tensor(*values: object) -> Tensor:
    return torch.tensor([values], dtype=torch.float64)


@pytest.mark.parametrize("sizes", [None, SIZES], ids=["full", "padded"])
@pytest.mark.parametrize("task", get_args(Task))
def test_gradients_are_those_of_autograd(task: Task, sizes: tuple[int, ...] | None) -> None:
    network = network_of(lambda: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)), task)
    check_gradients(network, kernels_of(network), batch_of(network, (5,), sizes=sizes))
    check_steps(network, kernels_of(network), lambda: batch_of(network, (5,), sizes=sizes))


def test_classes() -> None:
    # Probabilities 1/4 and 3/4, then 1/2 and 1/2; the targets are class 1, then class 0; the third is padding.
    losses, g = LOSSES["classes"](tensor([0.0, log(3)], [0.0, 0.0], [9.0, 0.0]), torch.tensor([[1, 0, 0]]), PADDED)
    assert losses.tolist() == pytest.approx([(log(4 / 3) + log(2)) / 2], abs=1e-15)
    assert g[0].tolist() == [pytest.approx(row, abs=1e-15) for row in ([1 / 8, -1 / 8], [-1 / 4, 1 / 4], [0, 0])]


def test_labels() -> None:
    # Probabilities 1/2 and 3/4, then 1/2 and 1/2; only the first label of all is set.
    outputs, target = tensor([0.0, log(3)], [0.0, 0.0], [9.0, 9.0]), tensor([1.0, 0.0], [0.0, 0.0], [0.0, 0.0])
    losses, g = LOSSES["labels"](outputs, target, PADDED)
    assert losses.tolist() == pytest.approx([log(2) * (1 + 2 + 1 + 1) / 2], abs=1e-15)
    assert g[0].tolist() == [pytest.approx(row, abs=1e-15) for row in ([-1 / 4, 3 / 8], [1 / 4, 1 / 4], [0, 0])]


def test_values() -> None:
    outputs, target = tensor([3.0, 0.0], [0.0, 0.0], [9.0, 9.0]), tensor([0.0, 4.0], [0.0, 2.0], [0.0, 0.0])
    losses, g = LOSSES["values"](outputs, target, PADDED)
    assert losses.tolist() == [(25 + 4) / 2 / 2]
    assert g[0].tolist() == [[1.5, -2], [0, -1], [0, 0]]


@pytest.mark.parametrize("task", get_args(Task))
def test_without_padding_all_samples_count_the_same(task: Task) -> None:
    outputs, values = tensor([3.0, 0.0], [1.0, 0.5]), tensor([0.0, 1.0], [1.0, 1.0])
    target = values.argmax(-1) if task == "classes" else values
    given = outputs.clone()
    for found, expected in zip(
        LOSSES[task](outputs, target, None), LOSSES[task](outputs, target, tensor(0.5, 0.5)), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-15, atol=0)
    assert torch.equal(outputs, given)  # a layer may have saved them


# ---------------------------------------------------------------- penalties on features


def test_a_penalty_is_the_mean_over_real_samples() -> None:
    features = tensor([1.0, 2.0], [3.0, 0.0], [100.0, 100.0])
    added, g = penalise(lambda f: (f**2).sum(-1), features, PADDED)
    assert added.tolist() == [(5 + 9) / 2]
    assert g[0].tolist() == [[1, 2], [3, 0], [0, 0]]  # 2f/2
    assert penalise(lambda f: (f**2).sum(-1), features[:, :2], None)[0].tolist() == [7]


def test_a_penalty_on_sequences_is_the_mean_over_positions() -> None:
    features = tensor([[1.0], [2.0]], [[3.0], [0.0]])
    added, g = penalise(lambda f: f.squeeze(-1), features, None)
    assert added.tolist() == [1.5]
    assert g.flatten().tolist() == [0.25] * 4


@pytest.mark.parametrize("sizes", [None, SIZES], ids=["full", "padded"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)),
        lambda: nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3), nn.ReLU()),
    ],
    ids=["linear last", "batchnorm last"],
)
def test_penalties_are_those_of_autograd(make: type[nn.Module], sizes: tuple[int, ...] | None) -> None:
    network = network_of(make)
    batch = batch_of(network, (5,), sizes=sizes)
    check_gradients(network, kernels_of(network), batch, lambda features: torch.logsumexp(features, -1) ** 2)


def test_weights_of_samples() -> None:
    assert weigh(tensor(1.0, 2.0, 6.0), None).tolist() == [3]
    assert weigh(tensor(1.0, 2.0, 6.0), PADDED).tolist() == [1.5]
