from collections.abc import Callable

import pytest
import torch

from federation import Handmade
from fedge.data.clients import Samples


@pytest.fixture
def crowd() -> Callable[..., Handmade]:
    """Like `points`, for clients (b, n) with n equal samples, so that every batch has the gradient w - b."""

    def make(*clients: tuple[float, int]) -> Handmade:
        samples = [Samples(torch.ones(n, 1), torch.full((n, 1), float(b))) for b, n in clients]
        return Handmade(samples, 1, task="values")

    return make
