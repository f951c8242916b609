"""Probes of a module with sample inputs, without side effects on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fedge.core.errors import ModelError


def probe(module: nn.Module, shape: tuple[int, ...], num_samples: int = 1) -> object:
    """Return the module's output for zeros, in eval mode without gradients; raises ModelError if it fails."""
    parameter = next(module.parameters(), torch.empty(0))
    dtype = torch.int64 if _takes_words(module) else parameter.dtype
    x = torch.zeros(num_samples, *shape, dtype=dtype, device=parameter.device)
    with _evaluating(module), torch.no_grad():
        try:
            return module(x)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise ModelError(
                f"model.name: the model does not accept inputs of shape {shape}, those of the data: {reason}; "
                "change its first layer, or flatten the inputs before it"
            ) from error


def check_outputs(module: nn.Module, shape: tuple[int, ...], num_outputs: int) -> None:
    """Raise ModelError unless the module returns `num_outputs` values per input."""
    output = probe(module, shape, num_samples=2)
    got = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
    if got != [2, num_outputs]:
        raise ModelError(
            f"model.name: for two inputs of shape {shape} the model must return a tensor [2, {num_outputs}], got "
            f"{got}; the data has {num_outputs} outputs: change the last layer"
        )


def _takes_words(module: nn.Module) -> bool:
    return any(isinstance(part, nn.Embedding | nn.EmbeddingBag) for part in module.modules())


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    # Module by module: train() on the root would also change modules that were in eval mode before.
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
