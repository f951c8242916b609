"""Fake run directories of any size, for measurements and tests of the results page.

Peers import it in environments without Fedge, so it requires only the standard library.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from math import exp
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

SETTINGS: dict[str, Any] = {
    "data": {"name": "digits", "clients": 20, "partition": {"name": "shards", "per_client": 2}, "dir": None},
    "model": {"name": "logistic", "weights": None},
    "algorithm": {"name": "fedavg", "learning_rate": 0.1, "batch_size": 20, "local_steps": 10, "weighting": "samples"},
    "reduce": {"name": "mean", "max_norm": None, "on_bad": None},
    "selection": {"name": "uniform", "fraction": 0.5, "rounding": "up"},
    "edge": {"clock": "fixed", "down_mbps": 20.0, "up_mbps": 5.0, "seconds_per_step": 0.017, "record": False},
    "evaluate": {"every": 1, "user_accuracy": True, "users": "all", "train": False, "metrics": []},
    "target": {"metric": "accuracy", "value": 0.8, "stop": False},
    "engine": {"name": "auto", "workers": None, "dtype": "float32"},
}
_COSTS = {
    "messages": 20,
    "bytes_down": 316_200,
    "bytes_up": 315_560,
    "local_steps": 100,
    "flops": 48_610_000,
    "sim_seconds": 0.2331376,
    "energy_j": 8.6009792,
    "seconds": 0.021,
}
_PARTS = {"sim_down_s": 0.012648, "sim_compute_s": 0.17, "sim_up_s": 0.0504896, "sim_wait_s": 0.0}


def make_records(seed: int, rounds: int, rate: float = 0.1) -> list[dict[str, Any]]:
    """Return records with an accuracy that increases with the rounds and with the learning rate."""
    random = Random(seed)
    found = []
    for number in range(1, rounds + 1):
        accuracy = min(1.0, max(0.0, (1 - exp(-number * rate)) * 0.92 + random.gauss(0, 0.01)))
        users = {"user_accuracy": accuracy * 0.98, "user_accuracy_std": 0.1, "user_accuracy_min": accuracy / 2}
        metrics = {"train_loss": 2.3 * (1 - accuracy), "accuracy": accuracy, "loss": 2 * (1 - accuracy), **users}
        clients = {"cohort": 10, "reported": 10, "dropped": 0, "learning_rate": rate, "num_local_steps": 10}
        found.append({"round": number, **clients, **_COSTS, **_PARTS, **metrics, "clock": "simulated"})
    return found


def summarise(records: Sequence[dict[str, Any]], target: float = 0.8) -> dict[str, Any]:
    """Return the summary of such records."""
    last = records[-1]
    reached = next((i + 1 for i, record in enumerate(records) if record["accuracy"] >= target), None)
    found: dict[str, Any] = {"rounds": len(records), "ended_by": "rounds"}
    found |= {name: last[name] for name in ("accuracy", "user_accuracy", "loss")}
    found |= {"best_accuracy": max(r["accuracy"] for r in records), "best_loss": min(r["loss"] for r in records)}
    found |= {name: value * len(records) for name, value in _COSTS.items()}
    found["rounds_to_target"] = reached
    for name in ("bytes_down", "bytes_up", "flops", "sim_seconds", "energy_j"):
        found[f"{name}_to_target"] = None if reached is None else _COSTS[name] * reached
    return found


def make_run(
    path: Path,
    seed: int = 1,
    rounds: int = 10,
    rate: float = 0.1,
    name: str | None = None,
    finished: bool = True,
    **changes: Any,
) -> Path:
    """Write a run directory; `changes` replace sections of its settings."""
    path.mkdir(parents=True, exist_ok=True)
    settings = json.loads(json.dumps(SETTINGS)) | changes
    settings["algorithm"]["learning_rate"] = rate
    mark = {"format": 2, "id": f"{Random(bytes(path)).getrandbits(64):016x}", "generation": 1, "code": {}}
    config = {"name": name or path.parent.name, "seed": seed, "rounds": rounds, **settings, **mark}
    config |= {"without_effect": ["data.dir", "edge.record", "engine.workers"], "metrics": []}
    (path / "config.json").write_text(json.dumps(config, indent=2))
    (path / "environment.json").write_text(json.dumps({"fedge": "0.2.0", "started": "2026-11-18T04:17:11+00:00"}))
    records = make_records(seed, rounds, rate)
    (path / "rounds.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    if finished and records:
        (path / "summary.json").write_text(json.dumps(summarise(records)))
    return path


class RunOutline(NamedTuple):
    """One of many runs, identical for every program."""

    name: str
    seed: int
    rate: float

    def records(self, rounds: int) -> list[dict[str, Any]]:
        return make_records(self.seed, rounds, self.rate)


def outline_runs(num_runs: int, num_seeds: int = 5) -> Iterator[RunOutline]:
    """Yield the runs of a sweep over the learning rate, with several seeds each."""
    for number in range(num_runs):
        point, seed = divmod(number, num_seeds)
        rate = 0.01 * (1 + point)
        yield RunOutline(f"rate-{rate:.2f}/seed-{seed + 1}", seed + 1, rate)


def make_runs(folder: Path, num_runs: int, rounds: int) -> None:
    """Write many runs, in one sweep."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sweep.json").write_text("{}")
    for run in outline_runs(num_runs):
        make_run(folder / run.name, run.seed, rounds, run.rate)
