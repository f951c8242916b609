"""Dense layers, activations, normalisation and dropout for a block of clients.

A layer may overwrite the gradient passed to `backward`: nothing else uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedge.engines.kernels.layer import Into, Layer, Pass, Saved

_aten: Any = torch.ops.aten


class Identity:
    weighted = False

    def forward(self, x: Tensor, run: Pass) -> tuple[Tensor, Saved]:
        return x, None

    def backward(self, g: Tensor, saved: Saved, run: Pass, into: Into, need_input: bool) -> Tensor:
        return g


class Flatten:
    weighted = False

    def __init__(self, prefix: str, module: nn.Flatten) -> None:
        start, end = module.start_dim, module.end_dim
        self._start, self._end = start + 1, end if end < 0 else end + 1  # the first axis is the clients'

    @staticmethod
    def reason_against(module: nn.Flatten) -> str | None:
        """Return why this module has no batched kernel; None if it has one."""
        if module.start_dim > 0:
            return None
        return f"Flatten with start_dim {module.start_dim} has no batched kernel"

    def forward(self, x: Tensor, run: Pass) -> tuple[Tensor, torch.Size]:
        flat = x.dim() == self._start + 1
        return x if flat else x.flatten(self._start, self._end), x.shape

    def backward(self, g: Tensor, saved: torch.Size, run: Pass, into: Into, need_input: bool) -> Tensor:
        return g.reshape(saved)


class LinearKernel:
    weighted = True

    def __init__(self, prefix: str, module: nn.Linear) -> None:
        self._weight, self._bias = f"{prefix}weight", None if module.bias is None else f"{prefix}bias"

    def forward(self, x: Tensor, run: Pass) -> tuple[Tensor, Tensor]:
        rows = _rows(x)
        weight = run.params[self._weight].transpose(1, 2)
        out = torch.bmm(rows, weight)
        if self._bias is not None:  # baddbmm is a third slower
            out.add_(run.params[self._bias].unsqueeze(1))
        return _unrows(out, x), rows

    def backward(self, g: Tensor, saved: Tensor, run: Pass, into: Into, need_input: bool) -> Tensor:
        rows = _rows(g)
        before = _unrows(torch.bmm(rows, run.params[self._weight]), g) if need_input else g
        into.add_product(self._weight, rows.transpose(1, 2).contiguous(), saved)  # the copy is small, the gain is large
        if self._bias is not None:
            into.add(self._bias, rows.sum(1))
        return before


def _rows(x: Tensor) -> Tensor:
    """Return `[C, rows, n]`, with all middle dimensions flattened into rows."""
    return x if x.dim() == 3 else x.reshape(len(x), -1, x.shape[-1])


def _unrows(rows: Tensor, like: Tensor) -> Tensor:
    """Undo `_rows`: return rows with the leading dimensions of another tensor."""
    return rows if like.dim() == 3 else rows.view(*like.shape[:-1], -1)


class Relu:
    weighted = False

    def __init__(self, in_place: bool = False) -> None:
        """`in_place` is allowed if the previous layer does not need its output."""
        self._relu = torch.relu_ if in_place else torch.relu

    def forward(self, x: Tensor, run: Pass) -> tuple[Tensor, Tensor]:
        out = self._relu(x)
        return out, out

    def backward(self, g: Tensor, saved: Tensor, run: Pass, into: Into, need_input: bool) -> Tensor:
        # One pass over memory; g * (saved > 0) takes two and is several times slower.
        before: Tensor = _aten.threshold_backward.grad_input(g, saved, 0, grad_input=g)
        return before


class Activation:
    """Any other elementwise function, with torch's backward."""

    weighted = False

    def __init__(
        self,
        function: Callable[[Tensor], Tensor],
        backward: Callable[[Tensor, Tensor], Tensor],
        of_output: bool = False,
    ) -> None:
        """`backward` takes the gradient and the function's input, or its output."""
        self._function, self._backward, self._of_output = function, backward, of_output

    def forward(self, x: Tensor, run: Pass) -> tuple[Tensor, Tensor]:
        out = self._function(x)
        return out, out if self._of_output else x

    def backward(self, g: Tensor, saved: Tensor, run: Pass, into: Into, need_input: bool) -> Tensor:
        return self._backward(g, saved)


def tanh() -> Activation:
    return Activation(torch.tanh, _aten.tanh_backward.default, of_output=True)


def sigmoid() -> Activation:
    return Activation(torch.sigmoid, _aten.sigmoid_backward.default, of_output=True)


def silu() -> Activation:
    return Activation(nn.functional.silu, _aten.silu_backward.default)


