import numpy as np
import pytest

from fedge.report.series import Series
from fedge.report.target_label import LabelPlace, place_label

LEFT, RIGHT, ABOVE, BELOW = False, True, False, True


def line(*means: float) -> Series:
    mean = np.array(means, np.float64)
    return Series("a", np.arange(1.0, len(means) + 1), mean, mean, mean, 1, 1, "none", mean[None], len(means))


@pytest.mark.parametrize(
    ("means", "place"),
    [
        ((0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0), (LEFT, ABOVE)),  # rises slowly: far from it at the left
        ((0.1, 0.95, *[1.0] * 18), (RIGHT, ABOVE)),  # steep at the left, then above
        ((0.82, 0.83, 0.82, 0.83, 0.4, 0.3, 0.2, 0.1, 0.1, 0.1), (LEFT, BELOW)),  # starts just above
    ],
)
def test_the_label_is_where_no_curve_crosses_it(means, place) -> None:
    assert place_label([line(*means)], 0.8, "target 80%", 270, (False, False)) == LabelPlace(*place)


def test_without_a_clear_place_the_farthest_is_chosen() -> None:
    lines = [line(*[mean] * 20) for mean in (0.0, 0.79, 0.82, 1.0)]
    assert place_label(lines, 0.8, "target 80%", 270, (False, False)) == LabelPlace(LEFT, BELOW)


def test_a_steep_start_is_wide_on_a_logarithmic_axis() -> None:
    means = (0.1, 0.95, *[1.0] * 18)
    assert place_label([line(*means)], 0.8, "target 80%", 270, (True, False)) == LabelPlace(LEFT, ABOVE)
