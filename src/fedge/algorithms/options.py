"""What every algorithm can be told."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from fedge.core.algorithm import Algorithm
from fedge.core.layout import Layout
from fedge.core.optim import Name, Optimiser, ServerName, make_optimiser
from fedge.core.parts import Part
from fedge.core.schema import Options

Count = Annotated[int, Meta(ge=1, le=10**9)]
Weighting = Literal["samples", "uniform"]


class TrainingOptions(Options):
    """Local training; an algorithm adds its own options and says what it does in `build`."""

    part = Part("algorithm", "fedge.algorithms", "fedge.algorithm")
    version: ClassVar[int] = 1
    """Raised when the same options compute something else: server and clients must have the same."""

    learning_rate: Annotated[float, Meta(gt=0, description="step size of the clients")] = 0.1
    batch_size: Annotated[Count, Meta(description="samples in a minibatch; a smaller client uses all it has")] = 20
    local_steps: Annotated[Count | None, Meta(description="minibatch steps of a client in a round")] = None
    local_epochs: Annotated[Count | None, Meta(description="passes of a client over its data in a round")] = None
    weighting: Annotated[Weighting, Meta(description="how clients weigh in a mean: by their samples, or all alike")] = (
        "samples"
    )
    momentum: Annotated[
        float, Meta(ge=0, lt=1, description="of clients: steps follow m = momentum*m + g, with m = 0 in every round")
    ] = 0.0
    weight_decay: Annotated[float, Meta(ge=0, description="of clients: adds this much of the weights to g")] = 0.0
    prox: Annotated[float, Meta(ge=0, description="mu of FedProx: adds mu*(y - x) to g")] = 0.0
    maxent: Annotated[
        float, Meta(ge=0, description="alpha of FedMAX: adds alpha*KL(uniform || softmax of the features) to the loss")
    ] = 0.0

    def __post_init__(self) -> None:
        if self.local_steps is not None and self.local_epochs is not None:
            raise ValueError(
                "local_steps and local_epochs exclude each other; give one (--set algorithm.local_epochs= unsets)"
            )

    @property
    def amount(self) -> tuple[int | None, int | None]:
        """(steps, epochs) of a round, one of them None; one epoch if nothing was said."""
        if self.local_steps is not None:
            return self.local_steps, None
        return None, self.local_epochs or 1

    @property
    def server_rate(self) -> float | None:
        """The server's step size; None if it takes no steps."""
        return getattr(self, "server_learning_rate", None)

    def build(self, layout: Layout) -> Algorithm:
        """The algorithm for models of this layout."""
        raise TypeError(f"{type(self).__name__} does not say what it does")


class Adaptive(TrainingOptions):
    """Training with an optimiser on the server."""

    weighting: Annotated[Weighting, Meta(description="how clients weigh in the means")] = "uniform"
    optimiser: Annotated[ServerName, Meta(description="sgdm keeps m; rmsprop, adagrad v; adam, yogi both")] = "adam"
    beta: Annotated[float, Meta(ge=0, lt=1, description="decay of m; for rmsprop of v")] = 0.9
    beta2: Annotated[float, Meta(ge=0, lt=1, description="decay of v beside m")] = 0.99
    epsilon: Annotated[float, Meta(gt=0, description="added to the root of v")] = 1e-3
    v0: Annotated[float, Meta(ge=0, description="v at the start")] = 1.0

    def make_optimiser(self, bias_correction: bool = False) -> Optimiser:
        return make_optimiser(self.optimiser, self.beta, self.beta2, self.epsilon, self.v0, bias_correction)


class ClientAdaptive(Adaptive):
    """Training with an optimiser on the clients, whose statistics are shared."""

    optimiser: Annotated[Name, Meta(description="sgdm keeps m, rmsprop v, adam both")] = "adam"
