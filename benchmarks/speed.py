"""Seconds per round, memory and utilisation: Fedge, a loop without a framework, and other frameworks.

`python -m benchmarks.speed [--workloads W1,W4] [--peers flower,pfl|none] [--turns 5]` measures and saves the results;
`python -m benchmarks.speed --table results.json` prints them for the documentation.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.candidate import Outcome, UnavailableError, take_turns
from benchmarks.measure import ratios, save
from benchmarks.peers.environments import CACHE, REQUIREMENTS, interpreter
from benchmarks.workloads import WORKLOADS, Workload

BASE = "plain"
_PATIENCE_S = 180.0  # for the turns of one workload
_SIDE = 1024  # of the matrices that measure the machine's peak


class Program(NamedTuple):
    """A module to run, and its options after the workload's name."""

    module: str
    options: tuple[str, ...] = ()


OWN = {
    BASE: Program("benchmarks.plain"),
    "plain, 2 threads": Program("benchmarks.plain", ("--threads", "2")),
    "plain, 2 processes": Program("benchmarks.plain", ("--processes", "2")),
    "fedge loop": Program("benchmarks.peers.fedge", ("--engine", "loop")),
    "fedge block": Program("benchmarks.peers.fedge", ("--engine", "block")),
    "fedge pool, 2 workers": Program("benchmarks.peers.fedge", ("--engine", "pool", "--workers", "2")),
    "fedge auto, 2 workers": Program("benchmarks.peers.fedge", ("--engine", "auto", "--workers", "2")),
}
PEERS = {peer: {peer: Program(f"benchmarks.peers.{peer}")} for peer in REQUIREMENTS}
PEERS["fedjax"]["fedjax, pmap"] = Program("benchmarks.peers.fedjax", ("--backend", "pmap"))


def run(
    workloads: Iterable[str] = tuple(WORKLOADS),
    peers: Iterable[str] = tuple(PEERS),
    turns: int = 5,
    cache: Path = CACHE,
) -> dict[str, Any]:
    """Return by workload the seconds per round, speed relative to plain, share of peak, and memory in MB."""
    programs, missing = _find(peers, cache)
    results: dict[str, Any] = {}
    for name in workloads:
        peak = measure_peak()
        _tell(f"{name}: peak of this machine {peak:.0f} GFLOP/s (matrix multiplication)")
        commands = {who: [python, "-m", one.module, name, *one.options] for who, (python, one) in programs.items()}
        measured, failed = take_turns(commands, turns, _PATIENCE_S)
        if BASE not in measured:
            raise SystemExit(f"{name}: the baseline {BASE} is unavailable: {failed[BASE]}")
        results[name] = describe(WORKLOADS[name], measured, {**missing, **failed}, peak)
        for who, found in results[name]["candidates"].items():
            _tell(f"  {who}: {_line(found)}")
    return results


def describe(
    workload: Workload, measured: Mapping[str, Outcome], unavailable: Mapping[str, str], peak_gflops: float
) -> dict[str, Any]:
    """Return one workload's results, ready for JSON."""
    seconds = {name: outcome.seconds for name, outcome in measured.items()}
    times = ratios(seconds, BASE)
    candidates: dict[str, dict[str, Any]] = {}
    for name, outcome in measured.items():
        median = statistics.median(outcome.seconds)
        candidates[name] = {
            "seconds": median,
            "times_plain": times[name],
            "share_of_peak": workload.flops / median / (peak_gflops * 1e9),
            "peak_mb": outcome.peak_mb,
            "turns": outcome.seconds,
            "versions": outcome.versions,
        }
    candidates |= {name: {"unavailable": reason} for name, reason in unavailable.items()}
    return {"gflop_a_round": workload.flops / 1e9, "peak_gflops": peak_gflops, "candidates": candidates}


