"""Schedules derived from convergence theory, with its constants as options."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from fedge import theory
from fedge.core.errors import ConfigError
from fedge.schedules.rule import Amounts, Moment, Quantity, Rule, State, refuse_epochs

Positive = Annotated[float, Meta(gt=0)]


class Hyperbolic(Rule, tag="hyperbolic"):
    """K = K0/(b+r), server rate = a/(b+r) (Mills, Hu & Min 2023, theorem 2).

    a is the algorithm's server_learning_rate; with mu, it is the theorem's 3/phi_mu(learning_rate, K), which requires
    fedsgd with pseudo = "gradient_sum".
    """

    quantities: ClassVar[tuple[Quantity, ...]] = ("local_steps", "server_learning_rate")
    b: Annotated[
        float, Meta(ge=0, description="3*(L/mu)^2 in the theorem; a large b also makes the first values small")
    ]
    mu: Annotated[
        Positive | None, Meta(description="convexity: the smallest curvature of a client's loss; for the server rate")
    ] = None

    def check(self, quantity: Quantity, base: Amounts) -> None:
        if quantity != "server_learning_rate" or self.mu is None:
            return
        refuse_epochs(quantity, base, "hyperbolic with mu")
        if base.rate * self.mu >= 1:
            raise ConfigError(
                f"schedule.{quantity}: hyperbolic expects algorithm.learning_rate below 1/mu = {1 / self.mu:g}, "
                f"got {base.rate:g}; the theorem requires at most ln(2)/(local_steps*mu)"
            )

    def value(self, quantity: Quantity, amounts: Amounts, moment: Moment, state: State) -> float:
        v0 = amounts.of(quantity)
        if quantity == "local_steps":
            return theory.hyperbolic_steps(v0, self.b, moment.round)
        if self.mu is None:
            return v0 / (self.b + moment.round)
        return theory.hyperbolic_server_rate(self.mu, amounts.rate, amounts.work, self.b, moment.round)


class Optimal(Rule, tag="optimal", kw_only=True):
    """K* or eta*, optimal for the simulated seconds W so far (Mills 2023, theorem 5.2), at most v0.

    K* assumes the algorithm's learning_rate, eta* the K of the round. Neither is defined at W = 0, where v0 is used,
    and eta* is at most 1/(4*smoothness). Losses and gradients are in units of the loss, times in seconds.
    """

    quantities: ClassVar[tuple[Quantity, ...]] = ("local_steps", "learning_rate")
    smoothness: Annotated[float, Meta(gt=0, description="L: the largest curvature of a client's loss")]
    convexity: Annotated[float, Meta(gt=0, description="mu: the smallest curvature of a client's loss")]
    first_loss: Annotated[float, Meta(gt=0, description="F(x_0): training loss of the initial model")]
    least_loss: Annotated[float, Meta(ge=0, description="F*: training loss of the best model")] = 0.0
    gradient_bound: Annotated[float, Meta(gt=0, description="G: bound on the norm of a minibatch gradient")]
    noise: Annotated[
        float,
        Meta(ge=0, description="sum over clients of (share of samples)^2 * variance of their gradients; for eta*"),
    ] = 0.0
    heterogeneity: Annotated[
        float, Meta(ge=0, description="Gamma: F* minus the mean of the clients' own minimum losses; for eta*")
    ] = 0.0
    communication_s: Annotated[float, Meta(gt=0, description="seconds to send the model to a client and back again")]
    seconds_per_step: Annotated[float, Meta(ge=0, description="beta: seconds per minibatch; for eta*")] = 0.0

    def __post_init__(self) -> None:
        if self.convexity > self.smoothness:
            raise ValueError(f"convexity must be at most smoothness ({self.smoothness:g}), got {self.convexity:g}")
        if self.least_loss >= self.first_loss:
            raise ValueError(f"least_loss must be below first_loss ({self.first_loss:g}), got {self.least_loss:g}")

    @property
    def needs_seconds(self) -> bool:
        return True

    def check(self, quantity: Quantity, base: Amounts) -> None:
        refuse_epochs(quantity, base, "optimal")

    def value(self, quantity: Quantity, amounts: Amounts, moment: Moment, state: State) -> float:
        v0 = amounts.of(quantity)
        most = v0 if quantity == "local_steps" else min(v0, 1 / (4 * self.smoothness))
        if moment.sim_seconds <= 0:
            return most
        landscape = theory.Landscape(
            convexity=self.convexity,
            smoothness=self.smoothness,
            first_loss=self.first_loss,
            least_loss=self.least_loss,
            gradient_bound=self.gradient_bound,
            noise=self.noise,
            heterogeneity=self.heterogeneity,
        )
        link = theory.Link(self.communication_s, self.seconds_per_step)
        if quantity == "local_steps":
            best = theory.optimal_steps(landscape, link, amounts.rate, moment.cohort, moment.sim_seconds)
        else:
            best = theory.optimal_rate(landscape, link, amounts.work, moment.cohort, moment.sim_seconds)
        return min(best, most)
