"""A model built by a user-defined function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from msgspec import Meta, field
from torch import nn

from fedge.core.errors import ModelError
from fedge.core.parts import explain, origin_of
from fedge.models.model import Model
from fedge.models.probe import check_outputs
from fedge.models.python_model import fitting_arguments


class UserModel(Model, tag=False, kw_only=True):
    """An nn.Module returned by a function in a user's file for (shape, num_outputs, **options).

    It may also be a class of modules, which is called with its options alone if possible, otherwise like a function.
    """

    function: ClassVar[Callable[..., Any]]
    options: Annotated[dict[str, Any], Meta(description="Keyword arguments of the function.")] = field(
        default_factory=dict
    )

    def network(self, shape: tuple[int, ...], num_outputs: int) -> nn.Module:
        given: tuple[Any, ...] = (shape, num_outputs)
        if isinstance(self.function, type) and fitting_arguments(self.function, shape, num_outputs, self.options) == ():
            given = ()
        try:
            module = self.function(*given, **self.options)
        except Exception as error:
            raise ModelError(f"model.name: {explain(error, self)}") from error
        if not isinstance(module, nn.Module):
            name = origin_of(self).name
            raise ModelError(f"model.name: {name} must return an nn.Module, got {type(module).__name__}")
        check_outputs(module, shape, num_outputs)
        return module
