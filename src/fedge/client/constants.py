"""A module's constants: frozen weights, and buffers other than BatchNorm statistics.

Simulated clients share one module, and real clients and the server each have a copy. Constants must therefore never
change: whatever one client's training wrote there would silently leak into the next client's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

from torch import Tensor, nn, uint8
from torch.nn.modules.batchnorm import _NormBase

from fedge.core.errors import ModelError
from fedge.core.layout import Layout, Tree


class Constants:
    """The constants of a module, with digests of their current values."""

    def __init__(self, module: nn.Module, layout: Layout) -> None:
        others = {entry.name for entry in (*layout.params, *layout.stats)} | {
            f"{name}.num_batches_tracked".lstrip(".")  # nothing reads it
            for name, part in module.named_modules()
            if isinstance(part, _NormBase)
        }
        self._places: dict[str, tuple[dict[str, Tensor], str]] = {}
        for prefix, part in module.named_modules():
            for held in (part._parameters, part._buffers):
                for key, value in held.items():
                    name = f"{prefix}.{key}".lstrip(".")
                    if value is not None and name not in others and not _trains(value):
                        self._places[name] = (held, key)
        self.digests = {name: _digest(value) for name, value in self.tree().items()}

    def tree(self) -> Tree:
        """Return the tensors by name. They may be sent, but must not be written to."""
        return {name: held[key].detach() for name, (held, key) in self._places.items()}

    def packed(self) -> Tree:
        """Return the values as byte tensors, which can be sent whatever their dtype."""
        return {name: _bytes(value) for name, value in self.tree().items()}

    def load(self, packed: Tree) -> None:
        """Copy in the values of another copy of the module. Raises ModelError if names or sizes differ."""
        own = self.tree()
        if packed.keys() != own.keys():
            expected, got = (", ".join(sorted(names)) or "none" for names in (own, packed))
            raise ModelError(f"model: expected the constants {expected}, got {got}")
        for name, value in own.items():
            found = packed[name]
            if found.dtype != uint8 or found.shape != (value.nbytes,):
                raise ModelError(f"model: expected the constant {name!r} as {value.nbytes} bytes, got {found.nbytes}")
            value.copy_(found.clone().view(value.dtype).view(value.shape) if value.nbytes else value)
        self.digests = {name: _digest(value) for name, value in self.tree().items()}

    @contextmanager
    def kept(self, thorough: bool = False) -> Iterator[None]:
        """Raise a ModelError that names the first constant that changes inside this context.

        Torch counts in-place changes, so values are compared only where that counter moved. Writes that bypass the
        counter (`buffer.data`) are found only if `thorough`.
        """
        before = self._versions()
        yield
        for name, (value, version) in self._versions().items():
            same = before[name][0] is value and before[name][1] == version
            if (thorough or not same) and _digest(value) != self.digests[name]:
                raise ModelError(
                    f"model: {name!r} changes during training, but it is neither a trainable parameter nor a "
                    "BatchNorm statistic, so clients would share it. Remove the layer that writes to it "
                    "(spectral_norm, an averaging buffer), or replace it with BatchNorm"
                )

    def _versions(self) -> dict[str, tuple[Tensor, int]]:
        return {name: (held[key], held[key]._version) for name, (held, key) in self._places.items()}


def _trains(value: Tensor) -> bool:
    return isinstance(value, nn.Parameter) and value.requires_grad


def _digest(value: Tensor) -> str:
    return sha256(f"{value.dtype} {list(value.shape)} ".encode() + _bytes(value).numpy().tobytes()).hexdigest()


def _bytes(value: Tensor) -> Tensor:
    return value.detach().cpu().contiguous().flatten().view(uint8)
