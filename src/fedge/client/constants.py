"""What a module has beside trainable weights and BatchNorm statistics: frozen weights and other buffers.

Clients share one module, and a real client has another than the server. So these must never change: what one client's
training wrote there would leak into the next one's, unseen.
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
    """The constants of a module, with the values that they have now."""

    def __init__(self, module: nn.Module, layout: Layout) -> None:
        others = {entry.name for entry in (*layout.params, *layout.stats)} | {
            f"{name}.num_batches_tracked".lstrip(".")  # which nothing reads
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
        """Return the tensors by name; they may travel, but nothing writes to them."""
        return {name: held[key].detach() for name, (held, key) in self._places.items()}

    def packed(self) -> Tree:
        """Return the values as bytes, which can travel whatever their type."""
        return {name: _bytes(value) for name, value in self.tree().items()}

    def load(self, packed: Tree) -> None:
        """Take the values of another copy; a ModelError if it has others, or in another form."""
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
        """A ModelError that names the first constant that changes meanwhile.

        Torch counts changes in place, so that values need not be compared, except for those made behind its back
        (`buffer.data`): only a thorough look finds them.
        """
        before = self._versions()
        yield
        for name, (value, version) in self._versions().items():
            same = before[name][0] is value and before[name][1] == version
            if (thorough or not same) and _digest(value) != self.digests[name]:
                raise ModelError(
                    f"model: {name!r} changes during training, though it is neither a trainable parameter nor a "
                    "statistic of BatchNorm: clients would share it. Remove what writes to it (spectral_norm, an "
                    "averaging buffer), or replace it with BatchNorm"
                )

    def _versions(self) -> dict[str, tuple[Tensor, int]]:
        return {name: (held[key], held[key]._version) for name, (held, key) in self._places.items()}


def _trains(value: Tensor) -> bool:
    return isinstance(value, nn.Parameter) and value.requires_grad


def _digest(value: Tensor) -> str:
    return sha256(f"{value.dtype} {list(value.shape)} ".encode() + _bytes(value).numpy().tobytes()).hexdigest()


def _bytes(value: Tensor) -> Tensor:
    return value.detach().cpu().contiguous().flatten().view(uint8)
