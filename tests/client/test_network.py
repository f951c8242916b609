from collections.abc import Callable
from math import log

import pytest
import torch
from torch import nn

from federation import dense, normed
from fedge.client.network import Network, label_cross_entropy, squared_error
from fedge.core.errors import ModelError
from fedge.data.clients import Samples


def batch(size: int = 4) -> Samples:
    chance = torch.Generator().manual_seed(2)
    return Samples(torch.randn(size, 8, generator=chance), torch.arange(size) % 3)


def test_initial_weights_depend_on_the_seed_only() -> None:
    torch.manual_seed(1)
    one = Network(dense, 5, task="classes").variables["x"]
    torch.manual_seed(2)
    again = Network(dense, 5, task="classes").variables["x"]
    assert torch.equal(one, again)
    assert not torch.equal(one, Network(dense, 6, task="classes").variables["x"])


def test_the_global_generator_is_left_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    Network(dense, 5, task="classes")
    assert torch.equal(torch.rand(3), expected)


def test_variables_are_weights_and_statistics() -> None:
    network = Network(normed, 1, task="classes")
    # 8*6 weights, 6 gammas, 6 betas, 6*3 weights, 3 biases
    assert network.variables["x"].shape == (81,)
    assert network.layout.views(network.variables["x"])["2.weight"].tolist() == [1] * 6
    assert network.variables["stats"].tolist() == [0] * 6 + [1] * 6
    assert network.has_norm
    assert not Network(dense, 1, task="classes").has_norm
    assert Network(dense, 1, task="classes").variables["stats"].shape == (0,)


def test_the_gradient_of_a_quadratic() -> None:
    network = Network(lambda: nn.Linear(2, 1, bias=False), 1, task="values", dtype=torch.float64)
    x = torch.tensor([1.0, 2.0], dtype=torch.float64)
    samples = network.cast(Samples(torch.tensor([[1.0, 0.0], [1.0, 1.0]]), torch.tensor([[0.0], [7.0]])))
    loss, gradient, _ = network.gradient(x, torch.zeros(0), samples)
    # errors 1 - 0 and 3 - 7: half the mean square is (1 + 16)/4; mean of 1*(1, 0) and -4*(1, 1)
    assert loss.item() == 4.25
    assert gradient.tolist() == [-1.5, -2]


def test_half_the_squared_distance() -> None:
    found = squared_error(torch.tensor([[3.0, 0.0], [0.0, 0.0]]), torch.tensor([[0.0, 4.0], [0.0, 2.0]]))
    assert found.item() == 7.25  # (25 + 4)/2/2


def test_the_cross_entropy_of_labels() -> None:
    outputs = torch.tensor([[0.0, log(3)], [0.0, 0.0]], dtype=torch.float64)
    found = label_cross_entropy(outputs, torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=torch.float64))
    # -log(1/2) - log(1 - 3/4), and twice -log(1/2): sums over labels, mean over samples
    assert found.item() == pytest.approx(log(2) * (3 + 2) / 2, abs=1e-15)


def test_the_gradient_of_labels() -> None:
    network = Network(lambda: nn.Linear(1, 2, bias=False), 1, task="labels", dtype=torch.float64)
    x = torch.tensor([0.0, log(3)], dtype=torch.float64)
    _, gradient, _ = network.gradient(
        x, torch.zeros(0), network.cast(Samples(torch.ones(1, 1), torch.tensor([[1, 0]])))
    )
    assert gradient.tolist() == pytest.approx([-0.5, 0.75], abs=1e-15)  # probability - label


# ---------------------------------------------------------------- penalties on features


def hidden() -> nn.Module:
    """A model with features (u*x, v*x), whose output is their sum weighted by (p, q)."""
    return nn.Sequential(nn.Linear(1, 2, bias=False), nn.Linear(2, 1, bias=False))


def test_a_penalty_is_added_to_the_loss() -> None:
    network = Network(hidden, 1, task="values")
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])  # u, v, p, q
    samples = Samples(torch.tensor([[1.0], [3.0]]), torch.tensor([[11.0], [33.0]]))
    loss, gradient, _ = network.gradient(x, torch.zeros(0), samples, penalty=lambda a: 5 * a[..., 0] + a[..., 1])
    # the outputs are exact, so only the penalty remains: the mean of 5*1 + 2 and 5*3 + 6
    assert loss.item() == 14
    assert gradient.tolist() == [10, 2, 0, 0]  # mean of 5*x and x


def test_a_penalty_leaves_nothing_behind() -> None:
    network = Network(hidden, 1, task="values")
    samples, no_stats = Samples(torch.ones(2, 1), torch.zeros(2, 1)), torch.zeros(0)
    plain = network.gradient(network.variables["x"], no_stats, samples)[1]
    network.gradient(network.variables["x"], no_stats, samples, penalty=lambda a: a.sum(-1))
    assert torch.equal(network.gradient(network.variables["x"], no_stats, samples)[1], plain)
    assert not network.last_layer._forward_pre_hooks


def test_features_are_the_inputs_of_the_last_layer_with_weights() -> None:
    network = Network(lambda: nn.Sequential(nn.Flatten(), *dense(), nn.Dropout(0.5)), 1, task="classes")
    assert network.last_layer is network.module[3]  # type: ignore[index]


