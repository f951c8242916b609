import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.errors import ConfigError, DataError
from fedge.core.keys import generator
from fedge.core.schema import read
from fedge.data.augment import Augment
from fedge.data.clients import Samples
from fedge.data.divided_dataset import Divided, DividedClients, Noise
from fedge.data.drift import Arriving, DriftOptions, FeatureShift, LabelShift, rotate
from fedge.data.partition import Natural
from fedge.data.whole import Whole

SIZES = (6, 1, 9)
USERS = np.repeat(np.arange(3), SIZES)
KINDS = (Arriving(start=0.3, until=6), LabelShift(until=6), FeatureShift(std=2.0, fraction=0.5, until=6))
seeds, rounds = st.integers(0, 99), st.integers(1, 12)


def make(drift: DriftOptions | None = None, seed: int = 1, **options: Any) -> DividedClients:
    """Three clients with 6, 1 and 9 samples; inputs and classes identify the client, inputs the sample."""
    x = torch.stack([torch.arange(16.0), torch.from_numpy(USERS) * 1.0], 1)
    pool = Samples(x, torch.from_numpy(USERS))
    whole = Whole(pool, pool, num_outputs=3, columns={"user": (USERS, USERS)})
    return Divided(partition=Natural(), drift=drift, **options).divide(whole, seed)


def images(drift: DriftOptions, **options: Any) -> DividedClients:
    """Two clients with four images of 2x3x3 each."""
    x, y = torch.arange(1.0, 8 * 18 + 1).view(8, 2, 3, 3), torch.arange(8) % 2
    return Divided(clients=2, drift=drift, **options).divide(Whole(Samples(x, y), Samples(x, y), num_outputs=2), 1)


def rows(samples: Samples) -> list[int]:
    return [int(number) for number in samples.x[:, 0]]


# Arriving samples


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 1), st.integers(2, 10), st.integers(1, 40))
def test_samples_arrive_at_a_constant_rate(start: float, until: int, size: int) -> None:
    drift = Arriving(start=start, until=until)
    counts = [drift.num_samples(size, r) for r in range(1, 13)]
    assert counts[0] == max(1, math.floor(start * size + 0.5))
    assert counts[until - 1 :] == [size] * (13 - until)
    arrivals = np.diff(counts[:until])
    assert arrivals.min() >= 0
    assert arrivals.max() - arrivals.min() <= 1


def test_a_quarter_first_and_two_more_each_round() -> None:
    drift = Arriving(start=0.25, until=4)
    assert [drift.num_samples(8, round) for round in range(1, 6)] == [2, 4, 6, 8, 8]
    assert [Arriving(start=0, until=3).num_samples(5, round) for round in (1, 2, 3)] == [1, 3, 5]


@settings(max_examples=40, deadline=None)
@given(st.floats(0, 1), rounds, seeds)
def test_arrived_samples_keep_their_position(start: float, round: int, seed: int) -> None:
    clients = make(Arriving(start=start, until=7), seed)
    assert clients.sizes.tolist() == list(SIZES)
    for client, whole in enumerate(make().train(c, 1) for c in range(3)):
        now, later = clients.train(client, round), clients.train(client, round + 1)
        assert len(now) == clients.num_samples(client, round)
        assert rows(later)[: len(now)] == rows(now)
        assert now.x[:, 1].tolist() == now.y.tolist() == [client] * len(now)
        assert sorted(rows(clients.train(client, 7))) == rows(whole)  # none is lost or duplicated


def test_arrival_order_differs_by_client() -> None:
    drift = Arriving(start=0.5, until=5)
    order = generator(1, "arrival", 2).permutation(9)
    assert rows(make(drift).train(2, 5)) == (7 + order).tolist()
    assert rows(make(drift, seed=2).train(2, 5)) != rows(make(drift).train(2, 5))


def test_noise_on_arrived_samples_does_not_change() -> None:
    clients = make(Arriving(start=0.2, until=4), noise=Noise(fraction=1.0, std=0.1))
    first, last = clients.train(2, 1).x, clients.train(2, 4).x
    assert len(first) == 2
    assert torch.equal(last[:2], first)


def test_test_set_is_complete_from_the_start() -> None:
    assert torch.equal(make(KINDS[0]).test(2, 1).x, make().test(2, 1).x)


# Label shift


def test_partners_form_a_cycle() -> None:
    clients = make(LabelShift(until=2))
    partners = [set(clients.train(client, 2).y.tolist()) for client in range(3)]
    assert sorted(partners, key=min) == [{0}, {1}, {2}]
    assert all(client not in partner for client, partner in enumerate(partners))


