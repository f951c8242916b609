"""Convolution and pooling of images for a block of clients, `[C, B, channels, height, width]`.

A convolution handles one client at a time: each has its own weights, and enough work for a core. In memory the channels
come last, which makes pooling many times faster; inputs from other layers may have any layout.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from fedge.engines.kernels.layer import Into, Layer, Pass
from fedge.engines.kernels.layers import Relu

_aten: Any = torch.ops.aten

_FEW_CHANNELS = 4  # oneDNN's kernels process eight at a time: up to this many, a product with patches is faster
_FULL_WIDTH = 16  # a product whose width is a multiple of this is up to ten times faster than one of width 10
_PATCH_NUMBERS = 400_000  # per part, so that they are still in the cache when they are multiplied

Pair = tuple[int, int]  # vertical, horizontal
Frame = tuple[int, int, int, int]  # zeros around an image: left, right, above, below; negative values crop


def swap_pool(layers: Iterable[Layer]) -> list[Layer]:
    """Return an equivalent chain with ReLU after max pooling instead of before, where it has fewer values to process.

    Both orders select the same value of a window, or have no gradient if none is positive.
    """
    chain: list[Layer] = []
    for layer in layers:
        after_relu = bool(chain) and isinstance(chain[-1], Relu)
        chain.insert(len(chain) - 1 if after_relu and isinstance(layer, MaxPool2d) else len(chain), layer)
    return chain


class _Windows(NamedTuple):
    """The windows of a convolution on a padded image."""

    kernel: Pair
    stride: Pair
    dilation: Pair

    def outputs(self, size: Pair) -> Pair:
        """Return the number of windows, vertically and horizontally, of an image of this size."""
        return _pair((n - r - 1) // s + 1 for n, r, s in zip(size, self.reach(), self.stride, strict=True))

    def reach(self) -> Pair:
        """Return the distance from the first to the last pixel of a window."""
        return _pair(d * (k - 1) for d, k in zip(self.dilation, self.kernel, strict=True))

    def of(self, images: Tensor) -> Tensor:
        """Return the windows of images as a view `[B, channels, *kernel, *outputs]`."""
        sample, channel, *pixel = images.stride()
        within = [d * p for d, p in zip(self.dilation, pixel, strict=True)]
        between = [s * p for s, p in zip(self.stride, pixel, strict=True)]
        shape = (*images.shape[:2], *self.kernel, *self.outputs(_size(images)))
        return images.as_strided(shape, (sample, channel, *within, *between))


class Conv2d:
    weighted = True

    def __init__(self, prefix: str, module: nn.Conv2d) -> None:
        self._weight, self._bias = f"{prefix}weight", None if module.bias is None else f"{prefix}bias"
        self._windows = _Windows(_pair(module.kernel_size), _pair(module.stride), _pair(module.dilation))
        self._groups = module.groups
        self._few = module.groups == 1 and module.in_channels <= _FEW_CHANNELS
        self._frame, self._padding = self._split_padding(module)

    @staticmethod
    def reason_against(module: nn.Conv2d) -> str | None:
        """Return why this module has no batched kernel; None if it has one."""
        if module.padding_mode == "zeros":
            return None
        return f"Conv2d with padding_mode {module.padding_mode} has no batched kernel"

    def forward(self, x: Tensor, run: Pass) -> tuple[Tensor, list[Tensor]]:
        biases = [None] * len(x) if self._bias is None else run.params[self._bias]
        images = [_put_in(self._frame, own) for own in x]
        if not self._few:
            images = [_channels_last(own) for own in images]
        convolve = self._multiply if self._few else self._convolve
        out = [convolve(*client) for client in zip(images, run.params[self._weight], biases, strict=True)]
        return _stack(out), images

    def backward(self, g: Tensor, saved: list[Tensor], run: Pass, into: Into, need_input: bool) -> Tensor:
        clients = list(zip(map(_channels_last, g), saved, run.params[self._weight], strict=True))
        before = _stack([_take_out(self._frame, self._by_images(*client)) for client in clients]) if need_input else g
        into.add(self._weight, torch.stack([self._by_weight(*client) for client in clients]))
        if self._bias is not None:
            into.add(self._bias, torch.stack([_rows(own).sum(0) for own, *_ in clients]))
        return before

    def _split_padding(self, module: nn.Conv2d) -> tuple[Frame, Pair]:
        """Return (explicit padding of the images, symmetric padding left to torch's operators)."""
        more = (0, 0)
        if module.padding == "same":
            reach = self._windows.reach()
            padding, more = _pair(r // 2 for r in reach), _pair(r % 2 for r in reach)  # asymmetric if odd
        else:
            padding = (0, 0) if isinstance(module.padding, str) else _pair(module.padding)
        if self._few:
            return (padding[1], padding[1] + more[1], padding[0], padding[0] + more[0]), (0, 0)
        return (0, more[1], 0, more[0]), padding

    def _convolve(self, images: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        out: Tensor = _aten.convolution(images, weight, bias, *self._settings())
        return out

    def _by_images(self, g: Tensor, images: Tensor, weight: Tensor) -> Tensor:
        before: Tensor
        before, *_ = _aten.convolution_backward(g, images, weight, None, *self._settings(), [True, False, False])
        return before

    def _settings(self) -> tuple[Any, ...]:
        """Return the arguments of torch's operators: not transposed, no output padding."""
        return self._windows.stride, self._padding, self._windows.dilation, False, (0, 0), self._groups

    def _multiply(self, images: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Compute the convolution as a product of patches and weights."""
        spare = -len(weight) % _FULL_WIDTH
        kernels = pad(weight.flatten(1), (0, 0, 0, spare)).t()
        offset = kernels.new_zeros(1) if bias is None else pad(bias, (0, spare))
        windows = self._windows.of(images)
        out = images.new_empty(len(images), *_size(windows), kernels.shape[1])
        num_parts = _num_parts(windows)
        for part, rows in zip(windows.chunk(num_parts), out.chunk(num_parts), strict=True):
            torch.addmm(offset, self._patches(part).t(), kernels, out=rows.flatten(0, 2))
        return out[..., : len(weight)].permute(0, 3, 1, 2)

    def _by_weight(self, g: Tensor, images: Tensor, weight: Tensor) -> Tensor:
        if self._groups > 1:
            gradient: Tensor
            wanted = [False, True, False]
            _, gradient, _ = _aten.convolution_backward(g, images, weight, None, *self._settings(), wanted)
            return gradient
        # A product of patches and gradients is faster than oneDNN.
        above, left = self._padding
        windows = self._windows.of(_put_in((left, left, above, above), images))
        size, channels = weight[0].numel(), len(weight)
        wide = channels % _FULL_WIDTH == 0 or channels > size
        total = g.new_zeros((size, channels) if wide else (channels, size))
        num_parts = _num_parts(windows)
        for part, own in zip(windows.chunk(num_parts), g.chunk(num_parts), strict=True):
            if wide:
                total.addmm_(self._patches(part), _rows(own))
            else:
                total.addmm_(_rows(own).t(), self._patches(part).t())
        return self._as_weight(total.t() if wide else total, weight.shape)

    def _patches(self, windows: Tensor) -> Tensor:
        """Return `[values of a window, windows]`, in the order that copies long runs of memory."""
        if self._few:
            return windows.permute(1, 2, 3, 0, 4, 5).flatten(3).flatten(0, 2)
        return windows.permute(0, 4, 5, 2, 3, 1).flatten(3).flatten(0, 2).t()

    def _as_weight(self, rows: Tensor, shape: torch.Size) -> Tensor:
        """Return `[out, values of a window]` reordered to the shape of the weights."""
        _, channels, *kernel = shape
        if self._few:
            return torch.unflatten(rows, 1, (channels, *kernel))
        return torch.unflatten(rows, 1, (*kernel, channels)).permute(0, 3, 1, 2)


class MaxPool2d:
    """Max pooling by torch's kernels, which with channels last are as fast as the maximum of four slices."""

    weighted = False

    def __init__(self, prefix: str, module: nn.MaxPool2d) -> None:
        self._settings = (
            _pair(module.kernel_size),
            _pair(module.stride),
            _pair(module.padding),
            _pair(module.dilation),
            module.ceil_mode,
        )

    @staticmethod
    def reason_against(module: nn.MaxPool2d) -> str | None:
        """Return why this module has no batched kernel; None if it has one."""
        return "MaxPool2d with return_indices has no batched kernel" if module.return_indices else None

    def forward(self, x: Tensor, run: Pass) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        images = _channels_last(x.flatten(0, 1))
        out, places = _aten.max_pool2d_with_indices(images, *self._settings)
        return torch.unflatten(out, 0, x.shape[:2]), (images, places)

    def backward(self, g: Tensor, saved: tuple[Tensor, Tensor], run: Pass, into: Into, need_input: bool) -> Tensor:
        images, places = saved
        own = _channels_last(g.flatten(0, 1))  # several times faster than letting torch convert it
        before: Tensor = _aten.max_pool2d_with_indices_backward(own, images, *self._settings, places)
        return torch.unflatten(before, 0, g.shape[:2])


class AvgPool2d:
    weighted = False

    def __init__(self, prefix: str, module: nn.AvgPool2d) -> None:
        self._settings = (
            _pair(module.kernel_size),
            _pair(module.stride),
            _pair(module.padding),
            module.ceil_mode,
            module.count_include_pad,
            module.divisor_override,
        )

    def forward(self, x: Tensor, run: Pass) -> tuple[Tensor, Tensor]:
        images = _channels_last(x.flatten(0, 1))
        return torch.unflatten(_aten.avg_pool2d(images, *self._settings), 0, x.shape[:2]), images

    def backward(self, g: Tensor, saved: Tensor, run: Pass, into: Into, need_input: bool) -> Tensor:
        before: Tensor = _aten.avg_pool2d_backward(g.flatten(0, 1), saved, *self._settings)
        return torch.unflatten(before, 0, g.shape[:2])


class AdaptiveAvgPool2d:
    weighted = False

    def __init__(self, prefix: str, module: nn.AdaptiveAvgPool2d) -> None:
        size = module.output_size
        self._outputs = (size, size) if isinstance(size, int) or size is None else tuple(size)

    def forward(self, x: Tensor, run: Pass) -> tuple[Tensor, Tensor]:
        images = _channels_last(x.flatten(0, 1))
        outputs = [n if m is None else m for m, n in zip(self._outputs, _size(x), strict=True)]
        return torch.unflatten(_aten._adaptive_avg_pool2d(images, outputs), 0, x.shape[:2]), images

    def backward(self, g: Tensor, saved: Tensor, run: Pass, into: Into, need_input: bool) -> Tensor:
        before: Tensor = _aten._adaptive_avg_pool2d_backward(g.flatten(0, 1), saved)
        return torch.unflatten(before, 0, g.shape[:2])


def _pair(value: int | Iterable[int]) -> Pair:
    if isinstance(value, int):
        return value, value
    vertical, horizontal = value
    return vertical, horizontal


def _size(images: Tensor) -> Pair:
    return _pair(images.shape[-2:])


def _num_parts(windows: Tensor) -> int:
    return max(1, ceil(windows.numel() / _PATCH_NUMBERS))


def _put_in(frame: Frame, images: Tensor) -> Tensor:
    return pad(images, frame) if any(frame) else images


def _take_out(frame: Frame, images: Tensor) -> Tensor:
    left, right, above, below = frame
    return _put_in((-left, -right, -above, -below), images)


def _channels_last(images: Tensor) -> Tensor:
    return images.contiguous(memory_format=torch.channels_last)


def _rows(images: Tensor) -> Tensor:
    """Return images as `[B * height * width, channels]`."""
    return images.permute(0, 2, 3, 1).flatten(0, 2)


def _stack(images: list[Tensor]) -> Tensor:
    """Stack the clients' images to one tensor with channels last in memory; a single client is not copied."""
    rows = [own.permute(0, 2, 3, 1) for own in images]
    block = torch.stack(rows) if len(rows) > 1 else rows[0].contiguous().unsqueeze(0)
    return block.permute(0, 1, 4, 2, 3)
