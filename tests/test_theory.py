"""Bounds computed by hand, and compared with the example of Mills, Hu & Min (2023), where everything is known."""

from itertools import pairwise
from math import log, sqrt

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from federation import Federation, Handmade, slope
from fedge import theory
from fedge.algorithms.fedsgd import FedSgd
from fedge.data.clients import Samples
from fedge.theory import Landscape, Link, Quadratics

# With u the root of z, uniform on [1, root of 3]: E[1/z] = 1/root(3), E[1/z^2] = (1 - 3^-1.5)/(3*(root(3) - 1)),
# E[z] = (3*root(3) - 1)/(3*(root(3) - 1)), E[z^2] = (9*root(3) - 1)/(5*(root(3) - 1)).
ROOT = sqrt(3)
MEAN = (3 * ROOT - 1) / (3 * (ROOT - 1))
EXAMPLE = Quadratics(
    convexity=1,
    smoothness=3,
    minimiser_std=sqrt((1 - 3**-1.5) / (3 * (ROOT - 1)) - 1 / 3),
    curvature_std=sqrt((9 * ROOT - 1) / (5 * (ROOT - 1)) - MEAN**2),
)
rates = st.floats(1e-6, 0.33)
counts = st.integers(1, 40)


@pytest.mark.parametrize(
    ("curvature", "rate", "steps", "value"),
    [(2, 0.25, 1, 2), (2, 0.25, 2, 3), (2, 0.25, 3, 3.5), (4, 0.125, 2, 6), (3, 0, 5, 15)],
)
def test_phi(curvature: float, rate: float, steps: int, value: float) -> None:
    assert theory.phi(curvature, rate, steps) == pytest.approx(value, rel=1e-14)


@given(st.floats(0.1, 3), rates, counts)
@settings(max_examples=50, deadline=None)
def test_phi_is_the_sum_of_gradients(curvature: float, rate: float, steps: int) -> None:
    y, total = 1.0, 0.0  # the minimiser is 0
    for _ in range(steps):
        gradient = curvature * y
        total, y = total + gradient, y - rate * gradient
    assert theory.phi(curvature, rate, steps) == pytest.approx(total, rel=1e-9)


def test_phi_of_a_tiny_rate_is_exact() -> None:
    assert theory.phi(2, 1e-18, 10) == pytest.approx(20, rel=1e-15)


@pytest.mark.parametrize("rate", [-0.1, 0.5, 0.6])
def test_phi_needs_a_rate_below_one_over_the_curvature(rate: float) -> None:
    with pytest.raises(ValueError, match=rf"below 1/curvature, got {rate:g}"):
        theory.phi(np.array([1.0, 2.0]), rate, 2)


@pytest.mark.parametrize(("steps", "minimiser"), [(1, 0.52337), (5, 0.54169), (10, 0.55703)])
def test_example(steps: int, minimiser: float) -> None:
    assert theory.example_minimiser(0.1, steps) == pytest.approx(minimiser, abs=0.000005)


def test_true_minimiser_of_the_example() -> None:
    assert theory.example_minimiser(0.1, 1) == pytest.approx(1 / MEAN, rel=1e-14)  # E[z]*x - 1 = 0
    assert theory.example_minimiser(0, 10) == pytest.approx(1 / MEAN, rel=1e-14)


def test_clients_of_the_example() -> None:
    z = theory.example_curvatures(np.linspace(0, 1, 100_001))
    assert (z[0], z[-1]) == (1, pytest.approx(3))
    assert z.mean() == pytest.approx(MEAN, rel=1e-5)


def test_fedsgd_converges_to_the_published_example() -> None:
    curvatures = theory.example_curvatures(np.array([0.1, 0.5, 0.9]))
    # 1/2 (w*root(z) - 1/root(z))^2 is z*w^2/2 - w plus a constant
    samples = [Samples(torch.tensor([[sqrt(z)]]), torch.tensor([[1 / sqrt(z)]])) for z in curvatures]
    clients = Handmade(samples, 1, "values")
    build = FedSgd(pseudo="gradient_sum").build
    federation = Federation(build, clients, make=slope, rate=0.1, server_rate=0.02, steps=4)
    federation.round()
    pull = theory.phi(curvatures, 0.1, 4)
    expected = 1 - 0.02 * np.mean(pull * (1 - 1 / curvatures))
    assert federation.weight() == pytest.approx(expected, rel=1e-6)  # samples are float32


