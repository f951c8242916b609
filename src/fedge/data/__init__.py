"""Data sets, and their partition over clients."""

from typing import get_args

from fedge.core.schema import Options
from fedge.data.known import KnownData
from fedge.data.partition import PARTITIONS
from fedge.data.python_data import PythonData
from fedge.data.remote import Remote

DataOptions = KnownData | Remote | PythonData
DATASETS: tuple[type[Options], ...] = tuple(kind for kind in get_args(DataOptions) if kind is not PythonData)
"""The data sets that an experiment file can name; a user's data set is named by the path of its function."""

__all__ = ["DATASETS", "PARTITIONS", "DataOptions"]
