from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.keys import generator, key, shared_generator, torch_seed

NUMBERS = st.integers(0, 20)
DRAWS = st.tuples(NUMBERS, st.sampled_from(["batches", "batches/torch", "model"]), NUMBERS, NUMBERS, NUMBERS)


def test_a_key_is_the_hash_of_its_purpose() -> None:
    """The key must never change: a run resumed on another machine draws the same numbers."""
    digest = blake2b(b"7/batches/3/12/5", digest_size=16).digest()
    assert key(7, "batches", client=3, round=12, step=5) == int.from_bytes(digest, "little")


@given(DRAWS, DRAWS)
@settings(max_examples=200, deadline=None)
def test_different_draws_have_different_keys(one: tuple, other: tuple) -> None:
    assert (key(*one) == key(*other)) == (one == other)


def test_a_draw_does_not_depend_on_earlier_draws() -> None:
    generator(1, "batches", 0).random(1000)
    torch.rand(3)
    late = generator(1, "batches", 5, round=2).permutation(10)
    assert late.tolist() == generator(1, "batches", 5, round=2).permutation(10).tolist()
    assert late.tolist() != generator(1, "batches", 5, round=3).permutation(10).tolist()


def test_the_global_generators_are_unchanged() -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    before = np.random.get_state()[1].copy()
    generator(1, "batches").random(10)
    torch_seed(1, "model")
    assert torch.equal(torch.rand(1), expected)
    assert np.array_equal(np.random.get_state()[1], before)


@given(NUMBERS, NUMBERS, NUMBERS)
@settings(max_examples=50, deadline=None)
def test_torch_accepts_every_seed(seed: int, client: int, round: int) -> None:
    found = torch_seed(seed, "model", client, round)
    assert 0 <= found < 2**63
    assert torch.Generator().manual_seed(found).initial_seed() == found


@given(st.lists(DRAWS, min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_the_shared_generator_draws_the_same_as_a_new_one(draws: list[tuple]) -> None:
    """Earlier draws do not matter, although half a word is left over after an odd number of 32-bit draws."""
    for draw in draws:
        shared, fresh = shared_generator(*draw), generator(*draw)
        assert shared.permutation(7).tolist() == fresh.permutation(7).tolist()
        assert shared.random(3).tolist() == fresh.random(3).tolist()
        assert shared.integers(0, 9, 3, np.uint32).tolist() == fresh.integers(0, 9, 3, np.uint32).tolist()
        assert shared.standard_normal() == fresh.standard_normal()


def test_each_thread_has_its_own_shared_generator() -> None:
    mine = shared_generator(1, "batches")
    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(shared_generator, 1, "batches", 5).result()
    assert other is not mine
    assert mine.random() == generator(1, "batches").random()
