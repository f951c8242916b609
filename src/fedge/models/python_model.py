"""A model that a Python program passes as an object: a module, a class or a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from hashlib import sha256
from typing import Annotated, Any

import torch
from msgspec import Meta
from torch import nn

from fedge.core.code_digest import digest_code
from fedge.core.errors import ModelError
from fedge.core.lent import PYTHON, borrow, explain_missing
from fedge.models.model import Model
from fedge.models.probe import check_outputs

Make = Callable[[tuple[int, ...], int], nn.Module]
"""(shape of an input, number of outputs) -> network."""
ModelSource = nn.Module | Callable[..., nn.Module]


class PythonModel(Model, tag=PYTHON, kw_only=True):
    """A network that a Python program passed to `fedge.Experiment`. Files cannot name it: only that program has it."""

    type: Annotated[str, Meta(description="The name of the class or function in the program.")]
    digest: Annotated[str, Meta(description="SHA-256 of its code, and of a module's structure and initial weights.")]

    def network(self, shape: tuple[int, ...], num_outputs: int) -> nn.Module:
        make: Make | None = borrow(self.digest)
        if make is None:
            raise ModelError(explain_missing("model", self.type))
        module = make(shape, num_outputs)
        check_outputs(module, shape, num_outputs)
        return module


def hand_over(source: ModelSource) -> tuple[PythonModel, Make]:
    """Return a model's settings and the function that builds it.

    A module is copied now, and every network built is another copy with the same weights. A class or function is called
    whenever a network is needed: without arguments if possible, otherwise with the shape of an input and the number of
    outputs. Raises ModelError if the source is none of these.
    """
    if isinstance(source, nn.Module):
        name = type(source).__name__
        try:
            module = deepcopy(source)
        except Exception as error:  # a module's attributes may raise anything
            reason = f"{type(error).__name__}: {error}"
            raise ModelError(f"model: {name} cannot be copied ({reason}); pass a function that builds it") from error
        return PythonModel(type=name, digest=_digest_module(module)), lambda shape, num_outputs: deepcopy(module)
    if not callable(source):
        raise ModelError(
            "model: expected a name such as 'mnist_2nn', an nn.Module, or a class or function that returns one; "
            f"got {type(source).__name__}"
        )
    name = getattr(source, "__name__", type(source).__name__)
    return PythonModel(type=name, digest=digest_code(source)), partial(_call, source, name)


def _call(source: Callable[..., Any], name: str, shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    given = fitting_arguments(source, shape, num_outputs)
    if given is None:
        raise ModelError(
            f"model: expected {name} to take no arguments, or the shape of an input and the number of outputs, but it "
            f"is {name}{inspect.signature(source)}; pass lambda shape, num_outputs: {name}(...)"
        )
    try:
        module = source(*given)
    except Exception as error:
        raise ModelError(f"model: {name} failed: {type(error).__name__}: {error}") from error
    if not isinstance(module, nn.Module):
        raise ModelError(f"model: {name} must return an nn.Module, got {type(module).__name__}")
    return module


def fitting_arguments(
    source: Callable[..., Any], shape: tuple[int, ...], num_outputs: int, options: Mapping[str, Any] | None = None
) -> tuple[Any, ...] | None:
    """Return the positional arguments for a class or function: none if possible, otherwise shape and outputs.

    None if it accepts neither form.
    """
    try:
        signature = inspect.signature(source)
    except (TypeError, ValueError):  # functions written in C have no signature
        return ()
    for given in ((), (shape, num_outputs)):
        try:
            signature.bind(*given, **options or {})
        except TypeError:
            continue
        return given
    return None


def _digest_module(module: nn.Module) -> str:
    found = sha256(repr(module).encode())
    for kind in dict.fromkeys(map(type, module.modules())):
        found.update(digest_code(kind).encode())
    trained = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    for name, tensor in module.state_dict().items():
        if not hasattr(tensor, "detach"):  # extra state of a module
            found.update(f"{name} {tensor!r}".encode())
            continue
        found.update(f"{name} {name in trained} {tensor.dtype} {list(tensor.shape)}".encode())
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
