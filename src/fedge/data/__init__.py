"""Data sets, and how they are divided over clients."""

from typing import get_args

from fedge.core.schema import Options
from fedge.data.cifar import Cifar10, Cifar100
from fedge.data.digits import Digits
from fedge.data.femnist import Femnist
from fedge.data.images import Images
from fedge.data.mnist import FashionMnist, Mnist
from fedge.data.partition import PARTITIONS
from fedge.data.sent140 import Sent140
from fedge.data.shakespeare import Shakespeare
from fedge.data.stackoverflow import StackOverflow
from fedge.data.synthetic import Synthetic
from fedge.data.table import Table
from fedge.data.userdata import UserData

DataOptions = (
    Digits
    | Mnist
    | FashionMnist
    | Cifar10
    | Cifar100
    | Femnist
    | Shakespeare
    | Sent140
    | StackOverflow
    | Synthetic
    | Table
    | Images
    | UserData
)
DATASETS: tuple[type[Options], ...] = get_args(DataOptions)
"""The kinds of data set; a user's own is chosen by the path of its function."""

__all__ = ["DATASETS", "PARTITIONS", "DataOptions"]
