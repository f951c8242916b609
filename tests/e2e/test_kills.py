"""A process that is killed at any moment costs nothing: resumed, its run comes to the same as an undisturbed one."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from e2e.command import Fedge, Process, wait_until
from e2e.experiments import Settings, assert_same, changed, kept, records, write

ADAPTIVE: Settings = {
    "name": "killed",
    "seed": 11,
    "rounds": 40,
    "data": {"name": "digits", "clients": 20, "partition": {"name": "shards", "per_client": 2}},
    "model": {"name": "mtfl_2nn"},
    "algorithm": {"name": "fedavg_adam", "learning_rate": 0.01, "local_steps": 2},
    "personal": {"private": "bn"},
    "selection": {"count": 5},
    "evaluate": {"user_accuracy": True, "users": "selected"},
    "target": {"metric": "accuracy", "value": 0.5},
    "checkpoint": {"every": 2},
}
"""Everything that a checkpoint must hold: an optimiser's moments, private ones too, and costs to a target."""
