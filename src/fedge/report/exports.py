"""Runs for other tools: tables, TensorBoard, MLflow, Weights & Biases, the result file of Serena (2020).

Each tool is an extra, which is imported on first use. Nothing here uses the network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from fedge.core.effect import settings
from fedge.core.errors import ConfigError, RunError
from fedge.core.extras import need
from fedge.core.storage import write_atomic, writing
from fedge.report.frames import frame
from fedge.report.groups import RunGroup, group_runs
from fedge.report.mean_curve import ROUNDS_OF_MEAN, rounds_of_mean
from fedge.report.run_results import outcome
from fedge.report.statistics import average, to_target
from fedge.runs import Run
from fedge.runs.files import encode_pretty
from fedge.track.export_names import named_runs
from fedge.track.sinks import (
    MAX_BYTES,
    MlflowSink,
    Sink,
    SinkRun,
    TensorBoardSink,
    WandbSink,
    quiet_tools,
)

_AGAIN = "export again"
_LAST_MS = 2.0**52  # the latest time that is written; databases store times in 64 bits


def export_csv(runs: Sequence[Run], path: Path) -> None:
    """Write one row per round of each run, as `fedge.load` returns them, with the rounds to target."""
    table = frame(runs, to_target=True)
    with _new_file(path):
        table.to_csv(path, index=False) if hasattr(table, "to_csv") else table.write_csv(path)


def export_parquet(runs: Sequence[Run], path: Path) -> None:
    """Write the same rows as a typed and much smaller Parquet file."""
    table = frame(runs, to_target=True)
    with _new_file(path):
        if hasattr(table, "write_parquet"):
            table.write_parquet(path)
        else:
            need("pyarrow", "table")
            table.to_parquet(path, engine="pyarrow", index=False)


def export_hfl_json(runs: Sequence[Run], path: Path) -> None:
    """Write the result file of Serena (2020): `config`, and `results` with the mean over seeds of each round.

    A path that ends in .json is a file for one group of runs; any other path is a folder with a file per group.
    """
    groups = group_runs(runs)
    if path.suffix == ".json":
        if len(groups) != 1:
            raise ConfigError(f"{path}: a .json file holds one group of runs, got {len(groups)}; name a folder")
        files = [path]
    else:
        files = [path / f"{_plain_name(group)}-{i}.json" for i, group in enumerate(groups)]
    for file, group in zip(files, groups, strict=True):
        with _new_file(file):
            write_atomic(file, encode_pretty(hfl_results(group)))


def export_tensorboard(runs: Sequence[Run], path: Path) -> None:
    """Write a folder of event files, with a subfolder per run: `tensorboard --logdir PATH`."""
    for name, run in named_runs(runs, MAX_BYTES):
        with writing(path, _AGAIN):
            _tell(TensorBoardSink(path / name), name, run)


def export_mlflow(runs: Sequence[Run], path: Path) -> None:
    """Write an SQLite file for MLflow: `mlflow ui --backend-store-uri sqlite:///PATH`."""
    with quiet_tools():
        for name, run in named_runs(runs, MAX_BYTES):
            with _new_file(path):
                folder = path.resolve().with_suffix(".artifacts").as_uri()
                title = str(run.config.get("name", "fedge"))
                sink = MlflowSink(f"sqlite:///{path.resolve()}", title, folder)
            _tell(sink, name, run)


def export_wandb(runs: Sequence[Run], path: Path) -> None:
    """Write a folder of offline runs for `wandb sync`."""
    with quiet_tools():
        for name, run in named_runs(runs, MAX_BYTES):
            with writing(path, _AGAIN):
                sink = WandbSink(path, str(run.config.get("name", "fedge")))
            _tell(sink, name, run)


def _tell(sink: Sink, name: str, run: Run) -> None:
    """Write a complete run to a tool."""
    sink.open(SinkRun(name, run.config, started_ms=_started_ms(run)))
    sink.log(run.rounds, [time_ms for _, time_ms in _timed(run)])
    sink.close(run.summary)


SINKS: Mapping[str, Callable[[Sequence[Run], Path], None]] = {
    "csv": export_csv,
    "parquet": export_parquet,
    "tensorboard": export_tensorboard,
    "mlflow": export_mlflow,
    "wandb": export_wandb,
    "hfl-json": export_hfl_json,
}


def hfl_results(group: RunGroup) -> dict[str, Any]:
    """Return the content of the result file of Serena (2020), section 4.1.5.

    A metric keeps its value until it is measured again; it is null before its first measurement, and in rounds where no
    run has it. With a target, `rounds_to_target` is the mean over seeds of the first round that reached it, and
    `rounds_to_target_of_mean` the first round in which the mean over seeds did.
    """
    fields = {"train_accuracy": "train_accuracy", "test_accuracy": "accuracy"}
    fields |= {"latency": "sim_seconds", "weight_divergence": "weight_divergence"}
    results: dict[str, Any] = {
        name: _mean_by_round([_carried(run.rounds, field) for run in group.runs]) for name, field in fields.items()
    }
    latencies = [record["sim_seconds"] for run in group.runs for record in run.rounds if "sim_seconds" in record]
    results["latency_median"] = median(latencies) if latencies else None
    if group.target is not None:
        reached = to_target([outcome(run, "rounds_to_target") for run in group.runs]).estimate
        results["rounds_to_target"] = reached.mean if reached else None
        results[ROUNDS_OF_MEAN] = rounds_of_mean(group)
    return {"config": _hfl_config(group.runs[0].config), "results": results}


def _hfl_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings under the names of Serena (2020), section 4.1.1, and all of them under `fedge`."""
    flat = dict(settings(config))
    names = {
        "n_clusters": flat.get("edge.cells", 1),
        "n_clients": flat.get("data.clients"),
        "server_global_rate": flat.get("edge.global_every", 1),
        "client_selection_fraction": flat.get("selection.fraction"),
        "mobility_rate": flat.get("edge.mobility_rate"),
        "move_to_neighbours": flat.get("edge.move_to") == "neighbours" if "edge.move_to" in flat else None,
        "model_type": flat.get("model.name"),
        "dataset_name": flat.get("data.name"),
        "dataset_distribution": flat.get("data.partition.name"),
        "client_algorithm": flat.get("algorithm.name"),
        "client_batch_size": flat.get("algorithm.batch_size"),
        "client_n_epochs": flat.get("algorithm.local_steps"),
        "client_lr": flat.get("algorithm.learning_rate"),
        "stop_condition": "rounds",
        "stop_value": flat.get("rounds"),
    }
    return {name: value for name, value in names.items() if value is not None} | {"fedge": dict(config)}


def _carried(rounds: Sequence[Mapping[str, Any]], field: str) -> list[float | None]:
    last, found = None, []
    for record in rounds:
        last = record.get(field, last)
        found.append(last)
    return found


def _mean_by_round(seeds: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Return the mean over the seeds that have a value; a seed that ended early has none afterwards."""
    longest = max(map(len, seeds))
    rounds = [[seed[i] for seed in seeds if i < len(seed)] for i in range(longest)]
    known = [[value for value in values if value is not None] for values in rounds]
    return [average(values) if values else None for values in known]


def _started_ms(run: Run) -> int:
    try:
        return max(0, int(datetime.fromisoformat(run.environment["started"]).timestamp() * 1000))
    except (KeyError, ValueError, TypeError, OverflowError, RunError):  # not known
        return 0


def _timed(run: Run) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Yield the records with the time of each, if known."""
    now = float(_started_ms(run))
    for record in run.rounds:
        now = min(max(0.0, now + 1000 * (record.get("seconds") or 0.0)), _LAST_MS)
        yield record, int(now)


def _plain_name(group: RunGroup) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", str(group.runs[0].config.get("name", "run")))


@contextmanager
def _new_file(path: Path) -> Iterator[None]:
    with writing(path, _AGAIN):
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
