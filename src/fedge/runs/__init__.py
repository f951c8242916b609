"""Run directories: what a run writes to disk, and how it resumes after being stopped at any moment.

Importing this package to read runs is fast: it does not import torch. `fedge.runs.directory` writes runs.
"""

from fedge.runs.follow import Cursor, NewRecords, follow
from fedge.runs.read import Run, find_runs

__all__ = ["Cursor", "NewRecords", "Run", "find_runs", "follow"]
