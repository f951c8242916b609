"""Published theory as functions: bounds on client drift and convergence, and the optimal amount of local work.

docs/references.md lists the works cited. All arguments are plain numbers in units of the loss and the weights; times
are in seconds. Bounds hold under the assumptions stated in these works.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import cbrt, log, sqrt
from typing import NamedTuple, overload

import numpy as np


class Quadratics(NamedTuple):
    """The quadratic clients of Mills, Hu & Min (2023): client i has the loss 1/2 ||A_i^(1/2) (x - c_i)||^2."""

    convexity: float  # mu: lower bound of the eigenvalues of all A_i
    smoothness: float  # L: upper bound of the eigenvalues of all A_i
    minimiser_std: float  # sigma_c: standard deviation of the c_i over clients
    curvature_std: float = 0.0  # sigma_A: standard deviation of the A_i over clients

    @property
    def kappa(self) -> float:
        return self.smoothness / self.convexity


@overload
def phi(curvature: float, rate: float, steps: float) -> float: ...
@overload
def phi(curvature: np.ndarray, rate: float, steps: float) -> np.ndarray: ...
def phi(curvature: float | np.ndarray, rate: float, steps: float) -> float | np.ndarray:
    """Return (1 - (1 - gamma*lambda)^K)/gamma, the effective eigenvalue of A after K steps.

    This is equation 6 of Mills, Hu & Min (2023): the sum of the K gradients per unit of distance from the minimiser.
    It tends to K*lambda as gamma goes to 0. Raises ValueError unless 0 <= gamma < 1/lambda.
    """
    if rate < 0 or np.any(rate * np.asarray(curvature) >= 1):
        raise ValueError(f"rate must be at least 0 and below 1/curvature, got {rate:g}")
    if rate == 0:
        return curvature * steps
    # At small rates, the published form would subtract nearly equal numbers.
    found = -np.expm1(steps * np.log1p(-rate * curvature)) / rate
    return found if isinstance(found, np.ndarray) else float(found)


def surrogate_bound(clients: Quadratics, rate: float, steps: float) -> float:
    """Bound how far from the true minimiser training with K steps can end (Mills, Hu & Min 2023, equation 7)."""
    mu, smoothness, sigma_c, sigma_a = clients
    drift = smoothness * steps - phi(smoothness, rate, steps)
    return sigma_c * (1 + sigma_a / mu) * drift / phi(mu, rate, steps)


def shift_bound(clients: Quadratics, rate: float, fewer: float, more: float) -> float:
    """Bound the distance between the minimisers of K1 <= K2 steps (Mills, Hu & Min 2023, theorem 1)."""
    _check_steps(fewer, more)
    mu, smoothness, sigma_c, _ = clients
    ratio = phi(smoothness, rate, more) / phi(mu, rate, more)
    change = phi(smoothness, rate, fewer) - fewer / more * phi(smoothness, rate, more)
    return sigma_c * (1 + ratio) * change / phi(mu, rate, fewer)


def simple_shift_bound(clients: Quadratics, fewer: float, more: float) -> float:
    """Return a looser bound that shows the growth with K2 - K1 (Mills, Hu & Min 2023, corollary 1, equation 9)."""
    _check_steps(fewer, more)
    return 2 * clients.minimiser_std * clients.kappa**2 * (more - fewer) / more


def hyperbolic_offset(clients: Quadratics) -> float:
    """Return b = 3*kappa^2 (Mills, Hu & Min 2023, theorem 2)."""
    return 3 * clients.kappa**2


def hyperbolic_steps(steps: float, offset: float, round: int) -> float:
    """Return the unrounded K of a round, max(K0/(b+t), 1) (Mills, Hu & Min 2023, theorem 2)."""
    return max(steps / (offset + round), 1.0)


def hyperbolic_server_rate(convexity: float, rate: float, steps: float, offset: float, round: int) -> float:
    """Return eta_t (Mills, Hu & Min 2023, theorem 2), for a pseudo-gradient that sums a client's K gradients."""
    return 3 / phi(convexity, rate, steps) / (offset + round)


