import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedge.core.errors import DataError
from fedge.core.keys import generator
from fedge.data.apportionment import draw_proportions, hold_out
from fedge.data.partition import (
    PARTITIONS,
    Classes,
    Dirichlet,
    Iid,
    Labels,
    Natural,
    Pachinko,
    Partition,
    Shards,
    Sorted,
    Split,
    Unbalanced,
)


def split(partition: Partition, train: np.ndarray, test: np.ndarray, num_clients: int, seed: int = 1) -> Split:
    """Return a split of samples whose coarse class is their class divided by three."""
    known = (Labels(y, {"coarse": y // 3} if y.dtype.kind == "i" else {}) for y in (train, test))
    return partition.split(*known, num_clients, generator(seed, "partition"))


def labels(seed: int, count: int, num_classes: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, num_classes, count)


partitions = st.one_of(
    st.just(Iid()),
    st.builds(Shards, per_client=st.integers(1, 4)),
    st.builds(Dirichlet, alpha=st.floats(-6, 6).map(lambda e: 10.0**e), min_size=st.integers(1, 3)),
    st.builds(Unbalanced, min_size=st.integers(1, 3)),
    st.builds(
        Pachinko,
        alpha=st.floats(-6, 6).map(lambda e: 10.0**e),
        beta=st.floats(-6, 6).map(lambda e: 10.0**e),
    ),
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
    least = getattr(partition, "min_size", 1)
    assert min(map(len, found.train)) >= least

    # Every test sample of a trained class goes to exactly one client, which has that class.
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
    # class 2. The test set has one, two and one sample of these classes, which go with the shards.
    train, test = np.array([0, 1, 2, 0, 1, 2]), np.array([2, 1, 0, 1])
    shards = {(0, 3): [2], (1, 4): [1, 3], (2, 5): [0]}
    found = split(Shards(per_client=1), train, test, 3)
    assert {tuple(own) for own in found.train} == set(shards)
    assert [list(own) for own in found.test] == [shards[tuple(own)] for own in found.train]


def test_shards_are_assigned_at_random() -> None:
    train = np.repeat(np.arange(10), 10)
    deals = {tuple(train[own[0]] for own in split(Shards(), train, train, 10, seed).train) for seed in range(5)}
    assert len(deals) == 5


def test_strided_shards_give_every_client_two_distant_classes() -> None:
    # Ten classes in twenty shards: client i has shards i and i + 10: half of class i // 2, half of the fifth after it.
    train = np.repeat(np.arange(10), 10)
    for seed in range(2):
        found = split(Shards(deal="strided"), train, train, 10, seed)
        assert [train[own].tolist() for own in found.train] == [[i // 2] * 5 + [i // 2 + 5] * 5 for i in range(10)]
        assert [own.tolist() for own in found.test] == [own.tolist() for own in found.train]


def test_class_that_is_rarer_in_the_test_set_is_cut_at_the_same_fractions() -> None:
    # Four shards of five samples: two of class 0, two of class 1. The test set has two samples of class 0 and
    # six of class 1: shards of one, one, three, three. With equal parts of two, class 1 would begin early.
    train, test = np.repeat([0, 1], 10), np.repeat([0, 1], [2, 6])
    found = split(Shards(per_client=1), train, test, 4)
    assert sorted(map(len, found.test)) == [1, 1, 3, 3]
    for own_train, own_test in zip(found.train, found.test, strict=True):
        assert set(test[own_test]) == set(train[own_train])


@pytest.mark.parametrize("partition", [Iid(), Dirichlet(alpha=1e6)])
def test_equal_clients_get_equal_test_sets(partition: Partition) -> None:
    # 100 clients with about two samples of each class, and 36 test samples of each: 3.6 for each client.
    # Rounding class by class would give some clients ten and others none.
    train, test = np.repeat(np.arange(10), 200), np.repeat(np.arange(10), 36)
    sizes = [len(own) for own in split(partition, train, test, 100).test]
    assert sum(sizes) == 360
    assert min(sizes) >= 3
    assert max(sizes) <= 5


def test_test_samples_have_training_proportions() -> None:
    train, test = np.repeat(np.arange(5), 400), np.repeat(np.arange(5), 80)
    found = split(Dirichlet(alpha=0.5), train, test, 10)
    for own_train, own_test in zip(found.train, found.test, strict=True):
        counts = np.bincount(train[own_train], minlength=5)
        assert np.all(np.abs(np.bincount(test[own_test], minlength=5) - counts / 5) < 1)


def test_dirichlet_ranges_from_single_classes_to_equal_parts() -> None:
    train = np.repeat(np.arange(10), 100)
    skewed = split(Dirichlet(alpha=1e-6), train, train, 10)
    even = split(Dirichlet(alpha=1e6), train, train, 10)
    # Each class goes to one client; only clients without a class are filled up, with a single sample.
    whole = [np.bincount(train[own], minlength=10).max() for own in skewed.train if len(own) > 1]
    assert min(whole) >= 90
    assert all(np.ptp(np.bincount(train[own], minlength=10)) <= 2 for own in even.train)


def test_samples_to_fill_up_come_from_the_largest_clients() -> None:
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


def test_split_depends_on_the_seed() -> None:
    train = labels(0, 200, 10)
    for partition in (Iid(), Shards(), Classes(), Dirichlet(), Unbalanced(), Unbalanced(sorted=True), Pachinko()):
        first, second = (split(partition, train, train, 10, seed).train for seed in (1, 2))
        assert not all(map(np.array_equal, first, second))


def test_values_can_only_be_split_iid() -> None:
    values = np.linspace(0, 1, 20)[:, None]
    found = split(Iid(), values, values[:8], 4)
    assert [len(own) for own in found.train] == [5, 5, 5, 5]
    assert [len(own) for own in found.test] == [2, 2, 2, 2]
    assert len(split(Unbalanced(), values, values[:8], 4).train) == 4
    for partition in (Shards(), Classes(), Dirichlet(), Unbalanced(sorted=True), Pachinko()):
        with pytest.raises(DataError, match=r"data\.partition\.name: .* values, not classes; use 'iid'"):
            split(partition, values, values, 4)


@pytest.mark.parametrize("kind", [kind for kind in PARTITIONS if kind is not Natural])
def test_more_clients_than_samples(kind: type[Partition]) -> None:
    with pytest.raises(DataError, match=r"data\.clients: 11 clients .* 10 training samples; at most 10"):
        split(kind(), np.arange(10), np.arange(10), 11)


def test_more_shards_than_samples() -> None:
    with pytest.raises(DataError, match=r"data\.partition\.per_client: 4 shards .* 12 .* only 10; at most 3 "):
        split(Shards(per_client=4), np.arange(10), np.arange(10), 3)


def test_too_large_min_size() -> None:
    with pytest.raises(DataError, match=r"data\.partition\.min_size: 4 samples .* 12 .* only 10; at most 3 "):
        split(Dirichlet(min_size=4), np.arange(10), np.arange(10), 3)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 6),
    st.integers(1, 30),
    st.lists(st.integers(1, 60), min_size=1, max_size=10),
    st.integers(0, 10**6),
)
def test_each_client_has_k_classes(k: int, num_clients: int, sizes: list[int], seed: int) -> None:
    parts = sum(min(size, num_clients) for size in sizes)
    assume(k <= len(sizes) <= k * num_clients <= parts)
    train = np.repeat(np.arange(len(sizes)), sizes)
    found = split(Classes(k=k), train, train, num_clients, seed)
    assert np.array_equal(np.sort(np.concatenate(found.train)), np.arange(len(train)))
    assert [len(set(train[own])) for own in found.train] == [k] * num_clients
    counts = np.stack([np.bincount(train[own], minlength=len(sizes)) for own in found.train])
    cut_into = np.count_nonzero(counts, axis=0)
    for label in range(len(sizes)):
        held = counts[counts[:, label] > 0, label]
        assert held.max() - held.min() <= 1  # a class is cut into equal parts
    # Equal numbers of parts of each class, except where a class has too few samples.
    free = [n for n, size in zip(cut_into, sizes, strict=True) if n < min(size, num_clients)]
    assert not free or cut_into.max() - min(free) <= 1


def test_classes_of_equal_size_give_clients_of_equal_size() -> None:
    # 10 clients with 2 classes each need 20 parts: two halves, of 30 samples, of each of 10 classes.
    train, test = np.repeat(np.arange(10), 60), np.repeat(np.arange(10), 6)
    found = split(Classes(k=2), train, test, 10)
    for own_train, own_test in zip(found.train, found.test, strict=True):
        held, tested = (np.bincount(side, minlength=10) for side in (train[own_train], test[own_test]))
        assert sorted(held)[-3:] == [0, 30, 30]
        assert np.array_equal(tested * 10, held)


def test_clients_have_different_pairs_of_classes() -> None:
    train = np.repeat(np.arange(10), 100)
    found = split(Classes(k=2), train, train, 50)
    assert len({tuple(np.unique(train[own])) for own in found.train}) > 15  # of 45 pairs


@pytest.mark.parametrize(
    ("k", "num_clients", "message"),
    [
        (4, 2, r"data\.partition\.k: expected at most the 3 classes of the training set, got 4"),
        (1, 2, r"2 clients with 1 classes each cannot cover all 3 classes; expected at least 2"),
        (2, 7, r"7 clients with 2 classes each need 14 parts, but the classes have samples for only 12"),
    ],
)
def test_impossible_numbers_of_classes(k: int, num_clients: int, message: str) -> None:
    with pytest.raises(DataError, match=message):
        split(Classes(k=k), np.repeat(np.arange(3), 4), np.arange(3), num_clients)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 30), st.integers(0, 200), st.integers(2, 8), st.integers(0, 10**6))
def test_sorted_clients_have_two_classes(num_clients: int, more: int, num_classes: int, seed: int) -> None:
    train = labels(seed, 3 * num_clients + more, num_classes)
    assume(len(train) - np.bincount(train).max() >= num_clients)
    found = split(Unbalanced(sorted=True), train, train[::3], num_clients, seed)
    assert np.array_equal(np.sort(np.concatenate(found.train)), np.arange(len(train)))
    assert min(len(set(train[own])) for own in found.train) >= 2


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 20), st.integers(0, 100), st.integers(2, 6), st.integers(0, 10**6))
def test_sorted_balanced_clients_have_two_classes(num_clients: int, more: int, num_classes: int, seed: int) -> None:
    train = labels(seed, 3 * num_clients + more, num_classes)
    assume(len(train) - np.bincount(train).max() >= num_clients)
    found = split(Sorted(), train, train[::3], num_clients, seed)
    assert np.array_equal(np.sort(np.concatenate(found.train)), np.arange(len(train)))
    assert min(len(set(train[own])) for own in found.train) >= 2
    sizes = [len(own) for own in found.train]
    assert max(sizes) - min(sizes) <= 1


