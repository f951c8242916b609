"""Data sets, and how they are divided over clients."""

from fedge.data.digits import Digits
from fedge.data.mnist import Mnist
from fedge.data.partition import PARTITIONS
from fedge.data.synthetic import Synthetic
from fedge.data.userdata import UserData

DATASETS = (Digits, Mnist, Synthetic, UserData)
"""The kinds of data set; a user's own is chosen by the path of its function."""

__all__ = ["DATASETS", "PARTITIONS"]
