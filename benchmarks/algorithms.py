"""Time of a round of each kind of algorithm on workload W1 with two workers, relative to FedAvg.

`python -m benchmarks.algorithms` measures all; `python -m benchmarks.algorithms scaffold` runs one candidate.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from typing import Any

import torch

from benchmarks.candidate import serve, take_turns
from benchmarks.measure import ratios
from benchmarks.peers.fedge import prepare
from benchmarks.workloads import WORKLOADS
from fedge.engines.memory import keep_freed_memory

ALGORITHMS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "fedprox": {"algorithm": {"name": "fedprox"}},
    "scaffold": {"algorithm": {"name": "scaffold"}},
    "fedgbo(sgdm)": {"algorithm": {"name": "fedgbo", "optimiser": "sgdm"}},
    "fedgbo(adam)": {"algorithm": {"name": "fedgbo", "optimiser": "adam"}},
    "mtfl(fedavg)": {"personal": {"private": ["5.*"]}},  # the last layer is private
    "mfl(adam)": {"algorithm": {"name": "mfl", "optimiser": "adam"}},
    "fedavg_adam": {"algorithm": {"name": "fedavg_adam"}},
    "mimexlite(sgdm)": {"algorithm": {"name": "mimexlite", "optimiser": "sgdm"}},
    "fedavg, momentum": {"algorithm": {"momentum": 0.9}},
}
_PATIENCE_S = 240.0


def run(turns: int = 7) -> dict[str, object]:
    """Return by algorithm the seconds per round, and their ratio to FedAvg's."""
    commands = {name: [sys.executable, "-m", "benchmarks.algorithms", name] for name in ALGORITHMS}
    measured, failed = take_turns(commands, turns, _PATIENCE_S)
    seconds = {name: outcome.seconds for name, outcome in measured.items()}
    times = ratios(seconds, "fedavg")
    return {
        name: {"seconds": statistics.median(own), "times_fedavg": 1 / times[name]} for name, own in seconds.items()
    } | {name: {"unavailable": why} for name, why in failed.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("algorithm", choices=ALGORITHMS, nargs="?")
    options = parser.parse_args()
    if options.algorithm is None:
        print(json.dumps(run(), indent=2))
        return
    torch.set_num_threads(1)
    keep_freed_memory()
    serve(lambda: prepare(WORKLOADS["W1"], "pool", 2, ALGORITHMS[options.algorithm]), ["torch"])


if __name__ == "__main__":
    main()
