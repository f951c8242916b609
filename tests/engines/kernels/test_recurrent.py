"""Batched layers for sequences, compared with autograd and derived by hand."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call

from fedge.core.layout import Layout
from fedge.engines.kernels.layer import Layer, Pass, Stepped, Written
from fedge.engines.kernels.recurrent import Embedding, Gru, Select

CLIENTS, SIZE = 3, 2
EXACT = {"rtol": 1e-9, "atol": 1e-12}


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def numbers(*shape: int, below: int) -> Tensor:
    return torch.randint(below, shape, generator=torch.Generator().manual_seed(2))


def gru(inputs: int = 3, units: int = 4, levels: int = 1, bias: bool = True) -> nn.GRU:
    return nn.GRU(inputs, units, levels, bias=bias, batch_first=True).double()


def rows_of(module: nn.Module, num_clients: int = CLIENTS) -> tuple[Layout, Tensor]:
    """Return independent weights of clients."""
    layout = Layout.of(module)
    return layout, normal(num_clients, layout.num_params, seed=3)


def expected(module: nn.Module, weights: Tensor, x: Tensor, last: bool, g: Tensor) -> list[Tensor]:
    """Return (output, gradient of the weights, gradient of the input if any) of one client, by autograd."""
    layout = Layout.of(module)
    params = {name: value.clone().requires_grad_() for name, value in layout.views(weights).items()}
    inputs = [x.clone().requires_grad_()] if x.is_floating_point() else []
    out = functional_call(module, params, tuple(inputs) or (x,))
    out = out[0] if isinstance(module, nn.GRU) else out
    out = out[:, -1] if last else out
    gradients = torch.autograd.grad(out, [*params.values(), *inputs], g)
    return [out.detach(), layout.flat(gradients[: len(params)]), *gradients[len(params) :]]


def check(module: nn.Module, layer: Layer, x: Tensor, last: bool = False) -> None:
    """Check the output and all gradients of a layer, for each client."""
    layout, weights = rows_of(module, len(x))
    run = Pass(layout.views(weights), {}, training=True)
    out, saved = layer.forward(x, run)
    g = normal(*out.shape, seed=4)
    gradients = torch.full_like(weights, math.nan)  # every value must be written
    of_x = layer.backward(g.clone(), saved, run, Written(layout, gradients), need_input=True)
    for client in range(len(x)):
        value, of_weights, *rest = expected(module, weights[client], x[client], last, g[client])
        torch.testing.assert_close(out[client], value, **EXACT)
        torch.testing.assert_close(gradients[client], of_weights, **EXACT)
        for wanted in rest:
            torch.testing.assert_close(of_x[client], wanted, **EXACT)


# ---------------------------------------------------------------- GRU


@pytest.mark.parametrize("last", [False, True], ids=["all states", "last state"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("length", [1, 8, 17])
def test_gru_agrees_with_autograd(levels: int, bias: bool, length: int, last: bool) -> None:
    module = gru(levels=levels, bias=bias)
    check(module, Gru("", module, last), normal(CLIENTS, SIZE, length, 3), last)


@settings(max_examples=25, deadline=None)
@given(
    st.tuples(*[st.integers(1, 3)] * 3, st.integers(1, 17)),
    st.tuples(st.integers(1, 4), st.integers(1, 5)),
    st.booleans(),
)
def test_gru_of_any_size_agrees_with_autograd(sizes: Sequence[int], widths: tuple[int, int], last: bool) -> None:
    (num_clients, size, levels, length), (inputs, units) = sizes, widths
    module = gru(inputs, units, levels)
    check(module, Gru("", module, last), normal(num_clients, size, length, inputs), last)


def test_gru_with_any_strides() -> None:
    module = gru()
    x = normal(3, 5, SIZE, CLIENTS).permute(3, 2, 1, 0)
    check(module, Gru("", module), x)


def test_one_step_by_hand() -> None:
    """All weights are zero, so the state is (1 - z) * n with z = sigmoid(b_iz + b_hz) and n = tanh(b_in + r * b_hn)."""
    module = gru(1, 1)
    layout = Layout.of(module)
    weights = torch.zeros(1, layout.num_params, dtype=torch.float64)
    views = layout.views(weights)
    views["bias_ih_l0"][0] = torch.tensor([math.log(3), 0.0, 0.2], dtype=torch.float64)  # r, z, n
    views["bias_hh_l0"][0] = torch.tensor([0.0, math.log(4), 0.4], dtype=torch.float64)
    out, _ = Gru("", module).forward(normal(1, 1, 1, 1), Pass(views, {}, training=True))
    # r = 3/4 and z = 4/5, so n = tanh(0.2 + 0.75 * 0.4) = tanh(0.5)
    assert out.item() == pytest.approx(0.2 * math.tanh(0.5), rel=1e-12)


def test_gru_in_single_precision() -> None:
    module = gru(levels=2)
    layout, weights = rows_of(module)
    x, g = normal(CLIENTS, SIZE, 20, 3), normal(CLIENTS, SIZE, 4, seed=4)
    gradients = []
    for dtype in (torch.float32, torch.float64):
        run = Pass(layout.views(weights.to(dtype)), {}, training=True)
        layer, out = Gru("", module, last=True), torch.empty_like(weights, dtype=dtype)
        _, saved = layer.forward(x.to(dtype), run)
        layer.backward(g.to(dtype), saved, run, Written(layout, out), need_input=False)
        gradients.append(out)
    assert gradients[0].dtype == torch.float32
    torch.testing.assert_close(gradients[0].double(), gradients[1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("size", [1e3, 1e30])
def test_closed_and_open_gates_stay_finite(size: float) -> None:
    module = gru(levels=2).float()
    layout, weights = rows_of(module)
    run = Pass(layout.views(weights.float()), {}, training=True)
    layer, gradients = Gru("", module), torch.empty_like(weights, dtype=torch.float32)
    out, saved = layer.forward(normal(CLIENTS, SIZE, 5, 3).float() * size, run)
    of_x = layer.backward(torch.ones_like(out), saved, run, Written(layout, gradients), need_input=True)
    assert out.abs().max() <= 1
    assert of_x.isfinite().all()
    assert gradients.isfinite().all()


@pytest.mark.parametrize("last", [False, True], ids=["all states", "last state"])
def test_gru_does_not_modify_its_inputs(last: bool) -> None:
    module = gru(levels=2)
    layout, weights = rows_of(module)
    layer, run, x = Gru("", module, last), Pass(layout.views(weights), {}, training=True), normal(CLIENTS, SIZE, 5, 3)
    out, saved = layer.forward(x, run)
    value, g = out.clone(), torch.ones_like(out)
    before = weights.clone()
    layer.backward(g, saved, run, Written(layout, torch.empty_like(weights)), need_input=True)
    assert torch.equal(x, normal(CLIENTS, SIZE, 5, 3))
    assert torch.equal(g, torch.ones_like(g))
    assert torch.equal(weights, before)
    assert torch.equal(out, value)  # the next layer may have saved it


# ---------------------------------------------------------------- updates in place


@pytest.mark.parametrize("scale", [0.1, torch.tensor([[0.1], [0.2], [0.3]], dtype=torch.float64)], ids=["one", "each"])
@pytest.mark.parametrize("decay", [1.0, 0.5])
def test_in_place_steps_use_the_gradient_at_the_old_weights(scale: float | Tensor, decay: float) -> None:
    """A level's weights are updated only after the gradient has passed to the level below."""
    module = gru(levels=2)
    layout, weights = rows_of(module)
    x, g = normal(CLIENTS, SIZE, 9, 3), normal(CLIENTS, SIZE, 4, seed=4)
    drift = normal(CLIENTS, layout.num_params, seed=5)
    y = weights.clone()
    layer, run = Gru("", module, last=True), Pass(layout.views(y), {}, training=True)
    _, saved = layer.forward(x, run)
    of_x = layer.backward(g, saved, run, Stepped(layout, layout.views(y), (decay, drift, scale)), need_input=True)
    for client in range(CLIENTS):
        _, of_weights, wanted = expected(module, weights[client], x[client], True, g[client])
        own = scale[client] if isinstance(scale, Tensor) else scale
        torch.testing.assert_close(y[client], decay * weights[client] + drift[client] - own * of_weights, **EXACT)
        torch.testing.assert_close(of_x[client], wanted, **EXACT)


