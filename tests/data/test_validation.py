"""The validation split: number and choice of held-out samples, and that no client trains on them."""

from typing import Any

import numpy as np
import pytest
import torch

from fedge.core.errors import ConfigError, DataError
from fedge.core.schema import read
from fedge.data.augment import Augment
from fedge.data.clients import Clients, Samples
from fedge.data.divided_dataset import Divided, DividedClients, Noise
from fedge.data.drift import Arriving, LabelShift
from fedge.data.partition import Natural
from fedge.data.synthetic import Synthetic
from fedge.data.validation import count_held_out
from fedge.data.whole import Whole

SIZES = (1, 2, 10, 29)


def divide(seed: int = 1, num_outputs: int = 2, **options: Any) -> DividedClients:
    """Four clients of 1, 2, 10 and 29 samples; the input of sample i is i."""
    users = np.repeat(np.arange(4), SIZES)
    x, y = torch.arange(42.0).view(42, 1), torch.arange(42) % num_outputs
    whole = Whole(Samples(x, y), Samples(x, y), num_outputs=num_outputs, columns={"user": (users, users)})
    return Divided(partition=Natural(), **options).divide(whole, seed)


def numbers(samples: Samples) -> list[float]:
    return sorted(samples.x[:, 0].tolist())


@pytest.mark.parametrize(
    ("num_samples", "share", "count"),
    [
        (0, 0.5, 0),
        (1, 0.9, 0),  # the only sample is used for training
        (2, 0.1, 1),  # 0.2, but at least 1 of 2
        (10, 0.25, 2),  # 2.5 rounded down
        (10, 0.29, 2),  # and 2.9
        (29, 0.25, 7),  # 7.25
        (100, 0.29, 29),  # 28.999999999999996 in floating point
        (3, 0.9999999999, 2),  # one is always left
    ],
)
def test_number_of_held_out_samples(num_samples: int, share: float, count: int) -> None:
    assert count_held_out(num_samples, share) == count


@pytest.mark.parametrize("round", [1, 7])
def test_held_out_samples_belong_to_the_client_and_are_not_trained_on(round: int) -> None:
    plain, clients = divide(), divide(validation=0.25)
    assert clients.sizes.tolist() == [1, 1, 8, 22]
    assert [clients.num_samples(client, round) for client in range(4)] == [1, 1, 8, 22]
    assert [len(clients.validation(client, round)) for client in range(4)] == [0, 1, 2, 7]
    for client in range(4):
        held_out, kept = numbers(clients.validation(client, round)), numbers(clients.train(client, round))
        assert sorted(held_out + kept) == numbers(plain.train(client, round))
        assert torch.equal(clients.validation(client, round).y, clients.validation(client, round).x[:, 0].long() % 2)
        assert torch.equal(clients.test(client, round).x, plain.test(client, round).x)


def test_choice_depends_only_on_seed_and_client() -> None:
    first = [numbers(divide(validation=0.25).validation(client, 1)) for client in range(4)]
    assert [numbers(divide(validation=0.25).validation(client, 2)) for client in range(4)] == first
    assert [numbers(divide(2, validation=0.25).validation(client, 1)) for client in range(4)] != first


def test_without_a_split_nothing_is_held_out() -> None:
    clients = divide()
    assert clients.sizes.tolist() == list(SIZES)
    assert [len(clients.validation(client, 1)) for client in range(4)] == [0, 0, 0, 0]


def trained_on(clients: Clients, rounds: range) -> set[float]:
    return {
        number
        for round in rounds
        for client in range(len(clients.sizes))
        for number in numbers(clients.train(client, round))
    }


@pytest.mark.parametrize(
    "options",
    [
        {"oversample": True},  # would repeat a held-out sample of a rare class
        {"shared_fraction": 0.5},  # shared samples belong to all clients, so none holds them out
        {"drift": LabelShift(until=3)},  # gives samples to other clients
        {"drift": Arriving(until=3, start=0.5)},
    ],
)
def test_no_client_trains_on_held_out_samples_of_any_client(options: dict[str, Any]) -> None:
    clients = divide(validation=0.25, num_outputs=3, **options)
    everybody = range(len(clients.sizes))
    held_out = {number for client in everybody for number in numbers(clients.validation(client, 1))}
    assert len(held_out) >= 3
    assert not held_out & trained_on(clients, range(1, 5))


def test_held_out_samples_are_noisy_like_training_data_but_not_augmented() -> None:
    images = torch.arange(40.0).view(10, 1, 2, 2)
    whole = Whole(Samples(images, torch.zeros(10, dtype=torch.int64)), Samples(images, torch.zeros(10).long()), 1)
    flipped = Divided(clients=1, validation=0.5, augment=Augment(flip=True)).divide(whole, 1)
    for image in flipped.validation(0, 1).x:
        assert image[0, 0, 0] < image[0, 0, 1]  # as stored
    noisy = Divided(clients=1, validation=0.5, noise=Noise(fraction=1.0, std=1.0)).divide(whole, 1)
    difference = noisy.validation(0, 1).x - Divided(clients=1, validation=0.5).divide(whole, 1).validation(0, 1).x
    assert 0.5 < float(difference.std()) < 1.5


@pytest.mark.parametrize("kind", ["mixture", "quadratic"])
def test_generated_clients_hold_out_samples(kind: Any) -> None:
    plain, clients = (Synthetic(kind=kind, clients=3, samples=10, validation=share).build(1) for share in (None, 0.25))
    assert clients.sizes.tolist() == [8, 8, 8]
    for client in range(3):
        held_out, kept = clients.validation(client, 1), clients.train(client, 1)
        assert (len(held_out), len(kept), clients.num_samples(client, 1)) == (2, 8, 8)
        assert numbers(Samples(torch.cat([held_out.x, kept.x]), kept.y)) == numbers(plain.train(client, 1))
    assert len(plain.validation(0, 1)) == 0


def test_empty_split_is_rejected() -> None:
    whole = Whole(Samples(torch.zeros(2, 1), torch.tensor([0, 1])), Samples(torch.zeros(2, 1), torch.tensor([0, 1])), 2)
    with pytest.raises(DataError, match=r"data\.validation: expected a client with at least 2 training samples"):
        Divided(clients=2, validation=0.5).divide(whole, 1)
    with pytest.raises(DataError, match=r"data\.validation"):
        Synthetic(samples=1, validation=0.5).build(1)


@pytest.mark.parametrize("share", [0, 1, -0.1])
def test_share_is_between_0_and_1(share: float) -> None:
    with pytest.raises(ConfigError, match=r"validation: expected float"):
        read({"validation": share}, Synthetic)
