from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core import reduce
from fedge.core.reduce import Collect, Krum, Mean, Median, Reducer, TrimmedMean, average
from fedge.core.slots import Slot

SLOTS = {"y": Slot("params"), "c": Slot("params", weight="uniform")}
NAN = float("nan")


def reduced(reducer: Reducer, *uploads: tuple[Sequence[float], float]) -> list[float]:
    """Return the reduced uploads `y`, each given with its number of samples."""
    for values, samples in uploads:
        reducer.add({"y": torch.tensor(values, dtype=torch.float64)}, samples)
    return reducer.value()["y"].tolist()


# ---------------------------------------------------------------- mean


def test_the_mean_of_one_client_is_that_client_bit_for_bit() -> None:
    assert 0.1 * 3 / 3 != 0.1  # the result of sum-then-divide
    assert reduced(Mean(SLOTS), ([0.1, 1e300, -0.0], 3)) == [0.1, 1e300, -0.0]


def test_the_mean_of_equal_uploads_is_exact() -> None:
    assert reduced(Mean(SLOTS), *[([0.1], n) for n in (3, 7, 11)]) == [0.1]


def test_every_slot_is_weighted_as_declared() -> None:
    mean = Mean(SLOTS)
    for value, samples in ((0.0, 1), (4.0, 3)):
        mean.add({"y": torch.tensor([value]), "c": torch.tensor([value])}, samples)
    # by samples (1*0 + 3*4)/4, uniform (0 + 4)/2
    assert {name: value.item() for name, value in mean.value().items()} == {"y": 3.0, "c": 2.0}


def test_the_mean_keeps_the_dtype_but_adds_in_float64() -> None:
    mean = Mean(SLOTS)
    for value in (2.0**24, 1.0, 1.0, -(2.0**24)):
        mean.add({"y": torch.tensor([value], dtype=torch.float32)}, 1)
    value = mean.value()["y"]
    # (1 + 1)/4; in float32 the ones would be lost, because 2^23 + 0.5 is not a float32
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(0.5, abs=1e-6)


def test_uploads_are_not_changed() -> None:
    first = {"y": torch.tensor([1.0], dtype=torch.float64)}
    mean = Mean(SLOTS)
    mean.add(first, 1)
    mean.add({"y": torch.tensor([3.0], dtype=torch.float64)}, 1)
    assert first["y"].item() == 1.0
    assert mean.value()["y"].item() == 2.0


# ---------------------------------------------------------------- robust and collecting reducers


@pytest.mark.parametrize("kind", [Mean, Collect, Median, TrimmedMean])
def test_an_upload_without_samples_is_ignored_even_if_it_is_not_a_number(kind: type) -> None:
    ignored = {"y": torch.tensor([NAN])}
    reducer = kind(SLOTS)
    for upload, samples in ((ignored, 0), ({"y": torch.tensor([2.0])}, 5), (ignored, 0)):
        reducer.add(upload, samples)
    assert reducer.value()["y"].reshape(-1).tolist() == [2.0]


@pytest.mark.parametrize("kind", [Mean, Collect, Median, TrimmedMean])
def test_without_uploads_the_result_is_empty(kind: type) -> None:
    assert kind(SLOTS).value() == {}


def test_collect_stacks_in_the_order_of_arrival() -> None:
    assert reduced(Collect(SLOTS), ([3.0, 0.0], 1), ([1.0, 5.0], 9), ([2.0, 2.0], 4)) == [[3, 0], [1, 5], [2, 2]]


def test_median_of_an_odd_number_is_the_middle_one() -> None:
    assert reduced(Median(SLOTS), ([9.0, 1.0], 1), ([2.0, 3.0], 100), ([4.0, -7.0], 1)) == [4, 1]


def test_median_of_an_even_number_is_the_mean_of_the_middle_two() -> None:
    assert reduced(Median(SLOTS), ([9.0], 1), ([2.0], 1), ([4.0], 1), ([3.0], 1)) == [3.5]


def test_trimmed_mean_drops_both_ends_of_every_coordinate() -> None:
    uploads = [([value, -value], 1) for value in (1.0, 2.0, 6.0, 1000.0)]
    # a quarter of four is one at each end: (2 + 6)/2
    assert reduced(TrimmedMean(SLOTS, 0.25), *uploads) == [4, -4]


@pytest.mark.parametrize(("fraction", "count", "cut"), [(0.1, 9, 0), (0.1, 10, 1), (0.3, 10, 3), (0.49, 3, 1)])
def test_trimmed_mean_cuts_the_whole_part_of_its_share(fraction: float, count: int, cut: int) -> None:
    # powers of two: the mean reveals how many were trimmed
    powers = [2.0**i for i in range(count)]
    expected = sum(powers[cut : count - cut]) / (count - 2 * cut)
    assert reduced(TrimmedMean(SLOTS, fraction), *[([p], 1) for p in powers]) == [pytest.approx(expected, rel=1e-15)]


