"""Quantities that may differ between clients."""

import numpy as np
import pytest

from fedge.edge.client_values import ClientValues, LogNormal, Normal, Quantity, UniformRange

DISTRIBUTIONS: dict[str, Quantity] = {
    "normal": Normal(mean=2, std=0.5),
    "lognormal": LogNormal(median=2, sigma=0.5),
    "uniform": UniformRange(low=1, high=3),
}


def drawn(quantity: Quantity, *clients: int, seed: int = 1, purpose: str = "edge/some") -> list[float]:
    found = ClientValues(quantity, purpose, 1000, seed).of(np.array(clients, np.int64))
    assert found.dtype == np.float64
    return found.tolist()


def test_one_number_applies_to_all() -> None:
    assert drawn(3, 5, 0, 7) == [3.0, 3.0, 3.0]
    assert drawn(0.5) == []


def test_a_list_has_one_value_per_client() -> None:
    assert drawn([10.0, 20, 30.0], 2, 0) == [30.0, 10.0]


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_draw_depends_on_seed_purpose_and_client(name: str) -> None:
    quantity = DISTRIBUTIONS[name]
    assert drawn(quantity, 3, 1) == [*drawn(quantity, 3), *drawn(quantity, 1)]  # independent of other clients
    each = {
        drawn(quantity, client, seed=seed, purpose=purpose)[0]
        for client in range(5)
        for seed in (1, 2)
        for purpose in ("edge/up_mbps", "edge/down_mbps")
    }
    assert len(each) == 20


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_draws_follow_the_distribution(name: str) -> None:
    found = np.array(drawn(DISTRIBUTIONS[name], *range(1000)))
    # medians are all 2; the standard error of the median is at most 0.05
    assert np.median(found) == pytest.approx(2, abs=0.2)
    # from the 16th to the 84th percentile: 2*0.5, 2*(exp(0.5) - exp(-0.5)) = 2.08, 0.68*2 = 1.36
    width = {"normal": 1.0, "lognormal": 2.08, "uniform": 1.36}[name]
    assert np.subtract(*np.percentile(found, [84, 16])) == pytest.approx(width, rel=0.15)
    assert found.min() > 0


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_value_stays_the_same_and_is_drawn_when_it_is_first_needed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, drawn_for = type(DISTRIBUTIONS[name]), []
    draw = kind.draw
    monkeypatch.setattr(kind, "draw", lambda self, rng: drawn_for.append(draw(self, rng)) or drawn_for[-1])
    values = ClientValues(DISTRIBUTIONS[name], "edge/some", 1_000_000, seed=1)
    assert drawn_for == []
    first = values.of(np.array([3, 7])).tolist()
    assert drawn_for == first
    assert values.of(np.array([7, 1, 3])).tolist() == [first[1], drawn_for[2], first[0]]
    assert len(drawn_for) == 3  # client 1 alone was new


def test_a_normal_draw_is_cut_off_above_zero() -> None:
    assert min(drawn(Normal(mean=2, std=100), *range(50))) == pytest.approx(0.02)  # a hundredth of the mean


def test_bounds_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ValueError, match=r"high must be at least low \(3\), got 1"):
        UniformRange(low=3, high=1)