def test_sorted_by_hand() -> None:
    """Twelve samples for three clients: 0000, 1111, 1122. A client with one class swaps with the richest in others.

    The first gives a 0 for a 1 of the second, which then has two classes too.
    """
    train = np.array([0, 1, 2, 1, 0, 1, 0, 1, 2, 1, 0, 1])
    found = split(Sorted(), train, train, 3)
    assert [np.bincount(train[own], minlength=3).tolist() for own in found.train] == [[3, 1, 0], [1, 3, 0], [0, 2, 2]]


@pytest.mark.parametrize(
    ("train", "num_clients", "message"),
    [
        (np.repeat([0, 1], [9, 3]), 4, r"data\.partition: two classes for each of 4 clients .* there are 3"),
        (np.array([0, 1, 0]), 2, r"data\.clients: .* at most 1 clients"),
        (np.array([0.5, 1.0]), 1, "'sorted' divides by class"),
    ],
)
def test_sorted_needs_enough_samples_of_classes(train: np.ndarray, num_clients: int, message: str) -> None:
    with pytest.raises(DataError, match=message):
        split(Sorted(), train, train, num_clients)


def test_adjacent_classes_go_together() -> None:
    """Six classes of ten samples for seven clients: pairs 01, 23, 45, of which one goes to three clients."""
    train = np.tile(np.arange(6), 10)
    found = split(Classes(k=2, pairs="adjacent"), train, train, 7)
    held = [np.bincount(train[own], minlength=6) for own in found.train]
    owned = sorted(tuple(np.flatnonzero(counts)) for counts in held)
    assert owned == [(0, 1)] * 3 + [(2, 3)] * 2 + [(4, 5)] * 2
    assert np.array_equal(sum(held), np.full(6, 10))
    # 10 samples are split into 4, 3 and 3 for three clients, 5 and 5 for two
    assert sorted(int(counts[0]) for counts in held) == [0, 0, 0, 0, 3, 3, 4]
    assert sorted(int(counts[5]) for counts in held) == [0, 0, 0, 0, 0, 5, 5]
    assert [tuple(np.unique(train[own])) for own in found.test] == [tuple(np.flatnonzero(counts)) for counts in held]