@settings(max_examples=40, deadline=None)
@given(st.floats(0.01, 1), rounds, seeds, st.sampled_from(["train", "test"]))
def test_share_of_the_partner_grows(strength: float, round: int, seed: int, part: str) -> None:
    drifting, steady = make(LabelShift(strength=strength, until=5), seed), make()
    partners = [int(make(LabelShift(until=2), seed).train(client, 2).y[0]) for client in range(3)]
    for client, size in enumerate(SIZES):
        own = rows(getattr(steady, part)(client, 1))
        now, later = (getattr(drifting, part)(client, r) for r in (round, round + 1))
        assert len(now) == size
        replaced = now.y != client
        assert int(replaced.sum()) == math.floor(strength * min(1, (round - 1) / 4) * size + 0.5)
        assert set(now.y[replaced].tolist()) <= {partners[client]}
        assert [row for row, new in zip(rows(now), replaced, strict=True) if not new] == [
            row for row, new in zip(own, replaced, strict=True) if not new
        ]
        assert torch.equal(later.x[replaced], now.x[replaced])  # replaced samples stay replaced


def test_half_of_the_samples_halfway_and_all_at_the_end() -> None:
    clients = make(LabelShift(until=3))
    assert [[int((clients.train(c, r).y != c).sum()) for r in (1, 2, 3, 4)] for c in range(3)] == [
        [0, 3, 6, 6],
        [0, 1, 1, 1],
        [0, 5, 9, 9],
    ]
    assert torch.equal(clients.pooled_test().x, make().pooled_test().x)


def test_partner_samples_are_used_once_if_there_are_enough() -> None:
    clients = make(LabelShift(until=2))
    for client, size in enumerate(SIZES):
        lent = clients.train(client, 2)
        assert len(set(rows(lent))) == min(size, SIZES[int(lent.y[0])])


def test_client_whose_partner_has_no_test_set_keeps_its_own() -> None:
    x, users = torch.arange(4.0)[:, None], np.array([0, 0, 1, 1])
    y = torch.from_numpy(users)
    whole = Whole(Samples(x, y), Samples(x[:2], y[:2]), num_outputs=2, columns={"user": (users, users[:2])})
    clients = Divided(partition=Natural(), drift=LabelShift(until=2)).divide(whole, 1)
    assert [sorted(rows(clients.train(client, 2))) for client in range(2)] == [[2, 3], [0, 1]]
    assert [rows(clients.test(client, 2)) for client in range(2)] == [[0, 1], []]


def test_several_labels_shift_too() -> None:
    x, users = torch.arange(4.0)[:, None], np.array([0, 0, 1, 1])
    y = torch.eye(2)[users]
    whole = Whole(Samples(x, y), Samples(x, y), num_outputs=2, task="labels", columns={"user": (users, users)})
    clients = Divided(partition=Natural(), drift=LabelShift(until=2)).divide(whole, 1)
    assert clients.train(0, 1).y.tolist() == [[1, 0], [1, 0]]
    assert clients.train(0, 2).y.tolist() == [[0, 1], [0, 1]]


# Feature shift


@settings(max_examples=30, deadline=None)
@given(st.floats(0.1, 5), rounds, seeds)
def test_offset_grows(std: float, round: int, seed: int) -> None:
    drifting, steady = make(FeatureShift(std=std, until=5), seed), make()
    for client in range(3):
        drawn = torch.from_numpy(generator(seed, "feature shift", client).standard_normal(2, dtype=np.float32))
        expected = std * min(1, (round - 1) / 4) * drawn
        for part in ("train", "test"):
            shifted, before = getattr(drifting, part)(client, round), getattr(steady, part)(client, 1)
            assert torch.allclose(shifted.x - before.x, expected.expand_as(before.x), atol=1e-5)
            assert torch.equal(shifted.y, before.y)
    assert torch.equal(drifting.pooled_test().x, steady.pooled_test().x)


@pytest.mark.parametrize(("fraction", "count"), [(0.0, 0), (0.3, 1), (0.5, 2), (1.0, 3)])
def test_number_of_shifting_clients_is_rounded(fraction: float, count: int) -> None:
    drifting, steady = make(FeatureShift(std=1.0, fraction=fraction, until=2)), make()
    for part in ("train", "test"):
        same = [torch.equal(getattr(drifting, part)(c, 2).x, getattr(steady, part)(c, 1).x) for c in range(3)]
        assert same.count(False) == count


def test_images_shift_by_channel() -> None:
    change = images(FeatureShift(std=1.0, until=2)).train(0, 2).x - images(FeatureShift(std=1.0, until=2)).train(0, 1).x
    assert torch.allclose(change, change[:1, :, :1, :1].expand_as(change), atol=1e-4)
    assert float((change[0, 0, 0, 0] - change[0, 1, 0, 0]).abs()) > 0.01


