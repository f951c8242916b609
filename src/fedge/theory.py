"""What the documents prove, as numbers: how far clients drift, how fast training converges, how much work is best.

"Paper" below is "Faster federated learning with decaying number of local SGD steps"; chapters 5 and 6 are those of the
thesis "Federated machine learning in edge computing". All arguments are plain numbers in the units of the loss and the
weights; times are in seconds. Bounds hold under the assumptions that their documents list.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import cbrt, log, sqrt
from typing import NamedTuple, overload

import numpy as np


class Quadratics(NamedTuple):
    """Clients of the paper: client i has the loss 1/2 ||A_i^(1/2) (x - c_i)||^2."""

    convexity: float  # mu: no A_i has an eigenvalue below
    smoothness: float  # L: nor above
    minimiser_std: float  # sigma_c: of the c_i over clients
    curvature_std: float = 0.0  # sigma_A: of the A_i over clients

    @property
    def kappa(self) -> float:
        return self.smoothness / self.convexity


@overload
def phi(curvature: float, rate: float, steps: float) -> float: ...
@overload
def phi(curvature: np.ndarray, rate: float, steps: float) -> np.ndarray: ...
def phi(curvature: float | np.ndarray, rate: float, steps: float) -> float | np.ndarray:
    """What K steps make of an eigenvalue of A: (1 - (1 - gamma*lambda)^K)/gamma, equation 6 of the paper.

    It is the sum of the K gradients for every unit of distance from the minimiser; K*lambda as gamma goes to 0.
    """
    if rate < 0 or np.any(rate * np.asarray(curvature) >= 1):
        raise ValueError(f"rate must be at least 0 and below 1/curvature, got {rate:g}")
    if rate == 0:
        return curvature * steps
    # not as printed: for small rates that would be a difference of nearly equal numbers
    found = -np.expm1(steps * np.log1p(-rate * curvature)) / rate
    return found if isinstance(found, np.ndarray) else float(found)


def surrogate_bound(clients: Quadratics, rate: float, steps: float) -> float:
    """How far from the true minimiser training with K steps can end: equation 7 of the paper."""
    mu, smoothness, sigma_c, sigma_a = clients
    drift = smoothness * steps - phi(smoothness, rate, steps)
    return sigma_c * (1 + sigma_a / mu) * drift / phi(mu, rate, steps)


def shift_bound(clients: Quadratics, rate: float, fewer: float, more: float) -> float:
    """How far apart the minimisers of K1 <= K2 steps can be: theorem 1 of the paper."""
    _check_steps(fewer, more)
    mu, smoothness, sigma_c, _ = clients
    ratio = phi(smoothness, rate, more) / phi(mu, rate, more)
    change = phi(smoothness, rate, fewer) - fewer / more * phi(smoothness, rate, more)
    return sigma_c * (1 + ratio) * change / phi(mu, rate, fewer)


def simple_shift_bound(clients: Quadratics, fewer: float, more: float) -> float:
    """A looser bound that shows how it grows with K2 - K1: equation 9 of corollary 1 of the paper."""
    _check_steps(fewer, more)
    return 2 * clients.minimiser_std * clients.kappa**2 * (more - fewer) / more


def hyperbolic_offset(clients: Quadratics) -> float:
    """b of theorem 2 of the paper: 3*kappa^2."""
    return 3 * clients.kappa**2


def hyperbolic_steps(steps: float, offset: float, round: int) -> float:
    """K of a round by theorem 2 of the paper: max(K0/(b+t), 1), not rounded."""
    return max(steps / (offset + round), 1.0)


def hyperbolic_server_rate(convexity: float, rate: float, steps: float, offset: float, round: int) -> float:
    """eta_t of theorem 2 of the paper, for a server whose pseudo-gradient is the sum of the clients' K gradients."""
    return 3 / phi(convexity, rate, steps) / (offset + round)


def hyperbolic_bound(
    clients: Quadratics, steps: float, round: int, *, gradient_std: float, samples: float, start: float
) -> float:
    """The expected squared distance to the true minimiser in a round: theorem 2 of the paper.

    `gradient_std` is G, `samples` the M*B samples in a step of the whole cohort, `start` the distance of the first
    model from the first surrogate minimiser; the client rate must be at most `largest_rate`.

    The paper divides the first term of nu by K0. Its proof (equation 56) has K0*mu/2 there for the lower bound K_t*mu/2
    of phi, and with K_t down to 1 only nu without K0 holds, which is what stands here.
    """
    offset = hyperbolic_offset(clients)
    nu = max(36 * gradient_std**2 / (clients.convexity**2 * samples), (offset + 1) * start**2)
    return (2 * nu + 16 * (clients.minimiser_std * clients.kappa * steps) ** 2) / (offset + round)


def largest_rate(convexity: float, steps: float) -> float:
    """The largest client rate that theorem 2 of the paper allows: ln(2)/(K0*mu)."""
    return log(2) / (steps * convexity)


