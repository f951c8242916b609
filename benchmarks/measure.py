"""Timing things against each other on a noisy machine."""

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
    """Seconds of each candidate, in turns so that the machine's moods fall on all alike; the first turn warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(repeats + 1):
        for name, run in candidates.items():
            began = time.perf_counter()
            run()
            if turn:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def ratios(seconds: Mapping[str, list[float]], base: str) -> dict[str, float]:
    """How many times as fast as the base each candidate is: the median over turns of the ratio within a turn."""
    pairs = {name: zip(seconds[base], times, strict=True) for name, times in seconds.items()}
    return {name: statistics.median(b / own for b, own in pair) for name, pair in pairs.items()}


def python(code: str) -> str:
    """What a fresh interpreter prints when it runs the code."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def save(results: dict[str, object]) -> Path:
    """Results as dated JSON, with the machine they are from."""
    import torch

    RESULTS.mkdir(exist_ok=True)
    now = datetime.now(UTC)
    machine = {"platform": platform.platform(), "python": platform.python_version(), "torch": torch.__version__}
    path = RESULTS / f"{now:%Y-%m-%d}.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    facts = {"when": f"{now:%Y-%m-%dT%H:%MZ}", "machine": machine}
    path.write_text(json.dumps({**before, **facts, **results}, indent=2) + "\n")
    return path
