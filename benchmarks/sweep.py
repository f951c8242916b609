"""How much faster a sweep of 48 short runs is with two processes than with one."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import interleaved, ratios

RECIPE = Path(__file__).parents[1] / "recipes" / "sweep" / "digits.toml"


def sweep(workers: int) -> Callable[[], None]:
    """The whole command in a new folder, starting Python included."""

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            command = [Path(sys.executable).with_name("fedge"), "sweep", RECIPE, "--quiet", "--runs", folder]
            subprocess.run([*command, "--set", f"sweep.workers={workers}"], check=True)

    return run


def run(repeats: int = 3) -> dict[str, object]:
    """Seconds of each, and how many times as fast two are."""
    seconds = interleaved({"one worker": sweep(1), "two workers": sweep(2)}, repeats)
    return {"seconds": seconds, "times_as_fast": ratios(seconds, "one worker")["two workers"]}


if __name__ == "__main__":
    found = run(repeats=1)
    print(f"{found['seconds']}: {found['times_as_fast']:.2f} times as fast")
