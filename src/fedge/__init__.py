"""Federated learning for the network edge.

import fedge
run = fedge.run("first.toml", **{"algorithm.learning_rate": 0.05})
run.rounds, run.summary, run.model
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Config", "FedgeError", "Run", "find_runs", "load", "run"]

_HOMES = {
    "Config": "fedge.config",
    "FedgeError": "fedge.core.errors",
    "Run": "fedge.runs.read",
    "find_runs": "fedge.runs.read",
    "load": "fedge.report.frames",
    "run": "fedge.experiment.start",
}

if TYPE_CHECKING:
    from fedge.config import Config
    from fedge.core.errors import FedgeError
    from fedge.experiment.start import run
    from fedge.report.frames import load
    from fedge.runs.read import Run, find_runs


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import fedge` and `fedge --help` stay fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fedge' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