class Landscape(NamedTuple):
    """The constants of assumptions 1 to 4 of chapter 5."""

    convexity: float  # mu
    smoothness: float  # L
    first_loss: float  # F(x_0)
    least_loss: float = 0.0  # F*, at least 0
    gradient_bound: float = 1.0  # G: root of the largest expected squared norm of a stochastic gradient
    noise: float = 0.0  # sum of p_c^2 * sigma_c^2 over clients, p_c their shares of samples
    heterogeneity: float = 0.0  # Gamma = F* - sum of p_c * f_c^*

    @property
    def gap(self) -> float:
        """kappa*F(x_0) - F*."""
        return self.smoothness / self.convexity * self.first_loss - self.least_loss

    def variance(self, cohort: int, squared_steps: float) -> float:
        """Z: what noise, unlike clients and drift over some steps add to each update."""
        drift = (8 + 4 / cohort) * self.gradient_bound**2 * squared_steps
        return self.noise + 6 * self.smoothness * self.heterogeneity + drift


class Link(NamedTuple):
    """What a round costs in time: |x|/D + |x|/U + beta*K seconds."""

    communication_s: float  # |x|/D + |x|/U
    seconds_per_step: float = 0.0  # beta

    def seconds(self, steps: float) -> float:
        return self.communication_s + self.seconds_per_step * steps


def convergence_bound(landscape: Landscape, rate: float, steps: Sequence[float], cohort: int) -> float:
    """The least expected squared gradient norm after rounds of these numbers of steps: theorem 5.1, rate <= 1/(4L)."""
    if any(later > earlier for earlier, later in pairwise(steps)):
        raise ValueError("steps must not increase from round to round")
    total = sum(steps)
    variance = landscape.variance(cohort, sum(k**3 for k in steps) / total)
    return _bound(landscape, rate, total, variance)


def runtime_bound(
    landscape: Landscape, link: Link, rate: float, steps: float, cohort: int, sim_seconds: float
) -> float:
    """The same after so many seconds of rounds of K steps: equation 5.8."""
    total = sim_seconds * steps / link.seconds(steps)
    return _bound(landscape, rate, total, landscape.variance(cohort, steps**2))


def optimal_steps(landscape: Landscape, link: Link, rate: float, cohort: int, sim_seconds: float) -> float:
    """K*(W), which minimises `runtime_bound` for a rate: theorem 5.2, with the G^2 that equation 5.9 leaves out."""
    drift = 8 * (1 + 1 / (2 * cohort)) * landscape.gradient_bound**2
    return cbrt(landscape.gap * link.communication_s / (rate**2 * landscape.smoothness * drift * sim_seconds))


def optimal_rate(landscape: Landscape, link: Link, steps: float, cohort: int, sim_seconds: float) -> float:
    """eta*(W), which minimises `runtime_bound` for a K: corollary 5.2.1, with the 1/K that equation 5.11 leaves out."""
    variance = landscape.variance(cohort, steps**2)
    return sqrt(2 * landscape.gap * link.seconds(steps) / (landscape.smoothness * variance * sim_seconds * steps))


def fedgbo_bound(
    rounds: int,
    rate: float,
    steps: int,
    beta: float,
    *,
    gap: float,
    smoothness: float,
    gradient_bound: float,
    client_std: float,
    sample_std: float,
    optimiser_bound: float = 1.0,
) -> float:
    """The expected squared gradient norm of FedGBO with SGDm at a random round: theorem 6.1.

    `gap` is F(x_0) - F*, `gradient_bound` R, `client_std` G, `sample_std` sigma and `optimiser_bound` B, where
    ||U(g)|| <= B ||g||. The momentum is m = beta*m + g, without the factor 1 - beta.
    """
    if rounds * (1 - beta) <= 1:
        raise ValueError(f"rounds must be above 1/(1 - beta) = {1 / (1 - beta):g}, got {rounds}")
    pseudo_rate = steps * rate
    effective = rounds - beta / (1 - beta)
    drift = 18 * (optimiser_bound * smoothness) ** 2 * (gradient_bound**2 + client_std**2 + sample_std**2 / steps)
    biased = pseudo_rate**2 * drift
    descent = 2 * (1 - beta) / (pseudo_rate * effective) * gap
    momentum = 2 * pseudo_rate * smoothness * (1 + beta) * (gradient_bound**2 + biased) / (1 - beta) ** 2
    return descent + rounds / effective * (biased + momentum)


def example_curvatures(uniform: np.ndarray) -> np.ndarray:
    """Clients of the paper's example from uniform numbers in [0, 1).

    Client z in [1, 3], with density proportional to z^(-1/2), has the loss z*x^2/2 - x. Its root is uniform.
    """
    return (1 + (sqrt(3) - 1) * uniform) ** 2


def example_minimiser(rate: float, steps: int) -> float:
    """Where training with K steps ends in the paper's example: E[phi_z/z] / E[phi_z]; one step gives x* = 0.52337."""
    # phi and phi/z are polynomials in the root of z, which is uniform: with so many nodes the means are exact
    nodes, weights = np.polynomial.legendre.leggauss(steps + 1)
    z = example_curvatures((nodes + 1) / 2)
    pull = weights * phi(z, rate, steps)
    return float((pull / z).sum() / pull.sum())


def _bound(landscape: Landscape, rate: float, total_steps: float, variance: float) -> float:
    kappa = landscape.smoothness / landscape.convexity
    return 2 * kappa * landscape.gap / (rate * total_steps) + rate * kappa * landscape.smoothness * variance


def _check_steps(fewer: float, more: float) -> None:
    if not 1 <= fewer <= more:
        raise ValueError(f"expected 1 <= fewer <= more steps, got {fewer:g} and {more:g}")
