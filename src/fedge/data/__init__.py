"""Data sets, and how they are divided over clients."""

from typing import get_args

from fedge.core.schema import Options
from fedge.data.known import KnownData
from fedge.data.partition import PARTITIONS
from fedge.data.remote import Remote

DataOptions = KnownData | Remote
DATASETS: tuple[type[Options], ...] = get_args(DataOptions)
"""The kinds of data set; a user's own is chosen by the path of its function."""

__all__ = ["DATASETS", "PARTITIONS", "DataOptions"]
