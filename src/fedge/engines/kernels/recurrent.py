"""Layers for sequences: embeddings, GRUs, and selection of one position."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedge.engines.kernels.layer import Into, Pass

_aten: Any = torch.ops.aten
_sigmoid_backward = _aten.sigmoid_backward.grad_input  # of g and s = sigmoid(..): g * s * (1 - s)
_tanh_backward = _aten.tanh_backward.grad_input  # of g and t = tanh(..): g * (1 - t * t)

_STRETCH = 8  # steps processed together, so that their gates stay in the cache


class Embedding:
    """Maps indices `[C, B, ...]` to vectors `[C, B, ..., E]`."""

    weighted = True

    def __init__(self, prefix: str, module: nn.Embedding) -> None:
        self._weight = f"{prefix}weight"
        self._padding = -1 if module.padding_idx is None else module.padding_idx

    @staticmethod
    def reason_against(module: nn.Embedding) -> str | None:
        """Return why this module has no batched kernel; None if it has one."""
        options = {
            "max_norm": module.max_norm is not None,
            "scale_grad_by_freq": module.scale_grad_by_freq,
            "sparse": module.sparse,
        }
        return next((f"Embedding with {name} has no batched kernel" for name, used in options.items() if used), None)

    def forward(self, x: Tensor, run: Pass) -> tuple[Tensor, Tensor]:
        tables = run.params[self._weight]
        out = tables.new_empty(*x.shape, tables.shape[-1])
        for table, numbers, rows in zip(tables, x.flatten(1), out.flatten(1, -2), strict=True):
            torch.index_select(table, 0, numbers, out=rows)
        return out, x

    def backward(self, g: Tensor, saved: Tensor, run: Pass, into: Into, need_input: bool) -> Tensor:
        num_rows = run.params[self._weight].shape[1]
        gradients = [
            _aten.embedding_dense_backward(part, numbers, num_rows, self._padding, False)
            for part, numbers in zip(g, saved, strict=True)
        ]
        into.add(self._weight, torch.stack(gradients))
        return g  # indices have no gradient


class Select:
    """Selects one position of sequences, `[C, B, T, ...]` to `[C, B, ...]`: `x[:, place]` in a module."""

    weighted = False

    def __init__(self, place: int) -> None:
        self._place = place

    def forward(self, x: Tensor, run: Pass) -> tuple[Tensor, torch.Size]:
        return x.select(2, self._place), x.shape

    def backward(self, g: Tensor, saved: torch.Size, run: Pass, into: Into, need_input: bool) -> Tensor:
        if not need_input:
            return g
        out = g.new_zeros(saved)
        out.select(2, self._place).copy_(g)
        return out


class Gru:
    """nn.GRU on sequences `[C, B, T, n]`: all states of its top level `[C, B, T, H]`, or only the last `[C, B, H]`.

    Use `last` if a module needs only `states[:, -1]`: it avoids the gradient of all states.
    """

    weighted = True

    def __init__(self, prefix: str, module: nn.GRU, last: bool = False) -> None:
        self._levels = [_Level(prefix, k, module.bias) for k in range(module.num_layers)]
        self._last = last

    @staticmethod
    def reason_against(module: nn.GRU) -> str | None:
        """Return why this module has no batched kernel; None if it has one."""
        options = {
            "batch_first=False": not module.batch_first,
            "bidirectional": module.bidirectional,
            "dropout": module.dropout > 0,
        }
        return next((f"GRU with {name} has no batched kernel" for name, used in options.items() if used), None)

    def forward(self, x: Tensor, run: Pass) -> tuple[Tensor, list[_Trace]]:
        value, traces = x.transpose(1, 2).contiguous(), []
        for level in self._levels:
            value, trace = level.forward(value, run)
            traces.append(trace)
        return value[:, -1] if self._last else value.transpose(1, 2), traces

    def backward(self, g: Tensor, saved: list[_Trace], run: Pass, into: Into, need_input: bool) -> Tensor:
        last, every = (g, None) if self._last else (g[:, :, -1], g.transpose(1, 2))
        for k in reversed(range(1, len(self._levels))):
            every = self._levels[k].backward(last, every, saved[k], run, into, need_input=True)
            last = every[:, -1]
        return self._levels[0].backward(last, every, saved[0], run, into, need_input).transpose(1, 2)


class _Trace(NamedTuple):
    """What a level saves in a forward pass for one backward pass, which overwrites it."""

    x: Tensor  # [C, T, B, n]
    gates: Tensor  # [C, T, B, 4H]: n, r, z, m
    states: Tensor  # [C, T + 1, B, H], from the first state, which is zero


class _Level:
    """One level of a GRU. Time comes before the batch, so that the data of a step is contiguous.

    A step from state h with input x is, in the order of nn.GRU's weights,

        r, z = sigmoid(W_i x + b_i + W_h h + b_h)
        m = W_hn h + b_hn
        n = tanh(W_in x + b_in + r * m)
        h' = n + z * (h - n)

    The four are stored side by side as n, r, z, m: the first three need one product with the input, the last three one
    with the state. The backward pass overwrites them with their gradients, which need the same two products.
    """

    def __init__(self, prefix: str, level: int, bias: bool) -> None:
        self._weight_ih, self._weight_hh = f"{prefix}weight_ih_l{level}", f"{prefix}weight_hh_l{level}"
        self._bias_ih, self._bias_hh = f"{prefix}bias_ih_l{level}", f"{prefix}bias_hh_l{level}"
        self._bias = bias

    def forward(self, x: Tensor, run: Pass) -> tuple[Tensor, _Trace]:
        """Return the states `[C, T, B, H]` after each step, and the trace for `backward`."""
        num_clients, length, size, _ = x.shape
        weight_ih, bias = self._doubled(run)
        weight_hh = run.params[self._weight_hh].transpose(1, 2).contiguous()
        units = weight_hh.shape[1]
        gates = x.new_empty(num_clients, length, size, 4 * units)
        states = x.new_empty(num_clients, length + 1, size, units)
        states[:, 0] = 0
        h, (n, r, z, m) = states.unbind(1), (part.unbind(1) for part in gates.chunk(4, -1))
        rz, rzm = gates[..., units:-units].unbind(1), gates[..., units:].unbind(1)
        minus_one = x.new_tensor(-1)
        for steps in _stretches(length):
            stretch = slice(steps.start, steps.stop)
            gates[:, stretch] = bias
            gates[:, stretch, :, :-units].flatten(1, 2).baddbmm_(x[:, stretch].flatten(1, 2), weight_ih)
            for t in steps:
                if t > 0:
                    rzm[t].baddbmm_(h[t], weight_hh)
                rz[t].sigmoid_()
                n[t].addcmul_(r[t], m[t], value=2).sigmoid_()
                torch.add(minus_one, n[t], alpha=2, out=n[t])
                torch.lerp(n[t], h[t], z[t], out=h[t + 1])
        return states[:, 1:], _Trace(x, gates, states)

    def _doubled(self, run: Pass) -> tuple[Tensor, Tensor]:
        """Return weights `[C, n, 3H]` and biases `[C, 1, 1, 4H]` of the gates, with those of n from the input doubled.

        The reason is tanh(a) = 2 * sigmoid(2 * a) - 1, which takes a quarter of the time.
        """
        weight = _turned(run.params[self._weight_ih])
        units = weight.shape[1] // 3
        bias = weight.new_zeros(len(weight), 4 * units)
        if self._bias:
            bias[:, :-units] = _turned(run.params[self._bias_ih])
            bias[:, units:] += run.params[self._bias_hh]
        weight[:, :units] *= 2
        bias[:, :units] *= 2
        return weight.transpose(1, 2).contiguous(), bias[:, None, None]

    def backward(
        self, last: Tensor, every: Tensor | None, saved: _Trace, run: Pass, into: Into, need_input: bool
    ) -> Tensor:
        """Return the gradient of the input, given that of the last state and, if there is one, of `every` state."""
        x, gates, states = saved
        weight_ih, weight_hh = _turned(run.params[self._weight_ih]), run.params[self._weight_hh]
        units = states.shape[-1]
        before, g = states[:, :-1], last.clone()
        others = None if every is None else every.unbind(1)
        all_four, rzm = gates.view(*gates.shape[:-1], 4, units).unbind(1), gates[..., units:].unbind(1)
        out = torch.empty_like(x) if need_input else x
        for steps in reversed(_stretches(x.shape[1])):
            stretch = slice(steps.start, steps.stop)
            passed = _to_slopes(gates[:, stretch], before[:, stretch]).unbind(1)
            for t in reversed(steps):
                all_four[t].mul_(g.unsqueeze(2))
                if t > 0:
                    g.mul_(passed[t - steps.start]).baddbmm_(rzm[t], weight_hh)
                    if others is not None:
                        g += others[t - 1]
            if need_input:
                nrz = gates[:, stretch, :, :-units].flatten(1, 2)
                torch.bmm(nrz, weight_ih, out=out[:, stretch].flatten(1, 2))
        self._hand_over(saved, into)
        return out

    def _hand_over(self, saved: _Trace, into: Into) -> None:
        """Pass on the weights' gradients for all steps at once; `saved.gates` already holds the gates' gradients."""
        units = saved.states.shape[-1]
        x, gates, before = saved.x.flatten(1, 2), saved.gates.flatten(1, 2), saved.states[:, :-1].flatten(1, 2)
        nrz, rzm = gates[..., :-units], gates[..., units:]
        # The longer side comes last: with few inputs this is ten times faster than the opposite order.
        into.add(self._weight_ih, _turned_back(torch.bmm(x.transpose(1, 2), nrz).transpose(1, 2)))
        into.add_product(self._weight_hh, rzm.transpose(1, 2), before)
        if self._bias:
            sums = gates.sum(1)
            into.add(self._bias_ih, _turned_back(sums[:, :-units]))
            into.add(self._bias_hh, sums[:, units:])


def _stretches(length: int) -> list[range]:
    """Return the steps of a sequence in stretches of a few steps."""
    return [range(length)[start : start + _STRETCH] for start in range(0, length, _STRETCH)]


def _turned(weight: Tensor) -> Tensor:
    """Return a copy of `[C, 3H, ...]` reordered from r, z, n to n, r, z."""
    return weight.roll(weight.shape[1] // 3, 1)


def _turned_back(weight: Tensor) -> Tensor:
    """Undo `_turned`."""
    return weight.roll(-(weight.shape[1] // 3), 1)


def _to_slopes(gates: Tensor, before: Tensor) -> Tensor:
    """Replace the gates by the derivatives of the next state, and return z, its derivative by the previous state.

    For n, r and z they are derivatives by the sums inside tanh and sigmoid, for m by m itself. Multiplied by the
    gradient of the next state, they give the gradients of these: the only work left for each step.
    """
    n, r, z, m = gates.chunk(4, -1)
    passed, by_n = z.clone(), 1 - z
    _sigmoid_backward(before - n, z, grad_input=z)
    _tanh_backward(by_n, n, grad_input=n)
    by_r = torch.mul(n, m, out=by_n)
    torch.mul(n, r, out=m)
    _sigmoid_backward(by_r, r, grad_input=r)
    return passed
