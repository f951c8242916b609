import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedge.report.thinning import thin


def test_a_short_curve_is_kept_whole() -> None:
    assert thin(5, np.arange(5.0)).tolist() == [0, 1, 2, 3, 4]


def test_minimum_maximum_and_last_of_each_bucket() -> None:
    curve = np.array([5.0, 1, 9, 4, 4, 4, 8, 7])
    # two buckets: minimum 1, maximum 9, last 4; then minimum 4 (the first of them), maximum 8, last 7; and the start
    assert thin(2, curve).tolist() == [0, 1, 2, 3, 4, 6, 7]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300), st.integers(1, 40))
def test_no_extreme_is_lost(values: list[float], num_buckets: int) -> None:
    curve = np.array(values)
    kept = thin(num_buckets, curve)
    assert len(kept) <= max(num_buckets, 3 * num_buckets + 1)
    assert (kept[0], kept[-1]) == (0, len(curve) - 1)
    assert (curve[kept].min(), curve[kept].max()) == (curve.min(), curve.max())
    assert (np.diff(kept) > 0).all()
