"""A model that a user's own function builds."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field
from torch import nn

from fedge.core.errors import ModelError
from fedge.core.userfile import describe, load_function
from fedge.models.model import Model
from fedge.models.probe import check_outputs


class UserModel(Model, tag=False, kw_only=True):
    """An nn.Module that a function in a file of one's own returns for (shape, num_outputs, **options)."""

    name: Annotated[str, Meta(description="The function, as path/to/file.py:function.")]
    options: Annotated[dict[str, Any], Meta(description="What the function is called with, by name.")] = field(
        default_factory=dict
    )

    def network(self, shape: tuple[int, ...], num_outputs: int) -> nn.Module:
        function = load_function(self.name, "model.name")
        try:
            module = function(shape, num_outputs, **self.options)
        except Exception as error:
            raise ModelError(f"model.name: {self.name} failed: {describe(error, self.name)}") from error
        if not isinstance(module, nn.Module):
            raise ModelError(f"model.name: {self.name} must return an nn.Module, got {type(module).__name__}")
        check_outputs(module, shape, num_outputs)
        return module
