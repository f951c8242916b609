"""Data sets, and how they are divided over clients."""

from typing import get_args

from fedge.core.schema import Options
from fedge.data.digits import Digits
from fedge.data.mnist import Mnist
from fedge.data.partition import PARTITIONS
from fedge.data.synthetic import Synthetic
from fedge.data.userdata import UserData

DataOptions = Digits | Mnist | Synthetic | UserData
DATASETS: tuple[type[Options], ...] = get_args(DataOptions)
"""The kinds of data set; a user's own is chosen by the path of its function."""

__all__ = ["DATASETS", "PARTITIONS", "DataOptions"]
