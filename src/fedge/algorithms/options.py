"""What every algorithm can be told."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from fedge.core.algorithm import Algorithm
from fedge.core.layout import Layout
from fedge.core.schema import Options

Count = Annotated[int, Meta(ge=1)]
Weighting = Literal["samples", "uniform"]


class Training(Options):
    """Local training; an algorithm adds its own options and says what it does in `build`."""

    learning_rate: Annotated[float, Meta(gt=0, description="step size of the clients")] = 0.1
    batch_size: Annotated[int, Meta(ge=1, description="samples in a minibatch; a smaller client uses all it has")] = 20
    local_steps: Annotated[Count | None, Meta(description="minibatch steps of a client in a round")] = None
    local_epochs: Annotated[Count | None, Meta(description="passes of a client over its data in a round")] = None
    weighting: Annotated[Weighting, Meta(description="how clients weigh in a mean: by their samples, or all alike")] = (
        "samples"
    )

    def __post_init__(self) -> None:
        if self.local_steps is not None and self.local_epochs is not None:
            raise ValueError("local_steps and local_epochs exclude each other; give one of them")

    @property
    def amount(self) -> tuple[int | None, int | None]:
        """(steps, epochs) of a round, one of them None; one epoch if nothing was said."""
        if self.local_steps is not None:
            return self.local_steps, None
        return None, self.local_epochs or 1

    def build(self, layout: Layout) -> Algorithm:
        """The algorithm for models of this layout."""
        raise TypeError(f"{type(self).__name__} does not say what it does")
