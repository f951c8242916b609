"""Options shared by all algorithms."""

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
    """Options of local training; an algorithm adds its own and implements `build`."""

    part = Part("algorithm", "fedge.algorithms", "fedge.algorithm")
    version: ClassVar[int] = 1
    """Increased when the same options give other results: server and clients must have the same version."""

    learning_rate: Annotated[float, Meta(gt=0, description="step size of the clients")] = 0.1
    batch_size: Annotated[Count, Meta(description="samples per minibatch; a client with fewer uses all of them")] = 20
    local_steps: Annotated[Count | None, Meta(description="minibatch steps per client and round")] = None
    local_epochs: Annotated[Count | None, Meta(description="passes over a client's data per round")] = None
    weighting: Annotated[
        Weighting, Meta(description="weights of clients in a mean: by number of samples, or equal")
    ] = "samples"
    momentum: Annotated[
        float, Meta(ge=0, lt=1, description="of clients: steps use m = momentum*m + g; m starts at 0 in every round")
    ] = 0.0
    weight_decay: Annotated[float, Meta(ge=0, description="of clients: adds weight_decay times the weights to g")] = 0.0
    prox: Annotated[float, Meta(ge=0, description="mu of FedProx: adds mu*(y - x) to g")] = 0.0
    maxent: Annotated[
        float, Meta(ge=0, description="alpha of FedMAX: adds alpha*KL(uniform || softmax of the features) to the loss")
    ] = 0.0

    def __post_init__(self) -> None:
        if self.local_steps is not None and self.local_epochs is not None:
            raise ValueError(
                "local_steps and local_epochs exclude each other; set only one (--set algorithm.local_epochs= unsets)"
            )

    @property
    def amount(self) -> tuple[int | None, int | None]:
        """(steps, epochs) per round, one of them None; the default is one epoch."""
        if self.local_steps is not None:
            return self.local_steps, None
        return None, self.local_epochs or 1

    @property
    def server_rate(self) -> float | None:
        """The server's step size; None if it takes no steps."""
        return getattr(self, "server_learning_rate", None)

    def build(self, layout: Layout) -> Algorithm:
        """Return the algorithm for models of this layout."""
        raise TypeError(f"{type(self).__name__} must define build")


class Adaptive(TrainingOptions):
    """Options of training with an optimiser on the server."""

    weighting: Annotated[Weighting, Meta(description="weights of clients in the means")] = "uniform"
    optimiser: Annotated[
        ServerName, Meta(description="sgdm keeps m; rmsprop and adagrad keep v; adam and yogi keep both")
    ] = "adam"
    beta: Annotated[float, Meta(ge=0, lt=1, description="decay of m; for rmsprop, of v")] = 0.9
    beta2: Annotated[float, Meta(ge=0, lt=1, description="decay of v if there is also m")] = 0.99
    epsilon: Annotated[float, Meta(gt=0, description="added to the square root of v")] = 1e-3
    v0: Annotated[float, Meta(ge=0, description="initial value of v")] = 1.0

    def make_optimiser(self, bias_correction: bool = False) -> Optimiser:
        return make_optimiser(self.optimiser, self.beta, self.beta2, self.epsilon, self.v0, bias_correction)


class ClientAdaptive(Adaptive):
    """Options of training with an optimiser on the clients, whose statistics are shared."""

    optimiser: Annotated[Name, Meta(description="sgdm keeps m, rmsprop keeps v, adam keeps both")] = "adam"
