"""Runs that last: what a run leaves on disk, and how it goes on after being stopped at any moment.

Reading runs is quick: this package does not import torch. Writing them is in `fedge.runs.directory`.
"""

from fedge.runs.follow import Cursor, NewRecords, follow
from fedge.runs.read import Run, find_runs

__all__ = ["Cursor", "NewRecords", "Run", "find_runs", "follow"]
