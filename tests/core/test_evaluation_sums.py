"""A client's sums may cover at most the number of samples that it registered for the requested set."""

import numpy as np
import pytest

from fedge.core.gate import problem_of_sums
from fedge.core.registered import RegisteredClients


@pytest.mark.parametrize(("count", "held_out", "accepted"), [(9, None, True), (6, 6, True), (7, 6, False)])
def test_a_count_above_the_registered_samples_is_rejected(count: int, held_out: int | None, accepted: bool) -> None:
    """A client has 4 training and 5 test samples; it may hold out more than it trains on, or not report how many."""
    sizes = None if held_out is None else np.array([held_out])
    clients = RegisteredClients((1,), 2, "classes", np.array([4]), np.empty(0, int), np.array([5]), sizes)
    problem = problem_of_sums(clients, 0, "validation", {"count": float(count), "loss": 1.0, "correct": 1.0})
    assert (problem is None) is accepted