def test_images_rotate_counter_clockwise() -> None:
    # A third and two thirds of 270 degrees are one and two quarter turns.
    clients = images(FeatureShift(degrees=270.0, until=4))
    for part in ("train", "test"):
        upright = getattr(clients, part)(1, 1).x
        for turns in (1, 2, 3):
            turned = getattr(clients, part)(1, 1 + turns).x
            assert torch.allclose(turned, torch.rot90(upright, turns, (2, 3)), rtol=1e-4, atol=1e-3)


def test_oblong_images_are_not_stretched() -> None:
    # Rotated by a right angle about its centre, a 2x4 image keeps its rotated middle 2x2; the rest leaves the frame.
    turned = rotate(torch.arange(1.0, 9.0).view(1, 1, 2, 4), 90)
    assert torch.allclose(turned[0, 0], torch.tensor([[0, 3, 7, 0], [0, 2, 6, 0.0]]), atol=1e-4)


def test_empty_batch_can_be_rotated() -> None:
    assert rotate(torch.empty(0, 1, 4, 4), 30).shape == (0, 1, 4, 4)


def test_images_are_rotated_after_cropping() -> None:
    clients = images(FeatureShift(degrees=90.0, until=2), augment=Augment(crop=2))
    assert clients.shape == (2, 2, 2)
    assert torch.allclose(clients.test(0, 2).x, torch.rot90(clients.test(0, 1).x, 1, (2, 3)), rtol=1e-4, atol=1e-3)


# All kinds of drift


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(KINDS), seeds, st.permutations([(c, r) for c in range(3) for r in (1, 3, 6, 9)]))
def test_data_depends_only_on_seed_client_and_round(drift: DriftOptions, seed: int, order: list[Any]) -> None:
    asked = make(drift, seed)
    found = {place: (asked.train(*place), asked.test(*place)) for place in order}
    for (client, round), (train, test) in found.items():
        alone = make(drift, seed)
        assert len(train) == alone.num_samples(client, round)
        assert torch.equal(alone.test(client, round).x, test.x)
        assert torch.equal(alone.train(client, round).x, train.x)
        assert torch.equal(alone.labels(client, round), train.y)


@pytest.mark.parametrize("drift", KINDS[1:], ids=["label shift", "feature shift"])
def test_shift_begins_after_round_1(drift: DriftOptions) -> None:
    for part in ("train", "test"):
        before, drifting = getattr(make(), part), getattr(make(drift), part)
        assert all(torch.equal(drifting(client, 1).x, before(client, 1).x) for client in range(3))
        assert not all(torch.equal(drifting(client, 2).x, before(client, 2).x) for client in range(3))


def test_drift_that_does_not_fit_the_data_is_rejected() -> None:
    x, y = torch.arange(8).view(4, 2), torch.arange(4) % 2
    words = Whole(Samples(x, y), Samples(x, y), num_outputs=2, words=True)
    values = Whole(Samples(x * 1.0, x * 1.0), Samples(x * 1.0, x * 1.0), num_outputs=2, task="values")
    features = Whole(Samples(x * 1.0, y), Samples(x * 1.0, y), num_outputs=2)
    wrong: list[tuple[Whole, int, DriftOptions, str]] = [
        (words, 2, FeatureShift(std=1.0, until=2), r"data\.drift: feature_shift .* words or characters"),
        (values, 2, LabelShift(until=2), r"data\.drift: label_shift .* targets of this data set are values"),
        (features, 1, LabelShift(until=2), r"data\.drift: label_shift expects at least 2 clients, got 1"),
        (features, 2, FeatureShift(degrees=9.0, until=2), r"data\.drift\.degrees: expected images .* shape \(2,\)"),
    ]
    for whole, num_clients, drift, message in wrong:
        with pytest.raises(DataError, match=message):
            Divided(clients=num_clients, drift=drift).divide(whole, 1)
    for whole in (words, values, features):
        assert Divided(clients=1, drift=Arriving(start=0.5, until=2)).divide(whole, 1).num_samples(0, 1) == 2


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("label_shift", r"data\.drift\.until: is required"),
        ({"name": "arriving", "start": 0.1, "until": 1}, r"data\.drift\.until: expected int >= 2, got 1"),
        ({"name": "arriving", "start": 1.5, "until": 9}, r"data\.drift\.start: expected float <= 1"),
        ({"name": "feature_shift", "until": 9}, r"data\.drift: expected degrees, std or both, got neither"),
        ({"name": "arrival"}, r"data\.drift\.name: unknown name 'arrival', did you mean 'arriving'\?"),
    ],
)
def test_wrong_options_are_rejected(table: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read({"drift": table}, Divided, "data")
