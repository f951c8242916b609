"""Looking at what a module does with a sample, without changing it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fedge.core.errors import ModelError


def probe(module: nn.Module, shape: tuple[int, ...], num_samples: int = 1) -> object:
    """The module's answer to zeros, in eval mode without gradients; a ModelError if it has none."""
    parameter = next(module.parameters(), torch.empty(0))
    dtype = torch.int64 if _takes_words(module) else parameter.dtype
    x = torch.zeros(num_samples, *shape, dtype=dtype, device=parameter.device)
    with _evaluating(module), torch.no_grad():
        try:
            return module(x)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise ModelError(
                f"model.name: the model does not take inputs of shape {shape}, those of the data: {reason}; "
                "change its first layer, or flatten the inputs before it"
            ) from error


def check_outputs(module: nn.Module, shape: tuple[int, ...], num_outputs: int) -> None:
    """Raise a ModelError unless the module gives one number per output for each input."""
    output = probe(module, shape, num_samples=2)
    got = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
    if got != [2, num_outputs]:
        raise ModelError(
            f"model.name: for two inputs of shape {shape} the model must give a tensor [2, {num_outputs}], got {got}; "
            f"the data have {num_outputs} outputs: change the last layer"
        )


def _takes_words(module: nn.Module) -> bool:
    return any(isinstance(part, nn.Embedding | nn.EmbeddingBag) for part in module.modules())


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    # One by one: train() on the whole would also switch on parts that were in eval mode before.
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
