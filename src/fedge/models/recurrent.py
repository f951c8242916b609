"""Recurrent networks for text, character by character."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from torch import Tensor, nn

from fedge.core.errors import ModelError
from fedge.models.model import Model


class ShakespeareGru(Model, tag="shakespeare_gru"):
    """Predicts the next character: an embedding of size 8, two GRU layers of 128 units, and a linear layer.

    Inputs are sequences of character indices; the number of characters equals the number of outputs.
    """

    units: Annotated[int, Meta(ge=1, description="Units per GRU layer.")] = 128
    embedding: Annotated[int, Meta(ge=1, description="Size of a character's embedding.")] = 8

    def network(self, shape: tuple[int, ...], num_outputs: int) -> CharacterGru:
        if len(shape) != 1 or shape[0] < 1:
            raise ModelError(
                f"model.name: shakespeare_gru expects sequences of characters (length,), got inputs of shape {shape}; "
                "use it with data such as shakespeare"
            )
        return CharacterGru(num_outputs, self.embedding, self.units)


class CharacterGru(nn.Module):
    """Classifies a sequence by the output of two GRU layers after its last character."""

    def __init__(self, num_characters: int, embedding: int, units: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_characters, embedding)
        self.gru = nn.GRU(embedding, units, num_layers=2, batch_first=True)
        self.output = nn.Linear(units, num_characters)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.gru(self.embedding(x))
        logits: Tensor = self.output(states[:, -1])
        return logits
