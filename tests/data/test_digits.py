from importlib.resources import files

import numpy as np
import torch

from fedge.core.schema import read
from fedge.data.digits import Digits
from fedge.data.partition import Shards


def test_all_digits_are_present() -> None:
    clients = Digits(clients=7).build(seed=1)
    assert (clients.shape, clients.num_outputs, clients.task) == ((1, 28, 28), 10, "classes")
    assert clients.sizes.sum() == 1438  # 1797 without every fifth
    test = clients.pooled_test()
    assert len(test) == 359
    labels = torch.cat([clients.train(client, 1).y for client in range(7)] + [test.y])
    # The class distribution of this part of the data set, according to the UCI repository.
    assert labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_pixels_are_enlarged_to_3x3_with_a_margin() -> None:
    x, y = Digits(clients=1).build(seed=1).pooled_test()
    assert x.dtype == torch.float32
    assert y.dtype == torch.int64
    assert (x.min(), x.max()) == (0, 1)
    inner = x[:, :, 2:26, 2:26]
    assert inner.sum() == x.sum()
    assert torch.equal(inner, inner[:, :, ::3, ::3].repeat_interleave(3, -1).repeat_interleave(3, -2))


def test_first_test_sample_is_the_fifth_digit() -> None:
    x, y = Digits(clients=1).build(seed=1).pooled_test()
    fifth = [0, 0, 0, 1, 11, 0, 0, 0]  # the top row of a 4, of 16 levels
    assert y[0] == 4
    assert (x[0, 0, 2, 2:26:3] * 16).tolist() == fifth


def test_documented_configuration_is_valid() -> None:
    table = {
        "name": "digits",
        "dir": "data",
        "clients": 10,
        "partition": {"name": "shards", "per_client": 2},
        "noise": {"fraction": 0.2, "std": 3.0},
    }
    clients = read(table, Digits, "data").build(seed=1)
    assert len(clients.sizes) == 10
    assert len(clients.noisy) == 2


def test_shards_of_digits_are_tested_on_their_own_classes() -> None:
    clients = Digits(clients=100, partition=Shards()).build(seed=1)
    for client in range(100):
        assert set(clients.test(client, 1).y.tolist()) <= set(clients.train(client, 1).y.tolist())


def test_file_names_its_authors() -> None:
    with np.load(str(files("fedge.data") / "digits.npz")) as arrays:
        text = str(arrays["attribution"])
    assert "Alpaydin" in text
    assert "CC BY 4.0" in text
