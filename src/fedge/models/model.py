"""Options shared by all models, and loading of weights."""

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
        description="Position of batch normalisation: before the nonlinearity, as in Mills, Hu & Min (2020), or after "
        "it and its pooling, as in their published code."
    ),
]


class Model(Options):
    """Base class of models. `build` returns a network, with weights from a file if one is given."""

    part = Part("model", "fedge.models")
    weights: Annotated[
        str | None,
        Meta(description="A safetensors file of initial weights by name; tensors it lacks are initialised at random."),
    ] = None

    def build(self, shape: tuple[int, ...], num_outputs: int) -> nn.Module:
        """Return a network for inputs of this shape, excluding the batch dimension."""
        module = self.network(shape, num_outputs)
        if self.weights is not None:
            load_weights(module, Path(self.weights).expanduser())
        return module

    def network(self, shape: tuple[int, ...], num_outputs: int) -> nn.Module:
        """Return the network with random weights, drawn from torch's global generator."""
        raise TypeError(f"{type(self).__name__} must define network")


def load_weights(module: nn.Module, path: Path) -> None:
    """Load the tensors of a file into a module; raises ModelError if one has no match by name and shape."""
    own = module.state_dict()
    found = _read(path)
    for name, tensor in found.items():
        if name not in own:
            raise ModelError(f"model.weights: the model has no tensor {name!r}{nearest(name, own)}, found in {path}")
        if tensor.shape != own[name].shape:
            shapes = f"{list(own[name].shape)}, got {list(tensor.shape)}"
            raise ModelError(f"model.weights: expected {name!r} in {path} to have the shape {shapes}")
    module.load_state_dict(found, strict=False)


def _read(path: Path) -> dict[str, Tensor]:
    safetensors: Any = import_module("safetensors.torch")  # imported lazily: only models with weights need it
    try:
        found: dict[str, Tensor] = safetensors.load_file(path)
    except FileNotFoundError:
        raise ModelError(f"model.weights: there is no file {path}; give the path of a safetensors file") from None
    except Exception as error:  # the library's exception type is not public
        raise ModelError(f"model.weights: {path} cannot be read as a safetensors file: {error}") from error
    if not found:
        raise ModelError(f"model.weights: {path} has no tensors; save some with safetensors.torch.save_file")
    return found
