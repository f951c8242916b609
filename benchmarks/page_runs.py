"""Made-up runs in real run directories, for measuring programs that show many of them.

Peers read `describe_runs` in environments without Fedge, so the module needs numpy only.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FEWEST_SEEDS = 5
RATES = (0.01, 0.02, 0.05, 0.1, 0.2)
BATCHES = (5, 10, 20, 40)
NAMES = ("fedavg", "fedprox", "scaffold", "fedavg_adam", "fedgbo", "mimelite", "mfl", "fedadam", "fedmax", "ce_fedavg")


class MadeRun(NamedTuple):
    """One run: its settings that vary, its seed and its accuracy in each round."""

    name: str
    algorithm: str
    rate: float
    batch: int
    seed: int
    accuracy: np.ndarray


def describe_runs(num_runs: int, num_rounds: int) -> Iterator[MadeRun]:
    """Yield runs of a grid of 200 settings with at least five seeds each, the same for every program."""
    num_seeds = max(FEWEST_SEEDS, -(-num_runs // (len(NAMES) * len(RATES) * len(BATCHES))))
    settings = product(NAMES, RATES, BATCHES, range(1, num_seeds + 1))
    rounds = np.arange(1, num_rounds + 1)
    for number, (algorithm, rate, batch, seed) in enumerate(settings):
        if number == num_runs:
            return
        noise = np.random.default_rng(number).normal(0, 0.01, num_rounds)
        pace, best = 30 / (1 + 20 * rate), 0.98 - 0.3 * abs(math.log10(rate / 0.1)) / 2 - 0.001 * batch
        accuracy = np.clip(best * (1 - np.exp(-rounds / pace / 5)) + noise, 0, 1)
        yield MadeRun(f"{algorithm}-{rate}-{batch}-{seed}", algorithm, rate, batch, seed, accuracy)


def write_runs(folder: Path, num_runs: int, num_rounds: int) -> None:
    """Write the runs as Fedge would; records have the fields of a real run of two rounds."""
    import msgspec

    import fedge

    real = fedge.run(
        {
            "rounds": 2,
            "data": {"name": "digits", "clients": 10},
            "model": "logistic",
            "algorithm": "fedavg",
            "target": {"metric": "accuracy", "value": 0.7},
        },
        runs=folder.parent / "real",
        progress=False,
    )
    assert isinstance(real, fedge.Run)
    base_config = msgspec.json.decode((real.path / "config.json").read_bytes())
    environment = (real.path / "environment.json").read_bytes()
    summary: dict[str, Any] = dict(real.summary or {})
    record = dict(real.rounds[-1])
    for made in describe_runs(num_runs, num_rounds):
        path = folder / made.name
        path.mkdir(parents=True)
        config = copy.deepcopy(base_config)
        config |= {
            "name": made.name,
            "seed": made.seed,
            "rounds": num_rounds,
            "id": blake2b(made.name.encode(), digest_size=8).hexdigest(),
        }
        config["algorithm"] |= {"name": made.algorithm, "learning_rate": made.rate, "batch_size": made.batch}
        (path / "config.json").write_bytes(msgspec.json.encode(config))
        (path / "environment.json").write_bytes(environment)
        lines = (
            record | {"round": number, "accuracy": float(value), "loss": float(2 - value)}
            for number, value in enumerate(made.accuracy, 1)
        )
        (path / "rounds.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(lines))
        reached = int(np.argmax(made.accuracy >= 0.7)) + 1 if made.accuracy.max() >= 0.7 else None
        results = {
            "accuracy": float(made.accuracy[-1]),
            "best_accuracy": float(made.accuracy.max()),
            "rounds": num_rounds,
        }
        costs = {
            f"{name}_to_target": record[name] * reached if reached else None for name in ("bytes_up", "bytes_down")
        }
        summary |= results | costs | {"rounds_to_target": reached}
        (path / "summary.json").write_bytes(msgspec.json.encode(summary))
