from typing import Any

import numpy as np
import pytest
import torch

from fedge.core.errors import DataError
from fedge.core.keys import generator
from fedge.core.schema import read
from fedge.data.augment import Augment
from fedge.data.clients import Samples
from fedge.data.divided_dataset import Divided, DividedClients, Noise
from fedge.data.drift import Arriving
from fedge.data.partition import Natural, Shards
from fedge.data.whole import Whole


def make(noise: Noise | None = None, seed: int = 1, full_scale: int = 4, **options: Any) -> DividedClients:
    """Twelve samples of two features, stored as 0..4, in three classes; four clients."""
    x = torch.arange(24, dtype=torch.uint8).view(12, 2) % 5
    y = torch.arange(12) % 3
    whole = Whole(Samples(x, y), Samples(x[:6], y[:6]), num_outputs=3, full_scale=full_scale)
    return Divided(clients=4, noise=noise, **options).divide(whole, seed)


def test_clients_partition_the_data_set() -> None:
    clients = make()
    assert (clients.shape, clients.num_outputs, clients.task) == ((2,), 3, "classes")
    assert clients.sizes.tolist() == [3, 3, 3, 3]
    assert [len(clients.train(client, 1)) for client in range(4)] == [3, 3, 3, 3]
    assert [clients.num_samples(client, 1) for client in range(4)] == [3, 3, 3, 3]
    rows = torch.cat([clients.train(client, 1).x for client in range(4)])
    expected = (torch.arange(24).view(12, 2) % 5) / 4
    assert sorted(rows.tolist()) == sorted(expected.tolist())
    assert sum(len(clients.test(client, 1)) for client in range(4)) == 6
    assert torch.equal(clients.pooled_test().x, expected[:6])


def test_inputs_belong_to_their_targets() -> None:
    clients = make(full_scale=1)
    pairs = {
        (*row, label)
        for client in range(4)
        for row, label in zip(*map(torch.Tensor.tolist, clients.train(client, 1)), strict=True)
    }
    assert pairs == {((2 * i) % 5, (2 * i + 1) % 5, i % 3) for i in range(12)}


def test_changing_returned_samples_does_not_change_the_data_set() -> None:
    clients = make()
    for give in (lambda: clients.train(0, 1), lambda: clients.test(0, 1), lambda: clients.pooled_test()):
        before = give().x.clone()
        give().x.fill_(7)
        assert torch.equal(give().x, before)


def test_no_client_is_noisy_by_default() -> None:
    assert len(make().noisy) == 0


@pytest.mark.parametrize(("fraction", "count"), [(0.0, 0), (0.25, 1), (0.5, 2), (0.6, 2), (0.7, 3), (1.0, 4)])
def test_number_of_noisy_clients_is_rounded(fraction: float, count: int) -> None:
    noisy = make(Noise(fraction=fraction, std=1.0)).noisy
    assert len(set(noisy.tolist())) == count
    assert set(noisy.tolist()) <= set(range(4))


def test_noise_is_added_and_clipped_to_the_range() -> None:
    plain, noised = make(), make(Noise(fraction=0.5, std=0.3))
    for client in range(4):
        clean, given = plain.train(client, 1), noised.train(client, 1)
        assert torch.equal(given.y, clean.y)
        if client in noised.noisy:
            drawn = generator(1, "noise", client).standard_normal((3, 2), dtype=np.float32)
            expected = np.clip(clean.x.numpy() + np.float32(0.3) * drawn, 0, 1)
            assert given.x.numpy() == pytest.approx(expected, abs=1e-6)
            assert not torch.equal(given.x, clean.x)
        else:
            assert torch.equal(given.x, clean.x)
        assert torch.equal(noised.test(client, 1).x, plain.test(client, 1).x)
    assert torch.equal(noised.pooled_test().x, plain.pooled_test().x)


def test_noise_is_reproducible_and_differs_between_clients_and_seeds() -> None:
    noise = Noise(fraction=1.0, std=0.1)
    first, second, other = make(noise), make(noise), make(noise, seed=2)
    assert torch.equal(first.train(2, 1).x, first.train(2, 1).x)
    assert torch.equal(first.train(2, 1).x, second.train(2, 1).x)
    assert not torch.equal(first.train(2, 1).x, other.train(2, 1).x)
    assert not torch.equal(first.train(2, 1).x - make().train(2, 1).x, first.train(1, 1).x - make().train(1, 1).x)


def test_default_number_of_clients() -> None:
    x, y = torch.zeros(200, 1), torch.arange(200) % 2
    columns = {"user": (np.arange(200) % 7, np.arange(200) % 7)}
    whole = Whole(Samples(x, y), Samples(x, y), num_outputs=2, columns=columns)
    assert len(Divided().divide(whole, 1).sizes) == 100
    assert len(Divided(partition=Natural()).divide(whole, 1).sizes) == 7
    assert len(Divided(partition=Natural(), clients=3).divide(whole, 1).sizes) == 3


def test_words_stay_integers() -> None:
    x, y = torch.arange(8, dtype=torch.uint8).view(4, 2), torch.arange(4) % 2
    whole = Whole(Samples(x, y), Samples(x, y), num_outputs=2, words=True)
    clients = Divided(clients=1).divide(whole, 1)
    assert clients.train(0, 1).x.dtype == clients.pooled_test().x.dtype == torch.int64
    assert clients.train(0, 1).x.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    for options in ({"noise": Noise(fraction=1.0, std=1.0)}, {"normalise": True}):
        with pytest.raises(DataError, match="inputs of this data set are words or characters"):
            Divided(clients=1, **options).divide(whole, 1)


