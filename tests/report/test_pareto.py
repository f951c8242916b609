import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.report.pareto import pareto_front


def test_two_costs() -> None:
    assert pareto_front([(1, 4), (2, 2), (3, 3), (4, 1), (4, 2)]) == [0, 1, 3]


def test_three_costs() -> None:
    assert pareto_front([(1, 1, 2), (1, 2, 1), (2, 2, 2)]) == [0, 1]


def test_equal_points_do_not_dominate_each_other() -> None:
    assert pareto_front([(1, 1), (1, 1), (1, 2)]) == [0, 1]


def test_points_of_different_dimensions_are_refused() -> None:
    assert pareto_front([]) == []
    with pytest.raises(ValueError, match=r"\[1, 2\]"):
        pareto_front([(1,), (1, 2)])


@settings(max_examples=50)
@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=12))
def test_every_other_point_is_dominated_by_one_on_the_front(points) -> None:
    front = pareto_front(points)
    assert front
    for i, point in enumerate(points):
        beaten = any(points[j] != point and all(a <= b for a, b in zip(points[j], point, strict=True)) for j in front)
        assert beaten == (i not in front)
