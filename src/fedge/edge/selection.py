"""Who takes part in a round."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from fedge.core.errors import ConfigError
from fedge.core.keys import generator
from fedge.core.schema import Options

Share = Annotated[float, Meta(gt=0, le=1)]
Count = Annotated[int, Meta(ge=1)]


class Uniform(Options, tag="uniform"):
    """Every client with the same chance, none twice in a round."""

    fraction: Annotated[Share | None, Meta(description="share of all clients asked in a round (0.1 if no count)")] = (
        None
    )
    count: Annotated[Count | None, Meta(description="clients asked in a round")] = None

    def __post_init__(self) -> None:
        if self.fraction is not None and self.count is not None:
            raise ValueError("fraction and count exclude each other; give one of them")

    def number(self, num_clients: int) -> int:
        """How many of so many clients are asked."""
        if self.count is None:
            return max(1, int((self.fraction or 0.1) * num_clients + 1e-9))
        if self.count > num_clients:
            raise ConfigError(
                f"selection.count: expected at most the {num_clients} clients of data.clients, got {self.count}"
            )
        return self.count

    def select(self, num_clients: int, seed: int, round: int) -> tuple[int, ...]:
        """The cohort of a round, in client order."""
        rng = generator(seed, "selection", round=round)
        return tuple(sorted(rng.choice(num_clients, self.number(num_clients), replace=False).tolist()))
