"""Convolution and pooling of a block against autograd, client by client, and against numbers derived by hand."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call

from fedge.core.layout import Layout
from fedge.engines.kernels import convolution
from fedge.engines.kernels.convolution import AdaptiveAvgPool2d, AvgPool2d, Conv2d, MaxPool2d, swap_pool
from fedge.engines.kernels.layer import Into, Layer, Pass, Stepped, Written
from fedge.engines.kernels.layers import Relu

# torch's warning about padding="same"
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")

EXACT = {"rtol": 1e-9, "atol": 1e-11}
LAYERS = {
    nn.Conv2d: Conv2d,
    nn.MaxPool2d: MaxPool2d,
    nn.AvgPool2d: AvgPool2d,
    nn.AdaptiveAvgPool2d: AdaptiveAvgPool2d,
    nn.ReLU: lambda prefix, module: Relu(),
}

CONVOLUTIONS: dict[str, tuple[nn.Conv2d, tuple[int, int]]] = {
    "one channel": (nn.Conv2d(1, 32, 3), (9, 8)),
    "one channel to few": (nn.Conv2d(1, 10, 5), (9, 11)),
    "three channels": (nn.Conv2d(3, 5, 3, padding=1), (7, 6)),
    "three channels, long steps": (nn.Conv2d(3, 16, (3, 2), stride=(2, 3), padding=(1, 0), dilation=(1, 2)), (9, 10)),
    "few channels, lopsided": (nn.Conv2d(2, 4, (2, 4), padding="same", dilation=(3, 1)), (7, 8)),
    "few channels, no bias": (nn.Conv2d(4, 6, 3, bias=False), (5, 5)),
    "many channels": (nn.Conv2d(10, 16, 3), (7, 8)),
    "many channels to few": (nn.Conv2d(10, 6, 5, padding=2), (6, 7)),
    "many channels to more": (nn.Conv2d(5, 9, 1), (4, 5)),
    "many channels, long steps": (nn.Conv2d(8, 12, (3, 2), stride=(2, 1), padding=(2, 1), dilation=(2, 1)), (10, 9)),
    "many channels, lopsided": (nn.Conv2d(6, 16, (4, 3), padding="same"), (6, 5)),
    "many channels, no padding": (nn.Conv2d(6, 7, 3, padding="valid", bias=False), (6, 5)),
    "steps that leave out a row": (nn.Conv2d(6, 8, 3, stride=2), (8, 10)),
    "the whole image": (nn.Conv2d(5, 16, (4, 3)), (4, 3)),
    "groups": (nn.Conv2d(8, 12, 3, padding=1, groups=4), (5, 6)),
    "each channel by itself": (nn.Conv2d(6, 6, 3, stride=2, padding=1, groups=6, bias=False), (7, 7)),
    "groups of few channels, lopsided": (nn.Conv2d(4, 4, 2, padding="same", groups=2), (5, 5)),
}

POOLS: dict[str, tuple[nn.Module, tuple[int, int]]] = {
    "max": (nn.MaxPool2d(2), (6, 8)),
    "max that leaves out the end": (nn.MaxPool2d(2), (7, 5)),
    "max of windows that overlap": (nn.MaxPool2d(3, stride=2, padding=1), (7, 8)),
    "max to the ceiling": (nn.MaxPool2d((2, 3), ceil_mode=True), (7, 7)),
    "max of every other": (nn.MaxPool2d(2, stride=1, dilation=2), (6, 5)),
    "mean": (nn.AvgPool2d(2), (6, 7)),
    "mean of windows that overlap": (nn.AvgPool2d((3, 2), stride=(2, 1), padding=1), (7, 6)),
    "mean without padding": (nn.AvgPool2d(3, padding=1, count_include_pad=False, ceil_mode=True), (7, 8)),
    "mean by a divisor": (nn.AvgPool2d(2, divisor_override=3), (4, 6)),
    "mean of all": (nn.AdaptiveAvgPool2d(1), (5, 7)),
    "means of parts": (nn.AdaptiveAvgPool2d((3, 2)), (7, 5)),
    "means of rows": (nn.AdaptiveAvgPool2d((None, 1)), (4, 5)),
}


def random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def layout_of(module: nn.Module) -> Layout:
    return Layout.of(module) if list(module.parameters()) else Layout(())


def rows_of(layout: Layout, num_clients: int) -> Tensor:
    return random(num_clients, layout.num_params, seed=2)


def layers_of(module: nn.Module) -> list[Layer]:
    modules = module.named_children() if isinstance(module, nn.Sequential) else [("", module)]
    return [LAYERS[type(part)](f"{name}." if name else "", part) for name, part in modules]


def differentiate(
    layers: Sequence[Layer], layout: Layout, y: Tensor, x: Tensor, g: Tensor, into: Into, need_input: bool = True
) -> tuple[Tensor, Tensor]:
    """Return (output, gradient of the input)."""
    run = Pass(layout.views(y), {}, training=True)
    saved = []
    for layer in layers:
        x, kept = layer.forward(x, run)
        saved.append(kept)
    for layer in reversed(layers):
        g = layer.backward(g, saved.pop(), run, into, need_input)
    return x, g


def autograd(module: nn.Module, layout: Layout, y: Tensor, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return (output, gradient of the input, gradient of the weights), one client at a time."""
    y, x = y.clone().requires_grad_(), x.clone().requires_grad_()
    clients = zip(y, x, strict=True)
    out = torch.stack([functional_call(module, layout.views(own_y), (own_x,)) for own_y, own_x in clients])
    by_x, by_y = torch.autograd.grad(out, (x, y), g, allow_unused=True)  # pooling has no weights
    return out.detach(), by_x, torch.zeros_like(y) if by_y is None else by_y


