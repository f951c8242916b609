"""Speed-up of a sweep of 48 short runs with two processes instead of one."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import interleaved, ratios

RECIPE = Path(__file__).parents[1] / "recipes" / "sweep" / "digits.toml"


def sweep(workers: int) -> Callable[[], None]:
    """Run the whole command in a new folder, including the start of Python."""

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            command = [Path(sys.executable).with_name("fedge"), "sweep", RECIPE, "--quiet", "--runs", folder]
            subprocess.run([*command, "--set", f"sweep.workers={workers}"], check=True)

    return run


def run(repeats: int = 3) -> dict[str, object]:
    """Return the seconds of each, and the speed-up of two processes."""
    seconds = interleaved({"one worker": sweep(1), "two workers": sweep(2)}, repeats)
    return {"seconds": seconds, "times_as_fast": ratios(seconds, "one worker")["two workers"]}


if __name__ == "__main__":
    found = run(repeats=1)
    print(f"{found['seconds']}: speed-up {found['times_as_fast']:.2f}")
