import pytest
import torch

from fedge.data.digits import Digits
from fedge.data.scale_hint import scale_hint


def columns(*scales: float) -> torch.Tensor:
    """Return columns with these standard deviations."""
    return torch.tensor([[-1.0], [1.0]]) * torch.tensor(scales)


def test_columns_of_very_different_scale_are_named() -> None:
    assert scale_hint(columns(1, 1e5, 1e-2), ["a", "income", "rate"]) == (
        "data: inputs have very different scales: column 'income' has standard deviation 1e+05, column 'rate' has "
        "0.01; set data.normalise = true"
    )
    assert "column 1 has standard deviation 1e+05, column 2 has 0.01" in str(scale_hint(columns(1, 1e5, 1e-2)))


def test_large_inputs_give_a_hint() -> None:
    images = torch.full((2, 3, 4, 4), 100.0)
    assert scale_hint(images) == "data: inputs are large (root mean square 100); set data.normalise = true"


@pytest.mark.parametrize(
    "x",
    [
        columns(0.02, 19),  # below the ratio, and not large
        columns(0.1, 10),
        columns(1, 0),  # a constant column has no scale
        torch.rand(5, 3, 4, 4),
        torch.arange(1000).view(10, 100),  # words
        Digits(clients=1).build(1).train(0, 1).x,
    ],
)
def test_usual_inputs_give_no_hint(x: torch.Tensor) -> None:
    assert scale_hint(x) is None
