import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedge.core.errors import DataError
from fedge.core.keys import generator
from fedge.data.partition import PARTITIONS, Dirichlet, Iid, Partition, Shards, Split, draw_proportions


def split(
    partition: Partition, train: np.ndarray, test: np.ndarray, num_clients: int, seed: int = 1
) -> Split:
    return partition.split(train, test, num_clients, generator(seed, "partition"))


def labels(seed: int, count: int, num_classes: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, num_classes, count)


partitions = st.one_of(
    st.just(Iid()),
    st.builds(Shards, per_client=st.integers(1, 4)),
    st.builds(Dirichlet, alpha=st.floats(-6, 6).map(lambda e: 10.0**e), min_size=st.integers(1, 3)),
)
cases = st.tuples(
    partitions,
    st.integers(1, 40),  # clients
    st.integers(0, 300),  # training samples beyond four for each client
    st.integers(0, 120),  # test samples
    st.integers(1, 12),  # classes
    st.integers(0, 10**6),  # seed
)


@settings(max_examples=150, deadline=None)
@given(cases)
def test_every_training_sample_once_and_no_empty_client(
    case: tuple[Partition, int, int, int, int, int],
) -> None:
    partition, num_clients, more, num_test, num_classes, seed = case
    train, test = labels(seed, 4 * num_clients + more, num_classes), labels(seed + 1, num_test, num_classes)
    found = split(partition, train, test, num_clients, seed)

    assert len(found.train) == len(found.test) == num_clients
    assert np.array_equal(np.sort(np.concatenate(found.train)), np.arange(len(train)))
    least = partition.min_size if isinstance(partition, Dirichlet) else 1
    assert min(map(len, found.train)) >= least

    # Every test sample of a class that somebody trains on goes to exactly one client, which has that class.
    dealt = np.sort(np.concatenate(found.test))
    assert np.array_equal(dealt, np.flatnonzero(np.isin(test, train)))
    for own_train, own_test in zip(found.train, found.test, strict=True):
        assert set(test[own_test]) <= set(train[own_train])

    again = split(partition, train, test, num_clients, seed)
    assert all(map(np.array_equal, found.train + found.test, again.train + again.test))


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 50), st.integers(0, 500), st.integers(0, 10**6))
def test_iid_sizes_differ_by_at_most_one(num_clients: int, more: int, seed: int) -> None:
    found = split(Iid(), labels(seed, num_clients + more, 10), labels(seed, 70, 10), num_clients, seed)
    sizes = list(map(len, found.train))
    assert max(sizes) - min(sizes) <= 1


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 4), st.integers(1, 30), st.integers(1, 15), st.integers(0, 10**6))
def test_shards_have_few_classes(per_client: int, num_clients: int, num_classes: int, seed: int) -> None:
    num_shards = per_client * num_clients
    train = np.repeat(np.arange(num_classes), 60)
    assume(num_classes <= num_shards <= len(train))
    found = split(Shards(per_client=per_client), train, train[::6], num_clients, seed)
    for own_train in found.train:
        # A shard no longer than a class touches at most two.
        assert len(set(train[own_train])) <= 2 * per_client
        assert abs(len(own_train) - len(train) / num_clients) <= per_client


def test_shards_by_hand() -> None:
    # Sorted by class, six training samples make three shards: {0, 3} of class 0, {1, 4} of class 1, {2, 5} of
    # class 2. The test set has one, two and one sample of them, whole classes going with their shards.
    train, test = np.array([0, 1, 2, 0, 1, 2]), np.array([2, 1, 0, 1])
    shards = {(0, 3): [2], (1, 4): [1, 3], (2, 5): [0]}
    found = split(Shards(per_client=1), train, test, 3)
    assert {tuple(own) for own in found.train} == set(shards)
    assert [list(own) for own in found.test] == [shards[tuple(own)] for own in found.train]


def test_shards_are_dealt_at_random() -> None:
    train = np.repeat(np.arange(10), 10)
    deals = {
        tuple(train[own[0]] for own in split(Shards(), train, train, 10, seed).train) for seed in range(5)
    }
    assert len(deals) == 5


def test_a_class_that_is_rarer_in_the_test_set_is_cut_at_the_same_places() -> None:
    # Four shards of five samples: two of class 0, two of class 1. The test set has two samples of class 0 and
    # six of class 1: shards of one, one, three, three. With equal parts of two, class 1 would begin early.
    train, test = np.repeat([0, 1], 10), np.repeat([0, 1], [2, 6])
    found = split(Shards(per_client=1), train, test, 4)
    assert sorted(map(len, found.test)) == [1, 1, 3, 3]
    for own_train, own_test in zip(found.train, found.test, strict=True):
        assert set(test[own_test]) == set(train[own_train])