def hyperbolic_bound(
    clients: Quadratics, steps: float, round: int, *, gradient_std: float, samples: float, start: float
) -> float:
    """Bound the expected squared distance to the true minimiser in a round (Mills, Hu & Min 2023, theorem 2).

    `gradient_std` is G, `samples` the M*B samples in a step of the whole cohort, `start` the distance of the initial
    model from the first surrogate minimiser. The client rate must be at most `largest_rate`.

    The paper divides the first term of nu by K0. Its proof (equation 56) uses K0*mu/2 in place of the lower bound
    K_t*mu/2 of phi. Because K_t decreases to 1, only nu without K0 holds, so this function omits K0.
    """
    offset = hyperbolic_offset(clients)
    nu = max(36 * gradient_std**2 / (clients.convexity**2 * samples), (offset + 1) * start**2)
    return (2 * nu + 16 * (clients.minimiser_std * clients.kappa * steps) ** 2) / (offset + round)


def largest_rate(convexity: float, steps: float) -> float:
    """Return the largest client rate that Mills, Hu & Min (2023), theorem 2, allows: ln(2)/(K0*mu)."""
    return log(2) / (steps * convexity)


class Landscape(NamedTuple):
    """The constants of assumptions 1 to 4 in chapter 5 of Mills (2023)."""

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
        """Return Z, the variance per update due to noise, heterogeneous clients and drift over local steps."""
        drift = (8 + 4 / cohort) * self.gradient_bound**2 * squared_steps
        return self.noise + 6 * self.smoothness * self.heterogeneity + drift


class Link(NamedTuple):
    """The duration of a round: |x|/D + |x|/U + beta*K seconds."""

    communication_s: float  # |x|/D + |x|/U
    seconds_per_step: float = 0.0  # beta

    def seconds(self, steps: float) -> float:
        return self.communication_s + self.seconds_per_step * steps


def convergence_bound(landscape: Landscape, rate: float, steps: Sequence[float], cohort: int) -> float:
    """Bound the smallest expected squared gradient norm after rounds of these steps (Mills 2023, theorem 5.1).

    The rate must be at most 1/(4L). Raises ValueError if the steps increase from round to round.
    """
    if any(later > earlier for earlier, later in pairwise(steps)):
        raise ValueError("steps must not increase from round to round")
    total = sum(steps)
    variance = landscape.variance(cohort, sum(k**3 for k in steps) / total)
    return _bound(landscape, rate, total, variance)


def runtime_bound(
    landscape: Landscape, link: Link, rate: float, steps: float, cohort: int, sim_seconds: float
) -> float:
    """Like `convergence_bound`, after `sim_seconds` seconds of rounds of K steps (Mills 2023, equation 5.8)."""
    total = sim_seconds * steps / link.seconds(steps)
    return _bound(landscape, rate, total, landscape.variance(cohort, steps**2))


def optimal_steps(landscape: Landscape, link: Link, rate: float, cohort: int, sim_seconds: float) -> float:
    """Return K*(W), which minimises `runtime_bound` for a rate (Mills 2023, theorem 5.2).

    It includes the G^2 that is missing in equation 5.9.
    """
    drift = 8 * (1 + 1 / (2 * cohort)) * landscape.gradient_bound**2
    return cbrt(landscape.gap * link.communication_s / (rate**2 * landscape.smoothness * drift * sim_seconds))


def optimal_rate(landscape: Landscape, link: Link, steps: float, cohort: int, sim_seconds: float) -> float:
    """Return eta*(W), which minimises `runtime_bound` for a K (Mills 2023, corollary 5.2.1).

    It includes the 1/K that is missing in equation 5.11.
    """
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
    """Bound the expected squared gradient norm of FedGBO with SGDm in a random round (Mills 2023, theorem 6.1).

    `gap` is F(x_0) - F*, `gradient_bound` R, `client_std` G, `sample_std` sigma and `optimiser_bound` B, where
    ||U(g)|| <= B ||g||. Momentum is m = beta*m + g, without the factor 1 - beta.
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
    """Return the clients of the example in Mills, Hu & Min (2023) from uniform numbers in [0, 1).

    Client z in [1, 3], with density proportional to z^(-1/2), has the loss z*x^2/2 - x. The root of z is uniform.
    """
    return (1 + (sqrt(3) - 1) * uniform) ** 2


def example_minimiser(rate: float, steps: int) -> float:
    """Return the limit of training with K steps in the example of Mills, Hu & Min (2023): E[phi_z/z] / E[phi_z].

    One step gives x* = 0.52337.
    """
    # phi and phi/z are polynomials in the root of z, which is uniform: with this many nodes the means are exact
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
