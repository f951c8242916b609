"""The benchmark of the edge model."""

import numpy as np
from benchmarks.edge import draw_transmissions, parts, run


def test_every_part_gives_a_time_for_each_client() -> None:
    for name, part in parts(50).items():
        seconds = part()
        assert seconds.shape == (50,), name
        assert np.isfinite(seconds).all(), name
        assert (seconds > 0).all(), name


def test_upload_times_match_the_rates_in_the_cell() -> None:
    # 1.8 Mbit at mean gain: 8.2 ms at 100 m (223 Mbit/s), 34 ms at the edge of the cell, 500 m (53 Mbit/s)
    assert 0.0082 < np.median(draw_transmissions(1000)) < 0.034


def test_all_parts_are_timed() -> None:
    assert run(20, repeats=1).keys() == parts(20).keys()