def measure_peak(seconds: float = 1.0) -> float:
    """Return GFLOP/s of float32 matrix multiplication on all cores at once, with one single-threaded process each."""
    cores, context = os.cpu_count() or 1, get_context("spawn")
    with context.Pool(cores, _meet_at, (context.Barrier(cores),)) as pool:
        return sum(pool.map(_multiply, [seconds] * cores, chunksize=1))


def table(results: Mapping[str, Any]) -> str:
    """Return results as Markdown, one table per quantity."""
    names = list(dict.fromkeys(name for found in results.values() for name in found["candidates"]))
    parts = [
        _part("Speed relative to plain (seconds per round)", results, names, _speed),
        _part("Share of the machine's peak", results, names, lambda found: f"{100 * found['share_of_peak']:.0f}%"),
        _part("Peak memory in MB", results, names, lambda found: f"{found['peak_mb']:.0f}"),
    ]
    reasons = [
        f"- {name}, {workload}: unavailable: {found['candidates'][name]['unavailable']}"
        for name in names
        for workload, found in results.items()
        if "unavailable" in found["candidates"].get(name, {})
    ]
    return "\n\n".join([*parts, *(["\n".join(reasons)] if reasons else [])])


def _part(
    title: str, results: Mapping[str, Any], names: Sequence[str], show: Callable[[Mapping[str, Any]], str]
) -> str:
    def cell(workload: str, name: str) -> str:
        found = results[workload]["candidates"].get(name, {})
        return show(found) if "seconds" in found else "-"

    lines = [[title, *results], ["---", *("---:" for _ in results)]]
    lines += [[name, *(cell(workload, name) for workload in results)] for name in names]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _speed(found: Mapping[str, Any]) -> str:
    return f"{found['times_plain']:.2f} ({found['seconds']:.3g})"


def _line(found: Mapping[str, Any]) -> str:
    if "unavailable" in found:
        return f"unavailable: {found['unavailable']}"
    return f"{_speed(found)}, {100 * found['share_of_peak']:.0f}% of the peak, {found['peak_mb']:.0f} MB"


def _find(peers: Iterable[str], cache: Path) -> tuple[dict[str, tuple[str, Program]], dict[str, str]]:
    """Return the Python and program of each candidate, and the reasons why others are unavailable."""
    programs = {name: (sys.executable, program) for name, program in OWN.items()}
    missing = {}
    for peer in peers:
        _tell(f"environment of {peer}: {cache / peer}")
        try:
            python = str(interpreter(peer, cache))
        except UnavailableError as reason:
            missing[peer] = str(reason)
        else:
            programs |= {name: (python, program) for name, program in PEERS[peer].items()}
    return programs, missing


_barrier: Barrier


def _meet_at(barrier: Barrier) -> None:
    global _barrier
    _barrier = barrier


def _multiply(seconds: float) -> float:
    torch.set_num_threads(1)
    a, b, out = (torch.rand(_SIDE, _SIDE) for _ in range(3))
    torch.mm(a, b, out=out)
    _barrier.wait()
    began, count = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < seconds:
        torch.mm(a, b, out=out)
        count += 1
    return 2e-9 * _SIDE**3 * count / passed


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _names(known: Iterable[str]) -> Callable[[str], list[str]]:
    def read(text: str) -> list[str]:
        names = [] if text == "none" else text.split(",")
        if unknown := set(names) - set(known):
            raise argparse.ArgumentTypeError(f"expected some of {','.join(known)}, got {','.join(sorted(unknown))}")
        return names

    return read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=_names(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--peers", type=_names(PEERS), default=list(PEERS), help="frameworks to compare with, or none")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--environments", type=Path, default=CACHE, help="folder of the environments of peers")
    parser.add_argument("--table", type=Path, help="print these results instead of measuring")
    options = parser.parse_args()
    if options.table:
        print(table(json.loads(options.table.read_text())["speed"]))
        return
    results = run(options.workloads, options.peers, options.turns, options.environments)
    print(f"written to {save({'speed': results})}")


if __name__ == "__main__":
    main()
