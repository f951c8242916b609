"""Startup time of the command line and of the Python API."""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.measure import interleaved, python


def run() -> dict[str, object]:
    """Return the seconds of `fedge --help`, and those that `import fedge` and its first use add to torch's import."""
    fedge = Path(sys.executable).with_name("fedge")
    seconds = interleaved(
        {
            "fedge --help": lambda: subprocess.run([fedge, "--help"], check=True, capture_output=True),
            "import torch": lambda: python("import torch"),
            "import torch, fedge": lambda: python("import torch, fedge"),
            "import torch, fedge; fedge.Experiment": lambda: python("import torch, fedge; fedge.Experiment"),
            "import torch, fedge.experiment": lambda: python("import torch, fedge.experiment"),
        },
        repeats=5,
    )
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    return {
        "seconds": medians,
        "import_fedge_adds_s": medians["import torch, fedge"] - medians["import torch"],
        "first_use_adds_s": medians["import torch, fedge; fedge.Experiment"] - medians["import torch"],
    }
