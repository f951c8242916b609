"""Comparative timing on a noisy machine."""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def interleaved(candidates: Mapping[str, Callable[[], object]], repeats: int = 7) -> dict[str, list[float]]:
    """Return the seconds of each candidate. They take turns, so that noise affects all equally; turn 1 is a warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(repeats + 1):
        for name, run in candidates.items():
            began = time.perf_counter()
            run()
            if turn:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def ratios(seconds: Mapping[str, list[float]], base: str) -> dict[str, float]:
    """Return the speed of each candidate relative to the base: the median over turns of the ratio within a turn."""
    pairs = {name: zip(seconds[base], times, strict=True) for name, times in seconds.items()}
    return {name: statistics.median(b / own for b, own in pair) for name, pair in pairs.items()}


def python(code: str) -> str:
    """Return the output of code run in a new interpreter."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def save(results: dict[str, object]) -> Path:
    """Write results with a description of the machine as dated JSON, and return the path."""
    import torch

    RESULTS.mkdir(exist_ok=True)
    now = datetime.now(UTC)
    machine = {"platform": platform.platform(), "python": platform.python_version(), "torch": torch.__version__}
    path = RESULTS / f"{now:%Y-%m-%d}.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    facts = {"when": f"{now:%Y-%m-%dT%H:%MZ}", "machine": machine}
    path.write_text(json.dumps({**before, **facts, **results}, indent=2) + "\n")
    return path
