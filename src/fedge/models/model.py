"""What every model can be told."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta
from torch import Tensor, nn

from fedge.core.errors import ModelError, nearest
from fedge.core.parts import Part
from fedge.core.schema import Options

NormPlace = Annotated[
    Literal["before", "after"],
    Meta(
        description="Where batch normalisation stands: before the nonlinearity, as in MTFL's article, or after it (and "
        "its pooling), as in its published code."
    ),
]


class Model(Options):
    """A kind of network. `build` makes one, with weights from a file if there is one."""

    part = Part("model", "fedge.models")
    weights: Annotated[
        str | None,
        Meta(description="A safetensors file with initial weights by name; what it lacks starts at random."),
    ] = None

    def build(self, shape: tuple[int, ...], num_outputs: int) -> nn.Module:
        """A network for inputs of this shape, without the batch."""
        module = self.network(shape, num_outputs)
        if self.weights is not None:
            load_weights(module, Path(self.weights).expanduser())
        return module

    def network(self, shape: tuple[int, ...], num_outputs: int) -> nn.Module:
        """The network with random weights, drawn from torch's own generator."""
        raise TypeError(f"{type(self).__name__} does not say which network it is")


def load_weights(module: nn.Module, path: Path) -> None:
    """Give a module the tensors of a file; each must have the name and the shape of one of its own."""
    own = module.state_dict()
    found = _read(path)
    for name, tensor in found.items():
        if name not in own:
            raise ModelError(f"model.weights: the model has no tensor {name!r}{nearest(name, own)}, which {path} gives")
        if tensor.shape != own[name].shape:
            shapes = f"{list(own[name].shape)}, got {list(tensor.shape)}"
            raise ModelError(f"model.weights: expected {name!r} in {path} to have the shape {shapes}")
    module.load_state_dict(found, strict=False)


def _read(path: Path) -> dict[str, Tensor]:
    safetensors: Any = import_module("safetensors.torch")  # only a model with weights waits for it
    try:
        found: dict[str, Tensor] = safetensors.load_file(path)
    except FileNotFoundError:
        raise ModelError(f"model.weights: there is no file {path}; give the path of a safetensors file") from None
    except Exception as error:  # its own kind is not public
        raise ModelError(f"model.weights: {path} cannot be read as a safetensors file: {error}") from error
    if not found:
        raise ModelError(f"model.weights: {path} has no tensors; save some with safetensors.torch.save_file")
    return found
