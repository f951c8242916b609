"""Networks that read text, character by character."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from torch import Tensor, nn

from fedge.core.errors import ModelError
from fedge.models.model import Model


class ShakespeareGru(Model, tag="shakespeare_gru"):
    """Predicts the next character: an embedding of 8 numbers, two GRU layers of 128 units, and a linear layer.

    Inputs are sequences of character numbers; there are as many characters as outputs.
    """

    units: Annotated[int, Meta(ge=1, description="Units of each GRU layer.")] = 128
    embedding: Annotated[int, Meta(ge=1, description="Numbers that stand for a character.")] = 8

    def network(self, shape: tuple[int, ...], num_outputs: int) -> CharacterGru:
        if len(shape) != 1 or shape[0] < 1:
            raise ModelError(
                f"model.name: shakespeare_gru takes sequences of characters (length,), got inputs of shape {shape}; "
                "use it with data such as shakespeare"
            )
        return CharacterGru(num_outputs, self.embedding, self.units)


class CharacterGru(nn.Module):
    """What two GRU layers make of a sequence decides after its last character."""

    def __init__(self, num_characters: int, embedding: int, units: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_characters, embedding)
        self.gru = nn.GRU(embedding, units, num_layers=2, batch_first=True)
        self.output = nn.Linear(units, num_characters)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.gru(self.embedding(x))
        logits: Tensor = self.output(states[:, -1])
        return logits