@pytest.mark.parametrize("levels", [1, 2])
def test_weights_get_the_same_gradient_where_the_input_needs_none(levels: int) -> None:
    module = gru(levels=levels)
    layout, weights = rows_of(module)
    gradients = []
    for need_input in (True, False):
        layer, run = Gru("", module), Pass(layout.views(weights), {}, training=True)
        out, saved = layer.forward(normal(CLIENTS, SIZE, 9, 3), run)
        gradients.append(torch.full_like(weights, math.nan))
        layer.backward(torch.ones_like(out), saved, run, Written(layout, gradients[-1]), need_input)
    assert torch.equal(*gradients)


# ---------------------------------------------------------------- embedding


@pytest.mark.parametrize("shape", [(), (5,), (5, 2)], ids=str)
@pytest.mark.parametrize("padding", [None, 0, -1])
def test_embedding_agrees_with_autograd(shape: tuple[int, ...], padding: int | None) -> None:
    module = nn.Embedding(4, 3, padding_idx=padding).double()
    check(module, Embedding("", module), numbers(CLIENTS, 6, *shape, below=4))


def test_embedding_by_hand() -> None:
    """Two clients with their own tables; index 1 occurs twice and gets both gradients, and 0 is padding."""
    module = nn.Embedding(3, 1, padding_idx=0).double()
    layout = Layout.of(module)
    weights = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=torch.float64)
    layer, run = Embedding("", module), Pass(layout.views(weights), {}, training=True)
    out, saved = layer.forward(torch.tensor([[[1, 1, 0]], [[2, 0, 1]]]), run)
    assert out.tolist() == [[[[2.0], [2.0], [1.0]]], [[[6.0], [4.0], [5.0]]]]
    g = torch.tensor([[[[10.0], [20.0], [40.0]]], [[[1.0], [2.0], [4.0]]]], dtype=torch.float64)
    layer.backward(g, saved, run, Stepped(layout, layout.views(weights), (1.0, None, 0.5)), need_input=False)
    assert weights.tolist() == [[1.0, 2.0 - 15.0, 3.0], [4.0, 5.0 - 2.0, 6.0 - 0.5]]


