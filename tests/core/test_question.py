"""Evaluation questions, which clients answer with sums."""

import pytest
import torch

from fedge.core.errors import StreamError
from fedge.core.question import Question, add_up, means, read_sums, write_sums

SUMS = {"count": 3.0, "loss": 1.5, "correct": 2.0}


def test_a_question_has_plain_metadata() -> None:
    question = Question("trained", {"x": torch.ones(1)}, (1, 2), "train")
    assert question.told() == {"measure": "trained", "work": "train"}


def test_sums_add_up_and_become_means() -> None:
    found = add_up([SUMS, {"count": 1.0, "loss": 0.5, "correct": 1.0}])
    assert found == {"count": 4, "loss": 2, "correct": 3}
    assert means(found) == {"accuracy": 0.75, "loss": 0.5}
    assert means({"count": 4.0, "loss": 2.0}) == {"loss": 0.5}
    assert add_up([]) == {}


def test_sums_are_added_in_their_order() -> None:
    """Added to 1e16, a single 1 is lost, but 2 is not."""
    one, large = {"loss": 1.0}, {"loss": 1e16}
    assert add_up([large, one, one])["loss"] == 1e16
    assert add_up([one, one, large])["loss"] == 1e16 + 2


@pytest.mark.parametrize("sums", [SUMS, {"count": 1.0, "loss": 0.1}, None])
def test_sums_travel_as_numbers(sums: dict[str, float] | None) -> None:
    tree = write_sums(sums)
    assert all(value.dtype == torch.float64 and value.shape == (1,) for value in tree.values())
    assert read_sums(tree) == sums


@pytest.mark.parametrize(
    "value", [torch.ones(1), torch.ones(2, dtype=torch.float64), torch.ones((), dtype=torch.float64)]
)
def test_other_tensors_are_rejected(value: torch.Tensor) -> None:
    with pytest.raises(StreamError, match=r"expected the sum 'loss' as float64\[1\], got torch.float"):
        read_sums({"count": torch.ones(1, dtype=torch.float64), "loss": value})