def output_like(module: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        shape = module.to(x.dtype)(x[0]).shape
    return random(len(x), *shape, seed=3).to(x.dtype)


def assert_as_autograd(
    module: nn.Module, x: Tensor, layers: Sequence[Layer] | None = None, tolerance: dict[str, float] = EXACT
) -> None:
    layers = layers_of(module) if layers is None else layers
    layout = layout_of(module)
    y, g = rows_of(layout, len(x)).to(x.dtype), output_like(module, x)
    expected, by_x, by_y = autograd(module, layout, y, x, g)
    written = torch.full_like(y, torch.nan)
    out, before = differentiate(layers, layout, y, x, g.clone(), Written(layout, written))
    torch.testing.assert_close(out, expected, **tolerance)
    torch.testing.assert_close(before, by_x, **tolerance)
    torch.testing.assert_close(written, by_y, **tolerance)


def channels_last(x: Tensor) -> Tensor:
    return x.transpose(2, 4).contiguous().transpose(2, 4)


@pytest.mark.parametrize("num_clients", [1, 3])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution_equals_autograd_per_client(name: str, num_clients: int) -> None:
    module, size = CONVOLUTIONS[name]
    assert_as_autograd(module, random(num_clients, 4, module.in_channels, *size))


@pytest.mark.parametrize("name", ["three channels", "one channel to few", "many channels", "many channels to few"])
def test_patches_in_several_parts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, size = CONVOLUTIONS[name]
    monkeypatch.setattr(convolution, "_PATCH_NUMBERS", 2 * module.weight[0].numel() * size[0] * size[1])
    assert_as_autograd(module, random(2, 5, module.in_channels, *size))


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_single_precision(name: str) -> None:
    module, size = CONVOLUTIONS[name]
    x = random(2, 3, module.in_channels, *size).float()
    assert_as_autograd(module, x, tolerance={"rtol": 1e-3, "atol": 1e-4})
    module.double()


@pytest.mark.parametrize("name", ["three channels", "many channels", "groups", "each channel by itself"])
def test_any_memory_layout(name: str) -> None:
    module, (height, width) = CONVOLUTIONS[name]
    channels = module.in_channels
    assert_as_autograd(module, channels_last(random(2, 3, channels, height, width)))
    assert_as_autograd(module, random(2, 6, channels + 1, height, 2 * width)[:, ::2, 1:, :, ::2])
    assert_as_autograd(module, random(1, 3, channels, height, width).expand(2, -1, -1, -1, -1))


@settings(max_examples=40, deadline=None)
@given(
    channels=st.sampled_from([(1, 3), (3, 16), (6, 4), (5, 16)]),
    kernel=st.tuples(*[st.integers(1, 3)] * 2),
    stride=st.tuples(*[st.integers(1, 3)] * 2),
    padding=st.tuples(*[st.integers(0, 2)] * 2),
    dilation=st.tuples(*[st.integers(1, 2)] * 2),
    size=st.tuples(*[st.integers(5, 8)] * 2),
)
def test_any_geometry(
    channels: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    size: tuple[int, int],
) -> None:
    module = nn.Conv2d(*channels, kernel, stride, padding, dilation)
    assert_as_autograd(module, random(2, 2, channels[0], *size))


@pytest.mark.parametrize("name", ["three channels", "many channels", "groups"])
def test_weights_may_be_updated_in_place(name: str) -> None:
    module, size = CONVOLUTIONS[name]
    layout = Layout.of(module)
    y, x = rows_of(layout, 3), random(3, 2, module.in_channels, *size)
    g, drift = output_like(module, x), random(3, layout.num_params, seed=4)
    _, by_x, by_y = autograd(module, layout, y, x, g)
    expected = 0.9 * y + drift - 0.1 * by_y
    _, before = differentiate(
        layers_of(module), layout, y, x, g.clone(), Stepped(layout, layout.views(y), (0.9, drift, 0.1))
    )
    torch.testing.assert_close(y, expected, **EXACT)
    torch.testing.assert_close(before, by_x, **EXACT)


@pytest.mark.parametrize("name", ["three channels", "many channels"])
def test_weights_need_no_gradient_of_the_input(name: str) -> None:
    module, size = CONVOLUTIONS[name]
    layout = Layout.of(module)
    y, x = rows_of(layout, 2), random(2, 3, module.in_channels, *size)
    g, written = output_like(module, x), torch.full_like(y, torch.nan)
    *_, by_y = autograd(module, layout, y, x, g)
    differentiate(layers_of(module), layout, y, x, g, Written(layout, written), need_input=False)
    torch.testing.assert_close(written, by_y, **EXACT)


def test_convolution_by_hand() -> None:
    module = nn.Conv2d(1, 1, 2)
    layout = Layout.of(module)
    # Two clients have the same image. The first sums the diagonal of each window, the second takes twice its last
    # pixel, and each adds its bias.
    y = torch.tensor([[1.0, 0, 0, 1, 0.5], [0, 0, 0, 2, -1]])
    x = torch.tensor([[1.0, 2, 3], [4, 5, 6]]).expand(2, 1, 1, 2, 3)
    g = torch.tensor([[1.0, 10], [0, 1]]).view(2, 1, 1, 1, 2)
    written = torch.zeros(2, 5)
    out, before = differentiate(layers_of(module), layout, y, x, g, Written(layout, written))
    # 1 + 5 + 0.5, 2 + 6 + 0.5; 2*5 - 1, 2*6 - 1
    assert out.flatten(1).tolist() == [[6.5, 8.5], [9, 11]]
    # Windows (1 2 / 4 5) and (2 3 / 5 6): the first client's gradient is once the former plus 10 times the latter.
    assert written.tolist() == [[21, 32, 54, 65, 11], [2, 3, 5, 6, 1]]
    assert before[0, 0, 0].tolist() == [[1, 10, 0], [0, 1, 10]]
    assert before[1, 0, 0].tolist() == [[0, 0, 0], [0, 0, 2]]


@pytest.mark.parametrize("layout", ["as it is", "channels last", "slices"])
@pytest.mark.parametrize("name", POOLS)
def test_pooling_equals_autograd_per_client(name: str, layout: str) -> None:
    module, (height, width) = POOLS[name]
    x = random(2, 3, 5, height, 2 * width if layout == "slices" else width)
    x = {"as it is": x, "channels last": channels_last(x), "slices": x[..., ::2]}[layout]
    assert_as_autograd(module, x)


@pytest.mark.parametrize("name", [name for name in POOLS if name.startswith("max")])
def test_the_first_of_equal_maxima_gets_the_gradient(name: str) -> None:
    module, size = POOLS[name]
    assert_as_autograd(module, random(2, 3, 4, *size).round())


def test_pooling_by_hand() -> None:
    x = torch.tensor([[3.0, 1, 0, 0], [2, 3, 0, 0]]).view(1, 1, 1, 2, 4)
    layout, y = Layout(()), torch.zeros(1, 0)
    g = torch.tensor([5.0, 7]).view(1, 1, 1, 1, 2)
    out, before = differentiate(layers_of(nn.MaxPool2d(2)), layout, y, x, g, Written(layout, y))
    assert out.flatten().tolist() == [3, 0]
    assert before.view(2, 4).tolist() == [[5, 0, 7, 0], [0, 0, 0, 0]]
    out, before = differentiate(layers_of(nn.AvgPool2d(2)), layout, y, x, 4 * g, Written(layout, y))
    assert out.flatten().tolist() == [2.25, 0]
    assert before.view(2, 4).tolist() == [[5, 5, 7, 7], [5, 5, 7, 7]]


@pytest.mark.parametrize("channels", [1, 6])
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.MaxPool2d(3, stride=2, padding=1), nn.MaxPool2d(2, stride=3)])
def test_pooling_before_relu_changes_nothing(channels: int, padding: int, pool: nn.MaxPool2d) -> None:
    module = nn.Sequential(nn.Conv2d(channels, 4, 3, padding=padding), nn.ReLU(), pool)
    layers = swap_pool(layers_of(module))
    assert [type(layer) for layer in layers] == [Conv2d, MaxPool2d, Relu]
    x = random(2, 3, channels, 9, 10).round()  # many ties, and windows without a positive value
    assert_as_autograd(module, x, layers)
    assert_as_autograd(module, x - 5, layers)


