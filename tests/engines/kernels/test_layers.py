"""Every layer compared with autograd: clients with their own weights, with and without padding."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import dropout

from blocks import (
    EXACT,
    SIZES,
    batch_of,
    check_gradients,
    check_outputs,
    check_steps,
    kernels_of,
    models_of,
    network_of,
    normal,
)
from fedge.data.clients import Samples
from fedge.engines.kernels.layer import Batch, Pass
from fedge.engines.kernels.layers import BatchNorm, Dropout, Relu

Make = Callable[[], nn.Module]


def between(*layers: nn.Module) -> nn.Module:
    """Return layers on four values, between two linear layers."""
    return nn.Sequential(nn.Linear(5, 4), *layers, nn.Linear(4, 3))


def on_images(*layers: nn.Module) -> nn.Module:
    """Return layers on images of two channels, between other layers."""
    return nn.Sequential(nn.Linear(3, 3), *layers, nn.Flatten(), nn.Linear(12, 3))


VECTOR, IMAGE = (5,), (2, 2, 3)
LAYERS: dict[str, tuple[Make, tuple[int, ...]]] = {
    "linear": (lambda: nn.Sequential(nn.Linear(5, 3)), VECTOR),
    "linear without bias": (lambda: nn.Sequential(nn.Linear(5, 3, bias=False)), VECTOR),
    "linear on images": (on_images, IMAGE),
    "flatten": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), IMAGE),
    "flatten some axes": (lambda: on_images(nn.Flatten(2, 3)), IMAGE),
    "flatten up to an axis": (lambda: on_images(nn.Flatten(1, -2)), IMAGE),
    "identity": (lambda: between(nn.Identity()), VECTOR),
    "relu": (lambda: between(nn.ReLU()), VECTOR),
    "relu in place": (lambda: between(nn.ReLU(inplace=True)), VECTOR),
    "relu first": (lambda: nn.Sequential(nn.ReLU(), nn.Linear(5, 3)), VECTOR),
    "relu last": (lambda: nn.Sequential(nn.Linear(5, 3), nn.ReLU()), VECTOR),
    "relu after a layer that saves its output": (lambda: between(nn.Tanh(), nn.ReLU(), nn.ReLU()), VECTOR),
    "tanh": (lambda: between(nn.Tanh()), VECTOR),
    "tanh last": (lambda: nn.Sequential(nn.Linear(5, 3), nn.Tanh()), VECTOR),
    "sigmoid": (lambda: between(nn.Sigmoid()), VECTOR),
    "silu": (lambda: between(nn.SiLU()), VECTOR),
    "leaky relu": (lambda: between(nn.LeakyReLU(0.3)), VECTOR),
    "elu": (lambda: between(nn.ELU(0.7)), VECTOR),
    "gelu": (lambda: between(nn.GELU()), VECTOR),
    "gelu by tanh": (lambda: between(nn.GELU("tanh")), VECTOR),
    "dropout": (lambda: between(nn.Dropout(0.4)), VECTOR),
    "dropout first": (lambda: nn.Sequential(nn.Dropout(0.4), nn.Linear(5, 3)), VECTOR),
    "dropout twice": (lambda: between(nn.Dropout(0.4), nn.Tanh(), nn.Dropout(0.2)), VECTOR),
    "dropout of images": (lambda: on_images(nn.Dropout(0.4)), IMAGE),
    "batchnorm": (lambda: between(nn.BatchNorm1d(4)), VECTOR),
    "batchnorm without parameters": (lambda: between(nn.BatchNorm1d(4, affine=False), nn.ReLU()), VECTOR),
    "batchnorm first": (lambda: nn.Sequential(nn.BatchNorm1d(5, eps=0.1, momentum=0.3), nn.Linear(5, 3)), VECTOR),
    "batchnorm last": (lambda: nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3)), VECTOR),
    "batchnorm of sequences": (
        lambda: nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(2), nn.Flatten(), nn.Linear(6, 3)),
        (2, 3),
    ),
    "batchnorm of images": (lambda: on_images(nn.BatchNorm2d(2, momentum=0.3), nn.ReLU()), IMAGE),
    "batchnorm of images without parameters": (lambda: on_images(nn.BatchNorm2d(2, affine=False)), IMAGE),
    "batchnorm of images first": (lambda: nn.Sequential(nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(12, 3)), IMAGE),
}


@pytest.mark.parametrize("sizes", [None, SIZES, (3, 2, 3, 2)], ids=["full", "padded", "all padded"])
@pytest.mark.parametrize("layer", LAYERS)
def test_gradients_are_those_of_autograd(layer: str, sizes: tuple[int, ...] | None) -> None:
    make, shape = LAYERS[layer]
    network = network_of(make)
    check_gradients(network, kernels_of(network), batch_of(network, shape, sizes=sizes), num_batches=2)


@pytest.mark.parametrize("sizes", [None, SIZES], ids=["full", "padded"])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_step_is_a_gradient_and_a_move(layer: str, sizes: tuple[int, ...] | None) -> None:
    make, shape = LAYERS[layer]
    network = network_of(make)
    check_steps(network, kernels_of(network), lambda: batch_of(network, shape, sizes=sizes))


@pytest.mark.parametrize("layer", LAYERS)
def test_evaluation(layer: str) -> None:
    make, shape = LAYERS[layer]
    network = network_of(make)
    check_outputs(network, kernels_of(network), batch_of(network, shape).samples.x)


@pytest.mark.parametrize("layer", [name for name in LAYERS if "batchnorm" in name])
def test_a_batch_of_one_is_normalised_by_the_running_statistics(layer: str) -> None:
    make, shape = LAYERS[layer]
    network = network_of(make)
    batch = batch_of(network, shape, size=1)
    check_gradients(network, kernels_of(network), batch)
    x, stats = models_of(network)
    _, after = kernels_of(network).gradient(x, stats, batch, torch.empty_like(x))
    assert torch.equal(after, stats)


def test_a_client_with_one_sample_keeps_its_statistics_in_a_batch_of_many() -> None:
    network = network_of(LAYERS["batchnorm"][0])
    x, stats = models_of(network)
    _, after = kernels_of(network).gradient(x, stats, batch_of(network, VECTOR, sizes=SIZES), torch.empty_like(x))
    assert [torch.equal(new, old) for new, old in zip(after, stats, strict=True)] == [size == 1 for size in SIZES]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=len(SIZES), max_size=len(SIZES)))
def test_padding_changes_nothing(sizes: list[int]) -> None:
    network = network_of(
        lambda: on_images(nn.BatchNorm2d(2), nn.ReLU(), nn.Dropout(0.4), nn.Flatten(), nn.BatchNorm1d(12))
    )
    check_gradients(network, kernels_of(network), batch_of(network, IMAGE, 6, sizes))


def test_inputs_are_not_overwritten() -> None:
    network = network_of(LAYERS["relu first"][0])
    batch = batch_of(network, VECTOR)
    given = batch.samples.x.clone()
    x, stats = models_of(network)
    kernels_of(network).gradient(x, stats, batch, torch.empty_like(x))
    assert torch.equal(batch.samples.x, given)


def test_float32_agrees_with_float64() -> None:
    network = network_of(LAYERS["batchnorm of images"][0])
    x, stats = models_of(network)
    samples, shares, _ = batch_of(network, IMAGE, sizes=SIZES)
    found = []
    for dtype in (torch.float32, torch.float64):
        batch = Batch(Samples(samples.x.to(dtype), samples.y), shares.to(dtype))
        found.append(torch.empty_like(x, dtype=dtype))
        kernels_of(network).gradient(x.to(dtype), stats.to(dtype), batch, found[-1])
    torch.testing.assert_close(found[0].double(), found[1], rtol=1e-3, atol=1e-4)


# ---------------------------------------------------------------- layouts in memory


class Noted:
    """Gradients by name."""

    def __init__(self) -> None:
        self.found: dict[str, Tensor] = {}

    def add(self, name: str, gradient: Tensor) -> None:
        self.found[name] = gradient

    def add_product(self, name: str, a: Tensor, b: Tensor) -> None:
        self.found[name] = a @ b


def channels_last(x: Tensor) -> Tensor:
    """Return the images with channels last in memory."""
    return x.movedim(2, -1).clone(memory_format=torch.contiguous_format).movedim(-1, 2)


def strided(x: Tensor) -> Tensor:
    """Return the images with gaps between them in memory."""
    return torch.stack([x, x], -1)[..., 0]


@pytest.mark.parametrize("layout", [channels_last, strided])
@pytest.mark.parametrize("layout_g", [channels_last, strided, torch.clone])
@pytest.mark.parametrize("image", [(), (5,), (5, 6)], ids=["vectors", "sequences", "images"])
def test_batchnorm_takes_any_layout(
    layout: Callable[[Tensor], Tensor], layout_g: Callable[[Tensor], Tensor], image: tuple[int, ...]
) -> None:
    layer = BatchNorm("", nn.BatchNorm2d(3))
    x, g = normal(2, 4, 3, *image, seed=1), normal(2, 4, 3, *image, seed=2)
    shares = torch.tensor([[0.25] * 4, [0.5, 0.5, 0, 0]], dtype=torch.float64)
    g[1, 2:] = 0  # zero for padding, as a loss returns it

    def passed(x: Tensor, g: Tensor) -> tuple[Tensor, ...]:
        stats = {"running_mean": normal(2, 3, seed=3), "running_var": normal(2, 3, seed=4).abs()}
        run = Pass({"weight": normal(2, 3, seed=5), "bias": normal(2, 3, seed=6)}, stats, True, shares)
        out, saved = layer.forward(x, run)
        into = Noted()
        return out, layer.backward(g, saved, run, into, True), *into.found.values(), *stats.values()

    for found, expected in zip(passed(layout(x), layout_g(g)), passed(x, g.clone()), strict=True):
        torch.testing.assert_close(found, expected, **EXACT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layout", [torch.clone, channels_last])
def test_dropout_draws_what_torch_draws(layout: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    """For the real samples of each client, as if it were alone and its images in torch's default layout."""
    x = normal(len(SIZES), 4, 3, 5, 7).to(dtype)
    shares = (torch.arange(4) < torch.tensor(SIZES).unsqueeze(1)).to(dtype)
    generators = [torch.Generator().manual_seed(i) for i in range(len(SIZES))]
    run = Pass({}, {}, True, shares, generators)
    layer = Dropout("", nn.Dropout(0.3))
    for _ in range(2):
        found, _ = layer.forward(layout(x), run)
        assert found.stride() == layout(x).stride()
        states = [generator.get_state() for generator in generators]
    for i, size in enumerate(SIZES):
        with torch.random.fork_rng():
            torch.manual_seed(i)
            dropout(x[i, :size], 0.3)
            torch.testing.assert_close(found[i, :size], dropout(x[i, :size], 0.3), rtol=1e-6, atol=0)
            assert torch.equal(states[i], torch.get_rng_state())
        assert not found[i, size:].any()


def test_relu_in_place_allocates_no_tensor() -> None:
    x = torch.tensor([[[-1.0, 2.0]]])
    run = Pass({}, {}, True)
    assert Relu(in_place=True).forward(x, run)[0] is x
    assert x.tolist() == [[[0, 2]]]
    y = torch.tensor([[[-1.0, 2.0]]])
    assert Relu().forward(y, run)[0].tolist() == [[[0, 2]]]
    assert y.tolist() == [[[-1, 2]]]