@pytest.mark.parametrize(
    ("train", "k", "num_clients", "message"),
    [
        (np.tile(np.arange(5), 9), 2, 5, "groups of k = 2.* got 5 classes and 5 clients"),
        (np.tile(np.arange(6), 9), 3, 7, None),
        (np.array([0, 0, 0, 1, 2, 2, 3, 3]), 2, 4, r"up to 2 samples of a class, but one has 1; lower data\.clients"),
    ],
)
def test_adjacent_classes_need_complete_groups(
    train: np.ndarray, k: int, num_clients: int, message: str | None
) -> None:
    if message is None:
        found = split(Classes(k=k, pairs="adjacent"), train, train, num_clients)
        assert {tuple(np.unique(train[own])) for own in found.train} == {(0, 1, 2), (3, 4, 5)}
        return
    with pytest.raises(DataError, match=message):
        split(Classes(k=k, pairs="adjacent"), train, train, num_clients)


def test_sorted_cuts_leave_most_clients_with_neighbouring_classes() -> None:
    # Ten clients cut ten classes at nine positions; a swap adds one sample of a class that is not a neighbour.
    train = np.repeat(np.arange(10), 100)
    found = split(Unbalanced(sorted=True), train, train, 10)
    sizes = list(map(len, found.train))
    assert max(sizes) > 2 * min(sizes)
    for own in found.train:
        counts = np.bincount(train[own], minlength=10)
        whole = np.flatnonzero(counts > 10)
        assert len(whole) == 0 or whole.max() - whole.min() == len(whole) - 1