def test_surrogate_bound() -> None:
    clients = Quadratics(convexity=1, smoothness=2, minimiser_std=3, curvature_std=0.5)
    # phi_L = 3 and phi_mu = 1.75 at rate 1/4 and K = 2: 3*(1 + 0.5)*(2*2 - 3)/1.75
    assert theory.surrogate_bound(clients, 0.25, 2) == pytest.approx(4.5 / 1.75)
    assert theory.surrogate_bound(clients, 0.25, 1) == pytest.approx(0, abs=1e-14)


def test_theorem_1() -> None:
    clients = Quadratics(convexity=1, smoothness=2, minimiser_std=3)
    # K1 = 1: phi_L = 2, phi_mu = 1; K2 = 2: 3 and 1.75. 3*(1 + 3/1.75)*(2 - 3/2)/1
    assert theory.shift_bound(clients, 0.25, 1, 2) == pytest.approx(1.5 * (1 + 3 / 1.75))
    assert theory.shift_bound(clients, 0.25, 2, 2) == pytest.approx(0, abs=1e-14)


def test_corollary_1() -> None:
    clients = Quadratics(convexity=1, smoothness=2, minimiser_std=3)
    assert theory.simple_shift_bound(clients, 1, 4) == pytest.approx(18)  # 2*3*4*3/4


def test_fewer_steps_come_first() -> None:
    for fewer, more in ((3, 2), (0.5, 2)):
        with pytest.raises(ValueError, match=f"1 <= fewer <= more steps, got {fewer:g} and {more:g}"):
            theory.simple_shift_bound(EXAMPLE, fewer, more)


@given(rates, counts, counts)
@settings(max_examples=60, deadline=None)
def test_bounds_hold_in_the_example(rate: float, steps: int, others: int) -> None:
    fewer, more = sorted((steps, others))
    rounding = 1e-8
    distance = abs(theory.example_minimiser(rate, steps) - 1 / MEAN)
    assert distance <= theory.surrogate_bound(EXAMPLE, rate, steps) + rounding
    shift = abs(theory.example_minimiser(rate, fewer) - theory.example_minimiser(rate, more))
    tight, loose = theory.shift_bound(EXAMPLE, rate, fewer, more), theory.simple_shift_bound(EXAMPLE, fewer, more)
    assert shift <= tight + rounding
    assert tight <= loose + rounding


def test_theorem_2() -> None:
    clients = Quadratics(convexity=1, smoothness=2, minimiser_std=0.5)
    assert theory.hyperbolic_offset(clients) == 12
    assert [theory.hyperbolic_steps(39, 12, round) for round in (1, 14, 27, 100)] == [3, 1.5, 1, 1]
    # mu = 2 at rate 1/4 and K = 2: phi = 3; 3/3/(12 + 4)
    assert theory.hyperbolic_server_rate(2, 0.25, 2, 12, 4) == pytest.approx(1 / 16)
    assert theory.largest_rate(2, 10) == pytest.approx(log(2) / 20)
    # the start: 13*4 = 52 is above 36*1/10; (2*52 + 16*(0.5*2*3)^2)/(12 + 8)
    bound = theory.hyperbolic_bound(clients, 3, 8, gradient_std=1, samples=10, start=2)
    assert bound == pytest.approx((104 + 144) / 20)
    # the noise: 36*4/2 = 72 is above 13*1
    bound = theory.hyperbolic_bound(clients, 3, 8, gradient_std=2, samples=2, start=1)
    assert bound == pytest.approx((144 + 144) / 20)


def test_theorem_2_holds_for_equal_noisy_clients_but_not_as_printed() -> None:
    # Clients with the loss x^2/2 and gradients of variance 1: the error is known exactly from round to round.
    clients, start_steps = Quadratics(convexity=1, smoothness=1, minimiser_std=0), 200
    offset, rate = theory.hyperbolic_offset(clients), theory.largest_rate(1, start_steps)
    error, ratios = 0.0, []
    for round in range(1, 3000):
        steps = int(theory.hyperbolic_steps(start_steps, offset, round))
        server_rate = theory.hyperbolic_server_rate(1, rate, steps, offset, round)
        noise = sum((1 - rate) ** (2 * k) for k in range(steps))  # of the sum of K gradients
        error = (1 - server_rate * theory.phi(1, rate, steps)) ** 2 * error + server_rate**2 * noise
        bound = theory.hyperbolic_bound(clients, start_steps, round + 1, gradient_std=1, samples=1, start=0)
        ratios.append(error / bound)
    assert max(ratios) < 1
    assert max(ratios) > 1 / start_steps  # the bound with nu divided by K0 would be violated


LANDSCAPE = Landscape(
    convexity=1, smoothness=2, first_loss=8, least_loss=4, gradient_bound=2, noise=3, heterogeneity=0.5
)


