import numpy as np
import torch

from fedge.data.client_sizes import ClientSize, evenly, measure
from fedge.data.clients import Samples
from fedge.data.divided_dataset import Divided
from fedge.data.drift import Arriving
from fedge.data.partition import Natural
from fedge.data.synthetic import Synthetic
from fedge.data.whole import Whole


def test_classes_are_counted() -> None:
    y = torch.tensor([0, 0, 2, 1])
    whole = Whole(
        Samples(torch.zeros(4, 1), y),
        Samples(torch.zeros(2, 1), y[:2]),
        num_outputs=4,
        columns={"user": (np.array([5, 5, 5, 8]), np.array([8, 8]))},
    )
    clients = Divided(partition=Natural()).divide(whole, 1)
    assert list(measure(clients, range(2))) == [ClientSize(0, 3, 0, [2, 0, 1, 0]), ClientSize(1, 1, 2, [0, 1, 0, 0])]


def test_multiple_labels_and_values() -> None:
    x, y = torch.zeros(2, 1), torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    several = Whole(Samples(x, y), Samples(x, y), num_outputs=2, task="labels")
    assert [c.classes for c in measure(Divided(clients=1).divide(several, 1), [0])] == [[1, 2]]
    values = several._replace(task="values")
    assert [c.classes for c in measure(Divided(clients=1).divide(values, 1), [0])] == [None]


def test_sizes_of_generated_clients() -> None:
    clients = Synthetic(clients=3, samples=9, test_samples=4, classes=5).build(1)
    (found,) = measure(clients, [2])
    assert (found.client, found.train, found.test) == (2, 9, 4)
    assert found.classes == clients.train(2, 1).y.bincount(minlength=5).tolist()


def test_evenly_spaced_clients() -> None:
    assert evenly(3, 5) == [0, 1, 2]
    assert evenly(10, 4) == [0, 2, 5, 7]


def test_sizes_depend_on_the_round() -> None:
    # Two of eight samples in round 1, all of them in round 4.
    x, y = torch.zeros(8, 1), torch.arange(8) % 2
    whole = Whole(Samples(x, y), Samples(x, y), num_outputs=2)
    clients = Divided(clients=1, drift=Arriving(start=0.25, until=4)).divide(whole, 1)
    assert [c.train for c in measure(clients, [0])] == [2]
    assert list(measure(clients, [0], round=4)) == [ClientSize(0, 8, 8, [4, 4])]