def test_two_classes_per_client_need_enough_samples() -> None:
    with pytest.raises(DataError, match=r"data\.partition\.sorted: .* 4 clients .* there are 3; lower data\.clients"):
        split(Unbalanced(sorted=True), np.repeat([0, 1], [9, 3]), np.arange(2), 4)


def test_pachinko_gives_few_coarse_classes_and_equal_sizes() -> None:
    train = np.repeat(np.arange(30), 40)  # ten coarse classes
    found = split(Pachinko(alpha=0.01, beta=1e3), train, train, 12)
    assert [len(own) for own in found.train] == [100] * 12
    first = np.bincount(train[found.train[0]] // 3, minlength=10)
    assert first.max() >= 95  # nearly one coarse class, which has 120 samples
    fine = np.bincount(train[found.train[0]], minlength=30).reshape(10, 3)[first.argmax()]
    assert fine.min() > 20  # and all of its fine ones


def test_pachinko_needs_coarse_classes() -> None:
    plain, rng = Labels(np.arange(6) % 3), generator(1, "partition")
    with pytest.raises(DataError, match=r"'pachinko' needs a column 'coarse' of the data set, which has none"):
        Pachinko().split(plain, plain, 2, rng)
    mixed = Labels(np.arange(6) % 3, {"coarse": np.arange(6)})
    with pytest.raises(DataError, match="every class must belong to one coarse class"):
        Pachinko().split(mixed, mixed, 2, rng)


WRITERS = Labels(np.arange(7) % 2, {"writer": np.array(["b", "a", "b", "c", "b", "a", "b"])})
TESTS = Labels(np.arange(3) % 2, {"writer": np.array(["b", "d", "b"])})


def by_writer(natural: Natural, num_clients: int | None = None, seed: int = 1) -> list[list[list[int]]]:
    found = natural.split(WRITERS, TESTS, num_clients, generator(seed, "partition"))
    return [[own.tolist() for own in side] for side in found[:2]]


def test_natural_clients_are_ordered_by_key() -> None:
    assert by_writer(Natural()) == [[[1, 5], [0, 2, 4, 6], [3]], [[], [0, 2], []]]
    assert by_writer(Natural(column="writer")) == by_writer(Natural())


def test_natural_clients_can_be_fewer() -> None:
    assert by_writer(Natural(min_size=2)) == [[[1, 5], [0, 2, 4, 6]], [[], [0, 2]]]
    assert by_writer(Natural(pick="largest"), 1) == [[[0, 2, 4, 6]], [[0, 2]]]
    drawn = {tuple(map(tuple, by_writer(Natural(), 2, seed)[0])) for seed in range(20)}
    assert drawn == {((1, 5), (0, 2, 4, 6)), ((1, 5), (3,)), ((0, 2, 4, 6), (3,))}


def test_natural_needs_a_column() -> None:
    rng = generator(1, "partition")
    with pytest.raises(DataError, match=r"data\.clients: got 4 clients, but 'writer' has 3 keys"):
        by_writer(Natural(), 4)
    with pytest.raises(DataError, match=r"'natural' needs a column 'writr' .* has writer, did you mean 'writer'\?"):
        by_writer(Natural(column="writr"))
    with pytest.raises(DataError, match=r"'natural' needs a column of the data set, which has none"):
        Natural().split(Labels(np.arange(3)), Labels(np.arange(3)), None, rng)
    several = Labels(np.arange(2), {"a": np.arange(2), "b": np.arange(2)})
    with pytest.raises(DataError, match=r"data\.partition\.column: the data set has several columns, a, b"):
        Natural().split(several, several, None, rng)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), st.floats(0, 0.99))
def test_the_last_of_each_key_are_held_out(keys: list[int], fraction: float) -> None:
    train, test = hold_out(np.array(keys), fraction)
    assert sorted([*train, *test]) == list(range(len(keys)))
    for key in set(keys):
        rows = [row for row, own in enumerate(keys) if own == key]
        num_test = int(len(rows) * fraction)
        assert [row for row in test if keys[row] == key] == rows[len(rows) - num_test :]
        assert num_test < len(rows)