def test_a_chain_without_max_pooling_is_unchanged() -> None:
    module = nn.Sequential(nn.ReLU(), nn.Conv2d(1, 2, 3), nn.ReLU(), nn.AvgPool2d(2))
    layers = layers_of(module)
    assert swap_pool(layers) == layers


def test_pooling_may_come_first() -> None:
    module = nn.Sequential(nn.MaxPool2d(2), nn.ReLU(), nn.MaxPool2d(2))
    layers = swap_pool(layers_of(module))
    assert [type(layer) for layer in layers] == [MaxPool2d, MaxPool2d, Relu]
    assert_as_autograd(module, random(2, 3, 2, 8, 8), layers)


def test_nan_passes_through_pooling_before_relu() -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU(), nn.MaxPool2d(2))
    x = random(1, 1, 1, 4, 4)
    x[0, 0, 0, 1, 1] = torch.nan
    layout = Layout.of(module)
    run = Pass(layout.views(rows_of(layout, 1)), {}, training=True)
    for layer in swap_pool(layers_of(module)):
        x, _ = layer.forward(x, run)
    assert x.isnan().tolist() == [[[[[True, False], [False, False]]] * 2]]


def test_reasons_for_missing_kernels() -> None:
    assert Conv2d.reason_against(nn.Conv2d(1, 1, 3, padding=1)) is None
    circular = nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular")
    assert Conv2d.reason_against(circular) == "Conv2d with padding_mode circular has no batched kernel"
    assert MaxPool2d.reason_against(nn.MaxPool2d(2)) is None
    assert MaxPool2d.reason_against(nn.MaxPool2d(2, return_indices=True)) is not None