def leaky_relu(slope: float) -> Activation:
    return Activation(
        lambda x: nn.functional.leaky_relu(x, slope), lambda g, x: _aten.leaky_relu_backward(g, x, slope, False)
    )


def elu(alpha: float) -> Activation:
    return Activation(lambda x: nn.functional.elu(x, alpha), lambda g, x: _aten.elu_backward(g, alpha, 1, 1, False, x))


def gelu(approximate: str) -> Activation:
    return Activation(
        lambda x: nn.functional.gelu(x, approximate=approximate),
        lambda g, x: _aten.gelu_backward(g, x, approximate=approximate),
    )


class Dropout:
    """Dropout that draws for each client exactly what nn.Dropout would draw from the client's generator."""

    weighted = False

    def __init__(self, prefix: str, module: nn.Dropout) -> None:
        self._keep = 1 - module.p

    @staticmethod
    def reason_against(module: nn.Dropout) -> str | None:
        """Return why this module has no batched kernel; None if it has one."""
        return "Dropout with p = 1 has no batched kernel" if module.p == 1 else None

    def forward(self, x: Tensor, run: Pass) -> tuple[Tensor, Saved]:
        if not run.training:
            return x, None
        noise = torch.zeros_like(x)  # padding is dropped
        for row, size, generator in zip(noise, _sizes(x, run), run.generators, strict=True):
            # Drawn in the order of a contiguous tensor, whatever the layout of x in memory.
            row[:size] = x.new_empty(size, *x.shape[2:]).bernoulli_(self._keep, generator=generator)
        noise.div_(self._keep)
        return x * noise, noise

    def backward(self, g: Tensor, saved: Saved, run: Pass, into: Into, need_input: bool) -> Tensor:
        return g.mul_(saved)


class BatchNorm:
    """BatchNorm of vectors `[C, B, channels]` or of images, with any number of dimensions after the channels.

    A client with a single sample is normalised by the running statistics, which then stay unchanged.
    """

    weighted = True

    def __init__(self, prefix: str, module: nn.BatchNorm1d | nn.BatchNorm2d) -> None:
        norm = _Norm(prefix, module.affine, module.eps, module.momentum or 0.0)
        self._vectors, self._images = _VectorNorm(norm), _ImageNorm(norm)

    @staticmethod
    def reason_against(module: nn.BatchNorm1d | nn.BatchNorm2d) -> str | None:
        """Return why this module has no batched kernel; None if it has one."""
        if module.track_running_stats:
            return None
        return f"{type(module).__name__} without running statistics has no batched kernel"

    def forward(self, x: Tensor, run: Pass) -> tuple[Tensor, Saved]:
        return self._of(x).forward(x, run)

    def backward(self, g: Tensor, saved: Saved, run: Pass, into: Into, need_input: bool) -> Tensor:
        return self._of(g).backward(g, saved, run, into, need_input)

    def _of(self, x: Tensor) -> Layer:
        return self._vectors if x.dim() == 3 else self._images


class _Norm(NamedTuple):
    prefix: str
    affine: bool
    epsilon: float
    momentum: float

    def running(self, run: Pass) -> tuple[Tensor, Tensor]:
        return run.stats[f"{self.prefix}running_mean"], run.stats[f"{self.prefix}running_var"]

    def weights(self, run: Pass) -> tuple[Tensor, Tensor]:
        return run.params[f"{self.prefix}weight"], run.params[f"{self.prefix}bias"]

    def add(self, into: Into, weight: Tensor, bias: Tensor) -> None:
        if self.affine:
            into.add(f"{self.prefix}weight", weight)
            into.add(f"{self.prefix}bias", bias)


class _VectorNorm:
    """BatchNorm of vectors for all clients at once: a call per client would cost more than the arithmetic."""

    weighted = True

    def __init__(self, norm: _Norm) -> None:
        self._norm = norm

    def forward(self, x: Tensor, run: Pass) -> tuple[Tensor, Saved]:
        running_mean, running_var = (value.unsqueeze(1) for value in self._norm.running(run))
        if run.training and x.shape[1] > 1:
            weigh = _Weights.of(run.shares, x.shape[1])
            mean = weigh.average(x, running_mean)
            normal = x - mean
            var = weigh.average(normal.square(), running_var)
            running_mean.lerp_(mean, self._norm.momentum)
            running_var.lerp_(var * weigh.correction, self._norm.momentum)
            share = weigh.share
        else:
            normal, var, share = x - running_mean, running_var, 0.0
        scale = torch.rsqrt(var + self._norm.epsilon)
        normal.mul_(scale)
        if not self._norm.affine:
            return normal.clone(), (normal, scale, share)
        weight, bias = self._norm.weights(run)
        return torch.addcmul(bias.unsqueeze(1), normal, weight.unsqueeze(1)), (normal, scale, share)

    def backward(
        self, g: Tensor, saved: tuple[Tensor, Tensor, float | Tensor], run: Pass, into: Into, need_input: bool
    ) -> Tensor:
        normal, scale, share = saved
        by_weight, by_bias = (g * normal).sum(1, keepdim=True), g.sum(1, keepdim=True)
        if need_input:
            if isinstance(share, Tensor) or share:  # the mean and the variance depend on the input
                g.sub_(by_bias * share).addcmul_(normal, by_weight * share, value=-1)
            g.mul_(scale * self._norm.weights(run)[0].unsqueeze(1) if self._norm.affine else scale)
        self._norm.add(into, by_weight.squeeze(1), by_bias.squeeze(1))
        return g