def test_theorem_5_1() -> None:
    # kappa = 2, gap = 2*8 - 4 = 12. K = 4, 2: T = 6, (64 + 8)/6 = 12; N = 4: 8 + 1 = 9
    # 2*2*12/(0.125*6) = 64; 0.125*2*2*(3 + 6*2*0.5 + 9*4*12) = 0.5*441
    assert theory.convergence_bound(LANDSCAPE, 0.125, [4, 2], 4) == pytest.approx(64 + 220.5)


def test_theorem_5_1_requires_non_increasing_steps() -> None:
    with pytest.raises(ValueError, match="must not increase"):
        theory.convergence_bound(LANDSCAPE, 0.125, [2, 3], 4)


def test_the_bound_in_time_equals_that_in_steps() -> None:
    # rounds of 3 + 2*1.5 = 6 seconds: 60 seconds are 10 rounds
    in_time = theory.runtime_bound(LANDSCAPE, Link(3, 1.5), 0.1, 2, 4, 60)
    assert in_time == pytest.approx(theory.convergence_bound(LANDSCAPE, 0.1, [2] * 10, 4))


def test_optimal_steps() -> None:
    # 12*6 = 72 over 8*0.25*2*(1 + 1/4)*4 = 20, over W = 0.45: 8
    assert theory.optimal_steps(LANDSCAPE, Link(6, 1), 0.5, 2, 0.45) == pytest.approx(2)


def test_optimal_rate() -> None:
    # Z = 3 + 6 + (8 + 2)*4*4 = 169; 2*12*(6 + 2)/(2*169*W*2) = 192/(676*W) at W = 48 is (1/13)^2
    assert theory.optimal_rate(LANDSCAPE, Link(6, 1), 2, 2, 48) == pytest.approx(1 / 13)


@given(
    st.floats(0.01, 1e5),
    st.integers(1, 100),
    st.floats(0.001, 0.125),
    st.floats(0.1, 10),
    st.floats(0, 2),
    st.floats(0.5, 0.99) | st.floats(1.01, 2),
)
@settings(max_examples=60, deadline=None)
def test_optimal_values_minimise_the_bound(
    seconds: float, cohort: int, rate: float, communication_s: float, seconds_per_step: float, factor: float
) -> None:
    link = Link(communication_s, seconds_per_step)

    def bound(rate: float, steps: float) -> float:
        return theory.runtime_bound(LANDSCAPE, link, rate, steps, cohort, seconds)

    best = theory.optimal_steps(LANDSCAPE, link, rate, cohort, seconds)
    assert bound(rate, best) < bound(rate, best * factor)
    best = theory.optimal_rate(LANDSCAPE, link, 7, cohort, seconds)
    assert bound(best, 7) < bound(best * factor, 7)


def fedgbo(rounds: int, rate: float, beta: float = 0.5) -> float:
    return theory.fedgbo_bound(
        rounds,
        rate,
        2,
        beta,
        gap=10,
        smoothness=1,
        gradient_bound=2,
        client_std=1,
        sample_std=sqrt(2),
        optimiser_bound=1 / 3,
    )


def test_theorem_6_1() -> None:
    # eta~ = 0.5, T~ = 11 - 1 = 10, Y = 18/9*(4 + 1 + 2/2) = 12, eta~^2*Y = 3
    # 2*0.5/(0.5*10)*10 = 2; 11*3/10 = 3.3; 2*11*0.5*1.5*(4 + 3)/(10*0.25) = 46.2
    assert fedgbo(11, 0.25) == pytest.approx(51.5)


def test_theorem_6_1_needs_rounds() -> None:
    with pytest.raises(ValueError, match=r"rounds must be above 1/\(1 - beta\) = 2, got 2"):
        fedgbo(2, 0.25)


def test_corollary_6_1_is_theorem_6_1_after_many_rounds() -> None:
    # eta~ = (1 - beta)*2C/root(T), C = 1: gap/(C*root(T)) + 4*C*L*(1+beta)*(R^2 + Z/T)/((1-beta)*root(T)) + Z/T
    rounds, beta = 10**8, 0.5
    z = 4 * (1 - beta) ** 2 * 12
    expected = 10 / 10**4 + 4 * (1 + beta) * (4 + z / rounds) / ((1 - beta) * 10**4) + z / rounds
    assert fedgbo(rounds, (1 - beta) / 10**4) == pytest.approx(expected, rel=1e-6)


def test_more_local_steps_end_further_from_the_minimiser() -> None:
    ends = [theory.example_minimiser(0.1, steps) for steps in range(1, 30)]
    assert all(earlier < later for earlier, later in pairwise(ends))