@pytest.mark.parametrize("make", [lambda: nn.Linear(8, 3), lambda: nn.Sequential(nn.Flatten(), nn.Linear(8, 3))])
def test_a_linear_model_has_no_features(make: Callable[[], nn.Module]) -> None:
    network = Network(make, 1, task="classes")
    with pytest.raises(ModelError, match="needs a hidden layer, but the model is linear; choose another one"):
        network.gradient(network.variables["x"], torch.zeros(0), batch(), penalty=lambda a: a.sum(-1))


# ---------------------------------------------------------------- unusual models


def test_the_gradient_of_tied_weights_is_the_sum() -> None:
    def twice() -> nn.Module:
        first, second = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
        second.weight = first.weight
        return nn.Sequential(first, second)

    network = Network(twice, 1, task="values")
    _, gradient, _ = network.gradient(torch.tensor([3.0]), torch.zeros(0), Samples(torch.ones(1, 1), torch.zeros(1, 1)))
    assert gradient.tolist() == [54]  # d/dw (w^2)^2/2 = 2w^3


def test_frozen_parameters_stay() -> None:
    def make() -> nn.Module:
        module = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
        nn.init.constant_(module[0].weight, 5)
        module[0].requires_grad_(False)
        return module

    network = Network(make, 1, task="values")
    _, gradient, _ = network.gradient(torch.tensor([2.0]), torch.zeros(0), Samples(torch.ones(1, 1), torch.zeros(1, 1)))
    assert gradient.tolist() == [50]  # (2*5*1 - 0)*5
    assert network.module[0].weight.item() == 5  # type: ignore[index]


def test_a_gradient_does_not_modify_its_inputs() -> None:
    network = Network(normed, 1, task="classes")
    x, stats = (network.variables[name].clone() for name in ("x", "stats"))
    _, _, after = network.gradient(x, stats, batch())
    assert torch.equal(x, network.variables["x"])
    assert torch.equal(stats, network.variables["stats"])
    assert not torch.equal(after, stats)


def test_a_batch_of_one_uses_and_leaves_the_running_statistics() -> None:
    network = Network(lambda: nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 1, bias=False)), 1, task="values")
    x = torch.tensor([1.0, 0.0, 2.0])  # gamma, beta, weight
    stats = torch.tensor([1.0, 4.0 - 1e-5])
    one = Samples(torch.tensor([[5.0]]), torch.tensor([[0.0]]))
    loss, gradient, after = network.gradient(x, stats, one)
    # normalised (5 - 1)/2 = 2, output 4: the gradients of gamma, beta and weight are 4 times 2*2, 2, 2
    assert loss.item() == pytest.approx(8)
    assert gradient.tolist() == pytest.approx([16, 8, 8])
    assert torch.equal(after, stats)


def test_outputs_are_computed_in_evaluation_mode() -> None:
    network = Network(lambda: nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(1)), 1, task="values")
    variables = {"x": torch.tensor([3.0, 1.0]), "stats": torch.tensor([2.0, 1.0 - 1e-5])}
    outputs = network.outputs(variables, torch.tensor([[2.0], [4.0]]))
    assert outputs.reshape(-1).tolist() == pytest.approx([1, 7])  # 3*(x - 2) + 1
    assert not outputs.requires_grad


def test_outputs_of_a_large_test_set_are_in_order() -> None:
    network = Network(lambda: nn.Linear(1, 1, bias=False), 1, task="values")
    inputs = torch.arange(5000.0).unsqueeze(1)
    outputs = network.outputs({"x": torch.tensor([2.0]), "stats": torch.zeros(0)}, inputs)
    assert torch.equal(outputs, 2 * inputs)


def test_samples_are_cast_to_the_networks_dtype() -> None:
    classify = Network(dense, 1, task="classes", dtype=torch.float64)
    regress = Network(dense, 1, task="values", dtype=torch.float64)
    x, characters = torch.ones(2, 8), torch.ones(2, 8, dtype=torch.int64)
    assert [part.dtype for part in classify.cast(Samples(x, torch.tensor([0, 1])))] == [torch.float64, torch.int64]
    assert [part.dtype for part in regress.cast(Samples(x, torch.ones(2, 3)))] == [torch.float64] * 2
    assert classify.cast(Samples(characters, torch.tensor([0, 1]))).x.dtype == torch.int64


def test_the_trained_module_owns_its_weights() -> None:
    network = Network(normed, 1, task="classes")
    x = torch.arange(81.0)
    module = network.trained({"x": x, "stats": torch.ones(12)})
    x.zero_()
    assert not module.training
    assert module.state_dict()["4.bias"].tolist() == [78, 79, 80]
    assert module.state_dict()["2.running_mean"].tolist() == [1] * 6


def test_a_model_is_in_memory_once() -> None:
    network = Network(normed, 5, task="classes")
    other = {name: value + 1 for name, value in network.variables.items()}
    for variables in (network.variables, other):
        network.adopt(variables, network.constants.packed())
        memory = variables["x"].untyped_storage().data_ptr()
        assert {p.untyped_storage().data_ptr() for p in network.module.parameters()} == {memory}


def test_the_gradient_of_a_large_model_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(normed, 5, task="classes")
    variables = network.variables["x"], network.variables["stats"]
    _, small, _ = network.gradient(*variables, batch())
    monkeypatch.setattr("fedge.client.network._LARGE", 0)
    _, large, _ = network.gradient(*variables, batch())
    assert torch.equal(small, large)
    assert small.any()
