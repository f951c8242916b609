"""Private state of clients is stored only if their answers are accepted."""

import pytest
import torch

from fedge.client.private_state import HeldState
from fedge.core.layout import Tree
from fedge.runs.kept import KeptStore


def state(value: float) -> Tree:
    return {"c": torch.tensor([value])}


@pytest.fixture
def kept() -> KeptStore:
    return KeptStore(state(0), None)


def test_nothing_is_written_before_acceptance(kept: KeptStore) -> None:
    held = HeldState(kept, at_once=False)
    for client in (1, 2, 3):
        held.write(client, state(client))
    assert [kept.read(client)["c"].item() for client in range(4)] == [0, 0, 0, 0]
    held.settle([0, 1, 3])
    assert [kept.read(client)["c"].item() for client in range(4)] == [0, 1, 0, 3]


def test_state_of_rejected_answers_is_discarded(kept: KeptStore) -> None:
    held = HeldState(kept, at_once=False)
    held.write(2, state(2))
    held.settle([])
    held.settle([2])
    assert kept.read(2)["c"].item() == 0


def test_held_state_is_a_copy(kept: KeptStore) -> None:
    held, tree = HeldState(kept, at_once=False), state(5)
    held.write(1, tree)
    tree["c"].fill_(9)
    held.settle([1])
    assert kept.read(1)["c"].item() == 5


def test_state_of_accepted_answers_is_written_at_once(kept: KeptStore) -> None:
    HeldState(kept, at_once=True).write(1, state(5))
    assert kept.read(1)["c"].item() == 5
