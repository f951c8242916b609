import numpy as np
import pytest
import torch

from fedge.core.keys import generator
from fedge.data.clients import Samples
from fedge.data.divided import Divided, DividedClients, Noise, Whole


def make(noise: Noise | None = None, seed: int = 1, full_scale: int = 4) -> DividedClients:
    """Twelve samples of two features, stored as 0..4, in three classes; four clients."""
    x = torch.arange(24, dtype=torch.uint8).view(12, 2) % 5
    y = torch.arange(12) % 3
    whole = Whole(Samples(x, y), Samples(x[:6], y[:6]), num_outputs=3, full_scale=full_scale)
    return Divided(clients=4, noise=noise).divide(whole, seed)


def test_clients_share_out_the_whole() -> None:
    clients = make()
    assert (clients.shape, clients.num_outputs, clients.regression) == ((2,), 3, False)
    assert clients.sizes.tolist() == [3, 3, 3, 3]
    assert [len(clients.train(client)) for client in range(4)] == [3, 3, 3, 3]
    rows = torch.cat([clients.train(client).x for client in range(4)])
    expected = (torch.arange(24).view(12, 2) % 5) / 4
    assert sorted(rows.tolist()) == sorted(expected.tolist())
    assert sum(len(clients.test(client)) for client in range(4)) == 6
    assert torch.equal(clients.pooled_test().x, expected[:6])


def test_inputs_belong_to_their_targets() -> None:
    clients = make(full_scale=1)
    pairs = {
        (*row, label)
        for c in range(4)
        for row, label in zip(*map(torch.Tensor.tolist, clients.train(c)), strict=True)
    }
    assert pairs == {((2 * i) % 5, (2 * i + 1) % 5, i % 3) for i in range(12)}


def test_what_is_given_out_can_be_changed_without_harm() -> None:
    clients = make()
    for give in (lambda: clients.train(0), lambda: clients.test(0), clients.pooled_test):
        before = give().x.clone()
        give().x.fill_(7)
        assert torch.equal(give().x, before)


def test_nobody_is_noisy_unless_asked() -> None:
    assert len(make().noisy) == 0


@pytest.mark.parametrize(("fraction", "count"), [(0.0, 0), (0.25, 1), (0.5, 2), (0.6, 2), (0.7, 3), (1.0, 4)])
def test_as_many_clients_are_noisy_as_nearest(fraction: float, count: int) -> None:
    noisy = make(Noise(fraction=fraction, std=1.0)).noisy
    assert len(set(noisy.tolist())) == count
    assert set(noisy.tolist()) <= set(range(4))


def test_noise_is_added_and_clipped_to_the_range() -> None:
    plain, noised = make(), make(Noise(fraction=0.5, std=0.3))
    for client in range(4):
        clean, given = plain.train(client), noised.train(client)
        assert torch.equal(given.y, clean.y)
        if client in noised.noisy:
            drawn = generator(1, "noise", client).standard_normal((3, 2), dtype=np.float32)
            expected = np.clip(clean.x.numpy() + np.float32(0.3) * drawn, 0, 1)
            assert given.x.numpy() == pytest.approx(expected, abs=1e-6)
            assert not torch.equal(given.x, clean.x)
        else:
            assert torch.equal(given.x, clean.x)
        assert torch.equal(noised.test(client).x, plain.test(client).x)
    assert torch.equal(noised.pooled_test().x, plain.pooled_test().x)


def test_noise_is_always_the_same_and_differs_between_clients_and_seeds() -> None:
    noise = Noise(fraction=1.0, std=0.1)
    first, second, other = make(noise), make(noise), make(noise, seed=2)
    assert torch.equal(first.train(2).x, first.train(2).x)
    assert torch.equal(first.train(2).x, second.train(2).x)
    assert not torch.equal(first.train(2).x, other.train(2).x)
    assert not torch.equal(first.train(2).x - make().train(2).x, first.train(1).x - make().train(1).x)
