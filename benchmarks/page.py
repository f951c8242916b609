"""Seconds until many runs are displayed: `fedge view`, TensorBoard, MLflow and Trackio on the same runs.

`python -m benchmarks.page [--runs 1000] [--rounds 1000] [--peers tensorboard,mlflow,trackio|none] [--folder DIR]`
writes the runs (kept in DIR), starts each program, and measures what a browser would ask it for:

- start: from the start of the process to its first answer;
- list: all runs, cold (first request) and warm (median of five);
- curves: accuracy over all rounds of 20 runs, cold and warm.

All files are read once before, so that nothing waits for the disk. Fedge is measured without an index and with one. Its
list is the whole page of runs, its curves are the whole comparison of 20 runs; a filter and a sort of 10,000 runs with
two rounds each are measured too.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import save
from benchmarks.page_programs import PROGRAMS, Program, Session
from benchmarks.page_runs import make_runs, outline_runs

NUM_COMPARED, REPEATS, MANY = 20, 5, 10_000
PATIENCE_S = 120.0


def timed(ask: Callable[[], object]) -> float:
    began = time.perf_counter()
    ask()
    return time.perf_counter() - began


def read_files(folder: Path) -> None:
    """Read the files that a program will read, so that they are in the system's cache, as right after the runs."""
    for file in folder.rglob("*"):
        if file.is_file():
            file.read_bytes()


def measure(program: Program, folder: Path, names: list[str], environment: dict[str, str]) -> dict[str, float]:
    """Start one program, return the seconds of its requests, and end it."""
    read_files(folder)
    began = time.perf_counter()
    with Session(program, folder, environment, PATIENCE_S) as session:
        found = {"start": time.perf_counter() - began}
        for what, ask in (("list", session.list_runs), ("curves", lambda: session.curves(names[:NUM_COMPARED]))):
            found[f"{what}_cold"] = timed(ask)
            found[f"{what}_warm"] = statistics.median(timed(ask) for _ in range(REPEATS))
    return found


def run(
    num_runs: int = 1000,
    num_rounds: int = 1000,
    peers: tuple[str, ...] = tuple(PROGRAMS)[1:],
    folder: Path | None = None,
) -> dict[str, Any]:
    """Return seconds by program and request."""
    with tempfile.TemporaryDirectory() as scratch:
        home = folder or Path(scratch)
        results: dict[str, Any] = {"num_runs": num_runs, "num_rounds": num_rounds}
        runs = home / f"runs-{num_runs}-{num_rounds}"
        if not runs.exists():
            tell(f"writing {num_runs} runs of {num_rounds} rounds")
            make_runs(runs, num_runs, num_rounds)
        names = [run.name for run in outline_runs(num_runs)]
        fedge, cache = PROGRAMS["fedge"], Path(scratch) / "cache"
        environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
        results["fedge"] = keep("fedge, no index", measure(fedge, runs, names, environment))
        results["fedge_indexed"] = keep("fedge, with an index", measure(fedge, runs, names, environment))
        results["fedge_many"] = keep("fedge, 10,000 rows", measure_many(home, environment))
        for name in peers:
            store = home / f"{name}-{num_runs}-{num_rounds}"
            try:
                if not store.exists():
                    tell(f"{name}: writing its store")
                    PROGRAMS[name].write(store, num_runs, num_rounds)
                results[name] = keep(name, measure(PROGRAMS[name], store, names, dict(os.environ)))
            except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
                results[name] = {"unavailable": str(error)}
                tell(f"{name}: unavailable: {error}")
                shutil.rmtree(store, ignore_errors=True)
    return results


def measure_many(home: Path, environment: dict[str, str]) -> dict[str, float]:
    """Return the seconds of a filter and a sort of 10,000 runs, with an index."""
    runs = home / f"runs-{MANY}-2"
    if not runs.exists():
        tell(f"writing {MANY} runs of 2 rounds")
        make_runs(runs, MANY, 2)
    read_files(runs)
    with Session(PROGRAMS["fedge"], runs, environment, PATIENCE_S) as session:
        found = {"list_cold": timed(session.list_runs)}
        for name, query in {
            "filter": "where=algorithm.learning_rate%3E%3D0.1",
            "sort": "sort=-accuracy",
            "filter_and_sort": "where=algorithm.learning_rate%3E%3D0.1&where=accuracy%3E%3D0.1&q=rate&sort=-accuracy",
            "groups": "group=settings&sort=-accuracy",
        }.items():
            ask = lambda query=query: session.get(f"/api/runs?{query}&limit=100")  # noqa: E731
            ask()
            found[name] = statistics.median(timed(ask) for _ in range(REPEATS))
    return found


def keep(name: str, found: dict[str, float]) -> dict[str, float]:
    tell(f"{name}: " + ", ".join(f"{what} {seconds:.3f} s" for what, seconds in found.items()))
    return found


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--peers", default="tensorboard,mlflow,trackio", help="or none")
    parser.add_argument("--folder", type=Path, help="folder in which runs and stores are kept for reuse")
    options = parser.parse_args()
    peers = () if options.peers == "none" else tuple(options.peers.split(","))
    results = run(options.runs, options.rounds, peers, options.folder)
    print(f"written to {save({'page': results})}")


if __name__ == "__main__":
    main()
