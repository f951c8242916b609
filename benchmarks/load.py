"""Time to list, load and report on a thousand runs: `python -m benchmarks.load`."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NUM_RUNS, NUM_ROUNDS = 1000, 1000
GOALS_S = {"fedge list": 1.0, "fedge report": 5.0, "fedge.load, rounds": 2.0, "fedge.load, summary": 2.0}
REPORT_ROUNDS = 30
"""Rounds per run in the report."""

_LOAD = """
import sys, time
import pandas, fedge
began, before = time.perf_counter(), time.process_time()
table = fedge.load(sys.argv[1], what=sys.argv[2])
print(time.perf_counter() - began, time.process_time() - before, len(table))
"""


def make_runs(folder: Path, num_runs: int = NUM_RUNS, num_rounds: int = NUM_ROUNDS) -> None:
    """Write fake runs with the fields of a simulated run, evaluated every other round."""
    draw = random.Random(1)
    for run in range(num_runs):
        path = folder / f"run-{run:04}"
        path.mkdir(parents=True)
        (path / "config.json").write_text(json.dumps(_config(run, num_rounds), indent=2))
        (path / "environment.json").write_text(json.dumps({"fedge": "0"}))
        records = [_record(draw, number) for number in range(1, num_rounds + 1)]
        (path / "rounds.jsonl").write_text("".join(f"{json.dumps(one, separators=(',', ':'))}\n" for one in records))
        summary = {"rounds": num_rounds, "accuracy": draw.random(), "rounds_to_target": None}
        (path / "summary.json").write_text(json.dumps(summary))


def run() -> dict[str, Any]:
    """Return wall and processor seconds, each the median of three new processes."""
    fedge = [sys.executable, "-c", "from fedge.cli import main; main()"]
    with tempfile.TemporaryDirectory() as name:
        make_runs(Path(name))
        listing = [_time([*fedge, "list", name]) for _ in range(3)]
        loads = {what: [_load(name, what) for _ in range(3)] for what in ("rounds", "summary")}
    with tempfile.TemporaryDirectory() as name:
        make_runs(Path(name) / "runs", num_rounds=REPORT_ROUNDS)
        command = [*fedge, "report", f"{name}/runs", "-o", f"{name}/report.html"]
        reporting = [_time(command) for _ in range(3)]
    seconds = {"fedge list": statistics.median(listing), "fedge report": statistics.median(reporting)}
    processor = {}
    for what, times in loads.items():
        seconds[f"fedge.load, {what}"] = statistics.median(wall for wall, _ in times)
        processor[f"fedge.load, {what}"] = statistics.median(own for _, own in times)
    return {
        "runs": NUM_RUNS,
        "rounds": NUM_ROUNDS,
        "seconds": seconds,
        "processor_seconds": processor,
        "goals_s": GOALS_S,
    }


def _config(run: int, num_rounds: int) -> dict[str, Any]:
    return {
        "format": 1,
        "name": "made-up",
        "seed": run % 10,
        "rounds": num_rounds,
        "data": {"name": "digits", "clients": 100, "partition": {"name": "shards", "per_client": 2}},
        "model": {"name": "mnist_2nn"},
        "algorithm": {"name": "fedavg", "learning_rate": 0.01 * (1 + run // 10), "batch_size": 20, "local_steps": 10},
        "selection": {"name": "uniform", "fraction": 0.1},
        "edge": {"clock": "fixed", "down_mbps": 20.0, "up_mbps": 5.0, "seconds_per_step": 0.017},
        "evaluate": {"every": 2, "user_accuracy": False, "users": "all"},
        "target": {"metric": "accuracy", "value": 0.9, "stop": False},
        "engine": {"name": "auto", "dtype": "float32"},
    }


def _record(draw: random.Random, number: int) -> dict[str, Any]:
    record: dict[str, Any] = {"round": number, "cohort": 10, "reported": 10, "dropped": 0, "learning_rate": 0.1}
    record |= {"num_local_steps": 10, "train_loss": draw.random(), "messages": 20, "bytes_down": 7969760}
    record |= {"bytes_up": 7969630, "local_steps": 100, "flops": 186507200, "sim_seconds": draw.random()}
    record |= {f"sim_{part}_s": draw.random() for part in ("down", "compute", "up", "wait")}
    if number % 2 == 0:
        record |= {"accuracy": draw.random(), "loss": draw.random()}
    return record | {"seconds": draw.random()}


def _time(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began


def _load(folder: str, what: str) -> tuple[float, float]:
    done = subprocess.run([sys.executable, "-c", _LOAD, folder, what], check=True, capture_output=True, text=True)
    wall, processor, rows = done.stdout.split()
    expected = NUM_RUNS * (NUM_ROUNDS if what == "rounds" else 1)
    if int(rows) != expected:
        raise SystemExit(f"expected {expected} rows, got {rows}")
    return float(wall), float(processor)


if __name__ == "__main__":
    found = run()
    for name, value in found["seconds"].items():
        own = found["processor_seconds"].get(name)
        said = f", {own:.2f} s of processor time" if own is not None else ""
        print(f"{name:<24}{value:8.2f} s{said} (goal: {GOALS_S[name]:g} s)")
