from typing import Any

import pytest

from fedge.core.errors import ConfigError
from fedge.schedules import Amounts
from schedules.scheduling import amounts, plan

CONSTANTS = {
    "name": "optimal",
    "smoothness": 2,
    "convexity": 1,
    "first_loss": 8,
    "least_loss": 4,
    "gradient_bound": 2,
    "communication_s": 3,
}


def test_hyperbolic_steps() -> None:
    found = amounts(plan(local_steps={"name": "hyperbolic", "b": 3}), (1, 2, 4, 17, 18, 100), Amounts(40, 0.1))
    assert [each.work for each in found] == [10, 8, 6, 2, 2, 1]  # 40/4, 40/5, 40/7 = 5.7, 40/20, 40/21, 40/103


def test_hyperbolic_server_rate() -> None:
    found = amounts(plan(server_learning_rate={"name": "hyperbolic", "b": 3}), (1, 5), Amounts(10, 0.1, 2))
    assert [each.server_rate for each in found] == [0.5, 0.25]


def test_with_mu_the_server_rate_is_that_of_theorem_2() -> None:
    table = plan(
        local_steps={"name": "hyperbolic", "b": 3}, server_learning_rate={"name": "hyperbolic", "b": 3, "mu": 2}
    )
    first, last = amounts(table, (1, 9), Amounts(8, 0.25, 1))
    # round 1: K = 2, phi = (1 - 0.5^2)/0.25 = 3, 3/3/4; round 9: K = 1, phi = 2, 3/2/12
    assert first == Amounts(2, 0.25, pytest.approx(0.25, rel=1e-12))
    assert last == Amounts(1, 0.25, pytest.approx(0.125, rel=1e-12))


def test_theorem_2_requires_a_small_rate() -> None:
    table = plan(server_learning_rate={"name": "hyperbolic", "b": 3, "mu": 2})
    with pytest.raises(ConfigError, match=r"learning_rate below 1/mu = 0\.5, got 0\.5"):
        table.check(Amounts(8, 0.5, 1))
    table.check(Amounts(8, 0.49, 1))


def test_optimal_steps_decay_with_the_cube_root_of_simulated_time() -> None:
    # (2*8 - 4)*3 = 36 over 8*(0.125)^2*2*(1 + 1/(2*2))*2^2 = 1.25: 28.8/W
    table = plan(local_steps=CONSTANTS)
    base = Amounts(10, 0.125)
    works = [amounts(table, [2], base, cohort=2, sim_seconds=w)[0].work for w in (0, 0.001, 0.45, 3.6, 28.8, 1000)]
    assert works == [10, 10, 4, 2, 1, 1]  # none yet; 30.7, above K0; 64, 8, 1 and 0.03 of which the third root


def test_optimal_rate_decays_with_the_square_root_of_simulated_time() -> None:
    # Z = 6*2*0.5 + 2 + (8 + 4/2)*4*K^2 = 8 + 40*4 = 168 at K = 2; round of 3 + 2*1.5 = 6 s
    # eta^2 = 2*12*6/(2*168*W*2) = 144/(672*W) = 3/(14*W)
    table = plan(learning_rate={**CONSTANTS, "noise": 2, "heterogeneity": 0.5, "seconds_per_step": 1.5})
    base = Amounts(2, 0.1)
    rates = [amounts(table, [2], base, cohort=2, sim_seconds=w)[0].rate for w in (0, 1, 150, 600)]
    assert rates == pytest.approx([0.1, 0.1, (1 / 700) ** 0.5, (1 / 2800) ** 0.5], rel=1e-12)


def test_optimal_rate_is_at_most_what_the_theorem_allows() -> None:
    table = plan(learning_rate=CONSTANTS)
    found = [amounts(table, [1], Amounts(2, 5.0), sim_seconds=w)[0].rate for w in (0, 1e-6)]
    assert found == [0.125, 0.125]  # 1/(4*2)


def test_with_both_optimal_steps_are_determined_first() -> None:
    found = amounts(
        plan(local_steps=CONSTANTS, learning_rate=CONSTANTS), [2], Amounts(10, 0.125), cohort=2, sim_seconds=3.6
    )
    # K = 2 as above; Z = 40*4, eta^2 = 2*12*3/(2*160*3.6*2) = 1/32, which is above 1/64
    assert found == [Amounts(2, 0.125)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"convexity": 3}, r"convexity must be at most smoothness \(2\), got 3"),
        ({"least_loss": 8}, r"least_loss must be below first_loss \(8\), got 8"),
    ],
)
def test_inconsistent_constants_are_rejected(change: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^schedule\.local_steps: {message}$"):
        plan(local_steps=CONSTANTS | change)


@pytest.mark.parametrize(
    "table",
    [
        {"local_steps": CONSTANTS},
        {"learning_rate": CONSTANTS},
        {"server_learning_rate": {"name": "hyperbolic", "b": 3, "mu": 1}},
    ],
)
def test_formulas_in_steps_reject_epochs(table: dict[str, Any]) -> None:
    (quantity,) = table
    with pytest.raises(ConfigError, match=rf"^schedule\.{quantity}: .* minibatch steps.*set algorithm\.local_steps"):
        plan(**table).check(Amounts(5, 0.1, 1.0, epochs=True))
    plan(**table).check(Amounts(5, 0.1, 1.0))
