"""A model that a user's own function builds."""

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
    """An nn.Module that a function in a file of one's own returns for (shape, num_outputs, **options).

    Or a class of such modules: it is called with its options alone where it can be, else like a function.
    """

    function: ClassVar[Callable[..., Any]]
    options: Annotated[dict[str, Any], Meta(description="What the function is called with, by name.")] = field(
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