@pytest.mark.parametrize("partition", [Iid(), Dirichlet(alpha=1e6)])
def test_even_clients_are_tested_evenly(partition: Partition) -> None:
    # 100 clients with about two samples of each class, and 36 test samples of each: 3.6 for each client.
    # Rounding class by class would give some clients ten and others none.
    train, test = np.repeat(np.arange(10), 200), np.repeat(np.arange(10), 36)
    sizes = [len(own) for own in split(partition, train, test, 100).test]
    assert sum(sizes) == 360
    assert min(sizes) >= 3
    assert max(sizes) <= 5


def test_test_samples_are_dealt_in_training_proportions() -> None:
    train, test = np.repeat(np.arange(5), 400), np.repeat(np.arange(5), 80)
    found = split(Dirichlet(alpha=0.5), train, test, 10)
    for own_train, own_test in zip(found.train, found.test, strict=True):
        counts = np.bincount(train[own_train], minlength=5)
        assert np.all(np.abs(np.bincount(test[own_test], minlength=5) - counts / 5) < 1)


def test_dirichlet_goes_from_one_class_each_to_equal_parts() -> None:
    train = np.repeat(np.arange(10), 100)
    skewed = split(Dirichlet(alpha=1e-6), train, train, 10)
    even = split(Dirichlet(alpha=1e6), train, train, 10)
    # All of a class goes to one client; only a client that got no class is filled up, with a single sample.
    whole = [np.bincount(train[own], minlength=10).max() for own in skewed.train if len(own) > 1]
    assert min(whole) >= 90
    assert all(np.ptp(np.bincount(train[own], minlength=10)) <= 2 for own in even.train)


def test_filling_up_takes_from_the_largest() -> None:
    # Two classes of 15, each with one client. If these are two clients, filling the others up to 7 takes 7
    # from each; if it is one client with all 30, it takes 3 * 7 from that.
    train, test = np.repeat([0, 1], 15), np.zeros(0, int)
    splits = [split(Dirichlet(alpha=1e-6, min_size=7), train, test, 4, seed) for seed in range(20)]
    assert {tuple(sorted(map(len, found.train))) for found in splits} == {(7, 7, 8, 8), (7, 7, 7, 9)}


@settings(max_examples=100, deadline=None)
@given(st.floats(-6, 6).map(lambda e: 10.0**e), st.integers(1, 1000), st.integers(0, 10**6))
def test_proportions_are_never_nan(alpha: float, size: int, seed: int) -> None:
    proportions = draw_proportions(alpha, size, generator(seed, "test"))
    assert np.all(proportions >= 0)
    assert proportions.sum() == pytest.approx(1)


@pytest.mark.parametrize("alpha", [0.1, 1.0, 10.0])
def test_proportions_have_the_moments_of_a_dirichlet_distribution(alpha: float) -> None:
    # Mean 1/k and variance (1/k)(1 - 1/k) / (k alpha + 1), here for k = 4.
    draws = np.stack([draw_proportions(alpha, 4, generator(seed, "test")) for seed in range(3000)])
    variance = 0.25 * 0.75 / (4 * alpha + 1)
    assert draws.mean(0) == pytest.approx(np.full(4, 0.25), abs=5 * np.sqrt(variance / 3000))
    assert draws.var(0) == pytest.approx(np.full(4, variance), rel=0.15)


def test_seeds_differ() -> None:
    train = labels(0, 200, 10)
    for partition in (Iid(), Shards(), Dirichlet()):
        first, second = (split(partition, train, train, 10, seed).train for seed in (1, 2))
        assert not all(map(np.array_equal, first, second))


def test_values_can_only_be_split_iid() -> None:
    values = np.linspace(0, 1, 20)[:, None]
    found = split(Iid(), values, values[:8], 4)
    assert [len(own) for own in found.train] == [5, 5, 5, 5]
    assert [len(own) for own in found.test] == [2, 2, 2, 2]
    for partition in (Shards(), Dirichlet()):
        with pytest.raises(DataError, match=r"data\.partition\.name: .* values, not classes; use 'iid'"):
            split(partition, values, values, 4)


@pytest.mark.parametrize("kind", PARTITIONS)
def test_more_clients_than_samples(kind: type[Partition]) -> None:
    with pytest.raises(DataError, match=r"data\.clients: 11 clients .* 10 training samples; at most 10"):
        split(kind(), np.arange(10), np.arange(10), 11)


def test_more_shards_than_samples() -> None:
    with pytest.raises(
        DataError, match=r"data\.partition\.per_client: 4 shards .* 12, .* only 10 .* at most 3 "
    ):
        split(Shards(per_client=4), np.arange(10), np.arange(10), 3)


def test_a_min_size_that_is_too_large() -> None:
    with pytest.raises(
        DataError, match=r"data\.partition\.min_size: 4 samples .* 12, .* only 10 .* at most 3 "
    ):
        split(Dirichlet(min_size=4), np.arange(10), np.arange(10), 3)
