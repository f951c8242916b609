import numpy as np
import torch

from fedge.data.clients import Samples
from fedge.data.divided import Divided, Whole
from fedge.data.overview import ClientSize, evenly, measure
from fedge.data.partition import Natural
from fedge.data.synthetic import Synthetic


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


def test_labels_may_be_several_or_values() -> None:
    x, y = torch.zeros(2, 1), torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    several = Whole(Samples(x, y), Samples(x, y), num_outputs=2, multilabel=True)
    assert [c.classes for c in measure(Divided(clients=1).divide(several, 1), [0])] == [[1, 2]]
    values = several._replace(multilabel=False)
    assert [c.classes for c in measure(Divided(clients=1).divide(values, 1), [0])] == [None]


def test_generated_clients_are_asked_for_their_samples() -> None:
    clients = Synthetic(clients=3, samples=9, test_samples=4, classes=5).build(1)
    (found,) = measure(clients, [2])
    assert (found.client, found.train, found.test) == (2, 9, 4)
    assert found.classes == clients.train(2).y.bincount(minlength=5).tolist()


def test_a_choice_of_clients_is_evenly_spaced() -> None:
    assert evenly(3, 5) == [0, 1, 2]
    assert evenly(10, 4) == [0, 2, 5, 7]