# ---------------------------------------------------------------- one position of a sequence


@pytest.mark.parametrize(("place", "third"), [(2, True), (-1, True), (0, False)])
def test_select_by_hand(place: int, third: bool) -> None:
    x = torch.tensor([[[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]]])
    run, into = Pass({}, {}, training=True), Written(Layout(()), torch.empty(1, 0))
    out, saved = Select(place).forward(x, run)
    assert out.tolist() == ([[[3.0], [6.0]]] if third else [[[1.0], [4.0]]])
    g = Select(place).backward(torch.tensor([[[7.0], [8.0]]]), saved, run, into, need_input=True)
    assert g.squeeze(-1).tolist() == ([[[0, 0, 7], [0, 0, 8]]] if third else [[[7, 0, 0], [8, 0, 0]]])


def test_last_state_equals_selecting_the_last_position() -> None:
    module = gru(levels=2)
    layout, weights = rows_of(module)
    run, x, g = Pass(layout.views(weights), {}, training=True), normal(CLIENTS, SIZE, 9, 3), normal(CLIENTS, SIZE, 4)
    short, whole, select = Gru("", module, last=True), Gru("", module), Select(-1)
    of_short, of_whole = torch.empty_like(weights), torch.empty_like(weights)
    out, saved = short.forward(x, run)
    states, kept = whole.forward(x, run)
    chosen, shape = select.forward(states, run)
    assert torch.equal(out, chosen)
    into = Written(layout, of_whole)
    dense = whole.backward(select.backward(g, shape, run, into, True), kept, run, into, True)
    assert torch.equal(short.backward(g, saved, run, Written(layout, of_short), True), dense)
    assert torch.equal(of_short, of_whole)


# ---------------------------------------------------------------- which modules have kernels


def test_plain_modules_have_kernels() -> None:
    assert Embedding.reason_against(nn.Embedding(4, 3, padding_idx=1)) is None
    assert Gru.reason_against(nn.GRU(3, 4, 3, bias=False, batch_first=True)) is None


@pytest.mark.parametrize("option", [{"max_norm": 1.0}, {"scale_grad_by_freq": True}, {"sparse": True}], ids=str)
def test_options_of_an_embedding_are_named(option: dict[str, Any]) -> None:
    reason = Embedding.reason_against(nn.Embedding(4, 3, **option))
    assert reason == f"Embedding with {next(iter(option))} has no batched kernel"


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ({"batch_first": False}, "batch_first=False"),
        ({"bidirectional": True}, "bidirectional"),
        ({"dropout": 0.5}, "dropout"),
    ],
    ids=str,
)
def test_options_of_a_gru_are_named(option: dict[str, Any], named: str) -> None:
    module = nn.GRU(3, 4, 2, **{"batch_first": True, **option})
    assert Gru.reason_against(module) == f"GRU with {named} has no batched kernel"
