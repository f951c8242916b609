"""How long one waits before anything happens."""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.measure import interleaved, python


def run() -> dict[str, object]:
    """Seconds of `fedge --help`, and seconds that `import fedge` and the first use of its API add to torch's."""
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
