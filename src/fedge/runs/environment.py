"""The environment of a run: versions and hardware needed to reproduce its numbers."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch


def environment() -> dict[str, Any]:
    """Return the current environment of this process."""
    return {
        # the version of the running code, which may differ from the installed one
        "fedge": getattr(sys.modules["fedge"], "__version__", "unknown"),
        "python": platform.python_version(),
        "torch": str(torch.__version__),  # TorchVersion is a subclass of str
        "numpy": np.__version__,
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "num_cpus": os.cpu_count(),
        "num_threads": torch.get_num_threads(),
        "commit": _commit(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    """Return the commit of the working directory; None outside a git checkout."""
    command = ["git", "rev-parse", "--verify", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=1, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()