# ---------------------------------------------------------------- in parts


@pytest.mark.parametrize("make", [Median, partial(TrimmedMean, fraction=0.2), partial(Krum, fraction=0.2, keep=3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_uploads_are_reduced_in_parts_with_the_same_result(
    make: Callable[..., Reducer], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The uploads together may exceed memory, so they are reduced in parts."""
    random, count = torch.Generator().manual_seed(1), 11
    sizes = {"y": 5003, "c": 17}
    uploads = [
        {name: torch.randn(size, generator=random, dtype=dtype) for name, size in sizes.items()} for _ in range(count)
    ]

    def value() -> dict[str, torch.Tensor]:
        reducer = make(SLOTS)
        for upload in uploads:
            reducer.add(upload, 1)
        return reducer.value()

    whole, stack, stacked = value(), torch.stack, []

    def watched(rows: list[torch.Tensor]) -> torch.Tensor:
        stacked.append(len(rows) * rows[0].numel())
        return stack(rows)

    monkeypatch.setattr(reduce, "_HELD", 2048 * count)
    monkeypatch.setattr(reduce.torch, "stack", watched)
    found = value()
    assert found.keys() == whole.keys()
    assert all(torch.equal(found[name], whole[name]) for name in whole)
    assert max(stacked) == 2048 * count


def test_krum_counts_the_distances_of_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """One upload is far away in the first part, another in the last, a third in another vector."""
    monkeypatch.setattr(reduce, "_HELD", 0)  # parts of 1024
    ys, cs = torch.zeros(5, 3000), torch.zeros(5, 1)
    ys[0, 0], ys[1, 2999], cs[2, 0], cs[3, 0], cs[4, 0] = 9, 9, 9, 1, 2
    krum = Krum(SLOTS, fraction=0.2, keep=2)
    for y, c in zip(ys, cs, strict=True):
        krum.add({"y": y, "c": c}, 1)
    found = krum.value()
    assert found["c"].tolist() == [1.5]
    assert not found["y"].any()


# ---------------------------------------------------------------- mean of rows


@given(
    st.lists(
        st.tuples(st.lists(st.floats(-1e6, 1e6), min_size=5, max_size=5), st.integers(1, 1000)), min_size=1, max_size=8
    )
)
@settings(max_examples=100, deadline=None)
def test_average_is_the_mean_to_rounding(clients: list[tuple[list[float], int]]) -> None:
    rows = torch.tensor([values for values, _ in clients], dtype=torch.float64)
    found = average(rows, [weight for _, weight in clients])
    rounding = 1e-14 * float(rows.abs().max())
    assert found.tolist() == pytest.approx(reduced(Mean(SLOTS), *clients), rel=0, abs=rounding)


def test_average_by_hand() -> None:
    rows = torch.tensor([[0.0, 0.1], [4.0, 0.1]], dtype=torch.float32)
    value = average(rows, [1, 3])
    assert value.dtype == torch.float32
    assert torch.equal(value, torch.tensor([3.0, 0.1]))  # (0 + 3*4)/4, and equal rows exactly


# ---------------------------------------------------------------- Krum


def test_krum_takes_the_upload_nearest_to_its_neighbours() -> None:
    # five clients, f = 1: two neighbours each. Scores: 0: 1+4, 1: 1+1, 2: 1+4, 5: 9+16, 100: far
    uploads = [([value], 1) for value in (0.0, 1.0, 2.0, 5.0, 100.0)]
    assert reduced(Krum(SLOTS, fraction=0.2), *uploads) == [1.0]


def test_krum_may_keep_several() -> None:
    # the three lowest scores are those of 1 (2), then 0 and 2 (5 each)
    uploads = [([value], 1) for value in (100.0, 2.0, 5.0, 1.0, 0.0)]
    assert reduced(Krum(SLOTS, fraction=0.2, keep=3), *uploads) == [1.0]


def test_krum_chooses_all_slots_from_the_same_client() -> None:
    krum = Krum(SLOTS, fraction=0.2)
    for y, c in ((0.0, 9.0), (1.0, 1.0), (1.1, 1.1), (0.9, 0.9), (50.0, 1.0)):
        krum.add({"y": torch.tensor([y]), "c": torch.tensor([c])}, 1)
    found = krum.value()
    assert found["y"].item() == found["c"].item() == 1.0  # 0 is near in y, and far in c


@pytest.mark.parametrize("count", [1, 2, 3])
def test_krum_of_few_clients_is_one_of_them(count: int) -> None:
    values = [1.0, 2.0, 4.0][:count]
    assert reduced(Krum(SLOTS, fraction=0.4), *[([value], 1) for value in values])[0] in values


def test_krum_of_no_clients() -> None:
    assert Krum(SLOTS).value() == {}