class _Weights(NamedTuple):
    """Weights of samples in the mean of their client."""

    share: float | Tensor  # [C, B, 1]; all 0 for a client with a single sample
    correction: float | Tensor  # [C, 1, 1]: n/(n-1), for the unbiased variance
    single: Tensor | None = None  # [C, 1, 1]: the client has one sample

    @staticmethod
    def of(shares: Tensor | None, size: int) -> _Weights:
        if shares is None:
            return _Weights(1 / size, size / (size - 1))
        num_samples = (shares > 0).sum(1).view(-1, 1, 1)
        single = num_samples == 1
        correction = torch.where(single, 1.0, num_samples / (num_samples - 1).to(shares.dtype))
        return _Weights(shares.unsqueeze(2).masked_fill(single, 0.0), correction, single)

    def average(self, x: Tensor, otherwise: Tensor) -> Tensor:
        """Return the mean of each client, `[C, 1, channels]`; `otherwise` for clients with a single sample."""
        if self.single is None or not isinstance(self.share, Tensor):
            return x.mean(1, keepdim=True)
        return torch.where(self.single, otherwise, torch.bmm(self.share.transpose(1, 2), x))


class _ImageNorm:
    """BatchNorm of images, client by client: torch's kernel needs half the memory passes of a joint computation."""

    weighted = True

    def __init__(self, norm: _Norm) -> None:
        self._norm = norm

    def forward(self, x: Tensor, run: Pass) -> tuple[Tensor, Saved]:
        if not (x.is_contiguous() or (x.dim() == 5 and x.movedim(2, -1).is_contiguous())):
            x = x.contiguous()  # the kernel is correct for these two layouts only
        out = torch.empty_like(x)
        mean, scale = x.new_empty(2, len(x), x.shape[2])
        for i, (size, training, constants) in enumerate(self._clients(x, run)):
            settings = training, self._norm.momentum, self._norm.epsilon
            results = {"out": out[i, :size], "save_mean": mean[i], "save_invstd": scale[i]}
            _aten.native_batch_norm.out(x[i, :size], *constants, *settings, **results)
            out[i, size:] = 0  # uninitialised memory may contain NaN
        return out, (x, mean, scale)

    def backward(
        self, g: Tensor, saved: tuple[Tensor, Tensor, Tensor], run: Pass, into: Into, need_input: bool
    ) -> Tensor:
        x, mean, scale = saved
        by_weight, by_bias = [], []
        wanted = [need_input, True, True]
        for i, (size, training, (weight, _, *running)) in enumerate(self._clients(x, run)):
            before, one, other = _aten.native_batch_norm_backward(
                g[i, :size], x[i, :size], weight, *running, mean[i], scale[i], training, self._norm.epsilon, wanted
            )
            by_weight.append(one)
            by_bias.append(other)
            if need_input:
                g[i, :size] = before
        if self._norm.affine:
            self._norm.add(into, torch.stack(by_weight), torch.stack(by_bias))
        return g

    def _clients(self, x: Tensor, run: Pass) -> Iterator[tuple[int, bool, tuple[Tensor | None, ...]]]:
        """Yield for each client (samples, whether they update the statistics, (weight, bias, running statistics))."""
        weights = self._norm.weights(run) if self._norm.affine else ([None] * len(x),) * 2
        for size, *constants in zip(_sizes(x, run), *weights, *self._norm.running(run), strict=True):
            yield size, run.training and size > 1, tuple(constants)


def _sizes(x: Tensor, run: Pass) -> list[int]:
    """Return the number of samples of each client."""
    if run.shares is None:
        return [x.shape[1]] * len(x)
    sizes: list[int] = (run.shares > 0).sum(1).tolist()
    return sizes
