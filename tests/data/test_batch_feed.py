import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.keys import generator
from fedge.data.batch_feed import plan, steps_per_epoch

SIZES = st.integers(1, 60)


def rng() -> np.random.Generator:
    return generator(1, "batches")


def sizes_of(steps: list[tuple[np.ndarray, ...]]) -> list[list[int]]:
    return [[len(batch) for batch in batches] for batches in steps]


def drawn(steps: list[tuple[np.ndarray, ...]]) -> list[int]:
    return [int(i) for batches in steps for batch in batches for i in batch]


# ---------------------------------------------------------------- steps


def test_number_of_steps_and_batch_size() -> None:
    assert sizes_of(plan(rng(), 7, 3, num_steps=5, num_epochs=None)) == [[3]] * 5


def test_small_client_uses_all_its_samples() -> None:
    steps = plan(rng(), 2, 20, num_steps=3, num_epochs=None)
    assert [sorted(batch.tolist()) for (batch,) in steps] == [[0, 1]] * 3


@given(SIZES, SIZES, st.integers(1, 12), st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_steps_draw_from_concatenated_permutations(n: int, b: int, k: int, batches: int) -> None:
    steps = plan(rng(), n, b, num_steps=k, num_epochs=None, batches_per_step=batches)
    assert sizes_of(steps) == [[min(n, b)] * batches] * k
    order = drawn(steps)
    for start in range(0, len(order), n):  # a batch may span two permutations
        piece = order[start : start + n]
        assert len(set(piece)) == len(piece)
        assert set(piece) <= set(range(n))


def test_batch_may_span_two_permutations() -> None:
    (first,), (second,) = plan(rng(), 3, 2, num_steps=2, num_epochs=None)
    # the first permutation is used up before the second one starts
    assert sorted([*first.tolist(), second[0]]) == [0, 1, 2]


def test_step_of_several_batches_draws_consecutive_ones() -> None:
    (first, second), (third, _) = plan(rng(), 6, 2, num_steps=2, num_epochs=None, batches_per_step=2)
    assert sorted([*first, *second, *third]) == list(range(6))


# ---------------------------------------------------------------- epochs


@given(SIZES, SIZES, st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_every_sample_once_per_epoch(n: int, b: int, epochs: int) -> None:
    steps = plan(rng(), n, b, num_steps=None, num_epochs=epochs)
    per_epoch = -(-n // min(n, b))
    assert len(steps) == epochs * per_epoch
    for epoch in range(epochs):
        assert sorted(drawn(steps[epoch * per_epoch : (epoch + 1) * per_epoch])) == list(range(n))


def test_epoch_ends_with_a_short_batch() -> None:
    assert sizes_of(plan(rng(), 7, 3, num_steps=None, num_epochs=2)) == [[3], [3], [1]] * 2


def test_epochs_are_shuffled_differently() -> None:
    steps = plan(rng(), 50, 50, num_steps=None, num_epochs=2)
    assert steps[0][0].tolist() != steps[1][0].tolist()


def test_several_batches_per_step_do_not_change_the_number_of_steps() -> None:
    # 7 samples in batches of 3 give 3 steps per epoch, each with two full batches
    steps = plan(rng(), 7, 3, num_steps=None, num_epochs=2, batches_per_step=2)
    assert sizes_of(steps) == [[3, 3]] * 6


@pytest.mark.parametrize(
    ("num_samples", "steps"),
    [(300, 15), (150, 8), (250, 13), (125, 7)],
    ids=["MNIST 200 clients", "MNIST 400", "CIFAR 200", "CIFAR 400"],
)
def test_steps_per_epoch_of_mtfl(num_samples: int, steps: int) -> None:
    assert steps_per_epoch(num_samples, 20) == steps
    assert len(plan(rng(), num_samples, 20, num_steps=None, num_epochs=1, drop_single=True)) == steps


# ---------------------------------------------------------------- single-sample last batch


def test_single_sample_last_batch_is_dropped_for_batchnorm_only() -> None:
    assert sizes_of(plan(rng(), 7, 3, num_steps=None, num_epochs=2, drop_single=True)) == [[3], [3]] * 2
    assert sizes_of(plan(rng(), 8, 3, num_steps=None, num_epochs=1, drop_single=True)) == [[3], [3], [2]]
    assert (steps_per_epoch(7, 3), steps_per_epoch(7, 3, drop_single=True)) == (3, 2)


def test_single_sample_batch_is_kept_if_it_is_the_only_one() -> None:
    assert sizes_of(plan(rng(), 1, 20, num_steps=None, num_epochs=2, drop_single=True)) == [[1], [1]]
    assert sizes_of(plan(rng(), 1, 20, num_steps=2, num_epochs=None, drop_single=True)) == [[1], [1]]
    assert sizes_of(plan(rng(), 3, 1, num_steps=None, num_epochs=1, drop_single=True)) == [[1]] * 3


# ---------------------------------------------------------------- dependencies


def test_the_plan_is_a_function_of_its_generator() -> None:
    def order(client: int) -> list[int]:
        return drawn(plan(generator(1, "batches", client), 30, 7, num_steps=4, num_epochs=None))

    assert order(3) == order(3)
    assert order(3) != order(4)


def test_steps_or_epochs_are_required() -> None:
    with pytest.raises(ValueError, match="num_steps or num_epochs"):
        plan(rng(), 3, 2, num_steps=None, num_epochs=None)
