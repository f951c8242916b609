import pytest
import torch

from fedge.core.algorithm import moved


@pytest.mark.parametrize(
    ("decay", "drift", "expected"),
    [(1.0, None, [0.5, 3.0]), (0.5, None, [0.0, 1.0]), (1.0, [1.0, -1.0], [1.5, 2.0]), (0.5, [1.0, -1.0], [1.0, 0.0])],
)
def test_an_affine_step_by_hand(decay: float, drift: list[float] | None, expected: list[float]) -> None:
    # decay*y + drift - 0.25*gradient with y = (1, 4), gradient = (2, 4)
    y = torch.tensor([1.0, 4.0])
    after = moved(y, torch.tensor([2.0, 4.0]), (decay, None if drift is None else torch.tensor(drift), 0.25))
    assert after.tolist() == expected
    assert y.tolist() == [1, 4]