def test_normalised_features_have_mean_0_and_deviation_1() -> None:
    x = torch.tensor([[0, 5], [2, 5], [4, 5], [10, 5]], dtype=torch.uint8)
    y = torch.zeros(4, dtype=torch.int64)
    whole = Whole(Samples(x, y), Samples(x[:1], y[:1]), num_outputs=1, full_scale=2)
    clients = Divided(clients=1, normalise=True).divide(whole, 1)
    # Halved, the first feature is 0, 1, 2, 5: mean 2 and variance (4 + 1 + 0 + 9) / 4. The second is constant.
    expected = (torch.tensor([0.0, 1, 2, 5]) - 2) / 3.5**0.5
    assert torch.allclose(clients.train(0, 1).x[:, 0], expected)
    assert clients.train(0, 1).x[:, 1].tolist() == [0, 0, 0, 0]
    assert torch.allclose(clients.pooled_test().x, torch.tensor([[expected[0], 0]]))


def test_images_are_normalised_by_channel() -> None:
    x = torch.zeros(2, 2, 1, 2)
    x[:, 0] = torch.tensor([[[1.0, 3.0]], [[1.0, 3.0]]])  # mean 2, deviation 1
    x[:, 1] = torch.tensor([[[10.0, 10.0]], [[30.0, 30.0]]])  # mean 20, deviation 10
    y = torch.zeros(2, dtype=torch.int64)
    whole = Whole(Samples(x, y), Samples(x, y), num_outputs=1)
    given = Divided(clients=1, normalise=True).divide(whole, 1).train(0, 1).x
    assert torch.allclose(given[0].flatten(), torch.tensor([-1.0, 1, -1, -1]))
    assert torch.allclose(given[1].flatten(), torch.tensor([-1.0, 1, 1, 1]))


def test_all_clients_have_shared_samples_and_one_has_each_other() -> None:
    # A quarter of twelve is three; the other nine are assigned to three clients.
    x = torch.arange(12.0)[:, None]
    whole = Whole(Samples(x, torch.arange(12) % 3), Samples(x, torch.arange(12) % 3), num_outputs=3)
    clients = Divided(clients=3, shared_fraction=0.25).divide(whole, 1)
    held = [set(clients.train(client, 1).x.flatten().tolist()) for client in range(3)]
    shared = held[0] & held[1] & held[2]
    assert len(shared) == 3
    assert sorted(x for own in held for x in own - shared) == sorted(set(range(12)) - shared)
    assert clients.sizes.tolist() == [6, 6, 6]
    other = Divided(clients=3, shared_fraction=0.25).divide(whole, 2)
    assert shared != set.intersection(*(set(other.train(c, 1).x.flatten().tolist()) for c in range(3)))


def test_rare_classes_are_repeated() -> None:
    # One client with three samples of class 0 and two of class 1, the first of which is repeated.
    x, y = torch.arange(5.0)[:, None], torch.tensor([0, 1, 0, 1, 0])
    whole = Whole(Samples(x, y), Samples(x, y), num_outputs=2)
    clients = Divided(clients=1, oversample=True).divide(whole, 1)
    assert clients.sizes.tolist() == [6]
    assert clients.train(0, 1).x.flatten().tolist() == [0, 1, 1, 2, 3, 4]
    assert clients.train(0, 1).y.tolist() == [0, 1, 1, 0, 1, 0]
    assert len(clients.pooled_test()) == 5
    values = whole._replace(train=Samples(x, x), test=Samples(x, x), task="values")
    with pytest.raises(DataError, match=r"data\.oversample: expected classes, .* got values"):
        Divided(clients=1, oversample=True).divide(values, 1)


def test_augmented_clients_take_the_cropped_shape() -> None:
    x, y = torch.rand(4, 1, 6, 6), torch.zeros(4, dtype=torch.int64)
    whole = Whole(Samples(x, y), Samples(x, y), num_outputs=1)
    clients = Divided(clients=2, augment=Augment(crop=4)).divide(whole, 1)
    assert clients.shape == (1, 4, 4)
    assert clients.train(0, 1).x.shape == (2, 1, 4, 4)
    assert torch.equal(clients.pooled_test().x, x[:, :, 1:5, 1:5])


def test_augmentation_differs_in_every_round() -> None:
    x, y = torch.rand(40, 1, 2, 2), torch.zeros(40, dtype=torch.int64)
    whole = Whole(Samples(x, y), Samples(x, y), num_outputs=1)
    clients = Divided(clients=2, augment=Augment(flip=True)).divide(whole, 1)
    first, second = clients.train(0, 1).x, clients.train(0, 2).x
    mirrored = (first == second.flip(-1)).flatten(1).all(1)
    assert bool((mirrored | (first == second).flatten(1).all(1)).all())
    assert 0 < int(mirrored.sum()) < 20  # of twenty images, those that are mirrored in only one of the rounds
    assert torch.equal(clients.train(0, 1).x, first)


def test_options_are_read_from_a_table() -> None:
    table = {
        "clients": 3,
        "partition": {"name": "shards", "per_client": 4},
        "augment": {"flip": True, "crop": 28, "pad": 2},
        "shared_fraction": 0.1,
        "drift": {"name": "arriving", "start": 0.5, "until": 10},
    }
    options = read(table, Divided, "data")
    assert options.partition == Shards(per_client=4)
    assert options.augment == Augment(flip=True, crop=28, pad=2)
    assert options.drift == Arriving(start=0.5, until=10)
