"""Runs for other tools: tables, TensorBoard, MLflow, Weights & Biases, the hierarchical document's result file.

Each of the tools is an extra, which is imported when it is used. Nothing here speaks to the network.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from importlib import import_module
from pathlib import Path
from statistics import fmean, median
from typing import Any

from fedge.core.errors import ConfigError, FedgeError, RunError
from fedge.core.printable import printable
from fedge.core.storage import write_atomic, writing
from fedge.report.export_names import accepted, named_runs
from fedge.report.frames import frame
from fedge.report.groups import RunGroup, group_runs, settings
from fedge.report.mean_curve import ROUNDS_OF_MEAN, rounds_of_mean
from fedge.report.outcomes import outcome
from fedge.report.statistics import to_target
from fedge.runs import Run
from fedge.runs.files import encode_pretty

_AGAIN = "export again"
_LAST_MS = 2.0**52  # of a time, far from now; databases store times in 64 bits
_MAX_BYTES = 120  # of names: MLflow takes 250, Weights & Biases 128, a folder 255
_NOT_IN_KEYS = r"[^\w.\- :]"  # MLflow also accepts some slashes, but not all
_NOT_IN_PROJECTS = r"[/\\#?%:]"  # of Weights & Biases


def export_csv(runs: Sequence[Run], path: Path) -> None:
    """A row for each round of each run, as `fedge.load` has them, and when the run and the mean reached the target."""
    table = frame(runs, to_target=True)
    with _new_file(path):
        table.to_csv(path, index=False) if hasattr(table, "to_csv") else table.write_csv(path)


def export_parquet(runs: Sequence[Run], path: Path) -> None:
    """The same, with types and much smaller."""
    table = frame(runs, to_target=True)
    with _new_file(path):
        if hasattr(table, "write_parquet"):
            table.write_parquet(path)
        else:
            _need("pyarrow", "table")
            table.to_parquet(path, engine="pyarrow", index=False)


def export_hfl_json(runs: Sequence[Run], path: Path) -> None:
    """The document's result file: `config`, and `results` with the mean over seeds of each round.

    A path that ends in .json is the file of one setting; any other is a folder with a file for each.
    """
    groups = group_runs(runs)
    if path.suffix == ".json":
        if len(groups) != 1:
            raise ConfigError(f"{path}: holds one setting, got {len(groups)}; name a folder, or fewer runs")
        files = [path]
    else:
        files = [path / f"{_plain_name(group)}-{i}.json" for i, group in enumerate(groups)]
    for file, group in zip(files, groups, strict=True):
        with _new_file(file):
            write_atomic(file, encode_pretty(hfl_results(group)))


def export_tensorboard(runs: Sequence[Run], path: Path) -> None:
    """A folder of event files, one below it for each run: `tensorboard --logdir PATH`."""
    _need("tensorboard", "tensorboard")
    writer = import_module("torch.utils.tensorboard").SummaryWriter
    for name, run in named_runs(runs, _MAX_BYTES):
        with writing(path, _AGAIN), writer(str(path / name)) as events:
            lines = (printable(f"    {key} = {value}") for key, value in settings(run.config))
            events.add_text("config", "\n".join(lines))
            for record in run.rounds:
                for field, value in _numbers(record):
                    events.add_scalar(field, value, record["round"])


def export_mlflow(runs: Sequence[Run], path: Path) -> None:
    """An SQLite file that MLflow opens: `mlflow ui --backend-store-uri sqlite:///PATH`."""
    with _variables(MLFLOW_DISABLE_TELEMETRY="true", DO_NOT_TRACK="true"):
        for module in ("sqlalchemy", "alembic"):
            _need(module, "mlflow")
        tracking, entities = _need("mlflow.tracking", "mlflow"), import_module("mlflow.entities")
        with _new_file(path):
            client = tracking.MlflowClient(f"sqlite:///{path.resolve()}")
        experiments: dict[str, str] = {}
        for name, run in named_runs(runs, _MAX_BYTES):
            title = accepted(str(run.config.get("name", "fedge")), _MAX_BYTES)
            if title not in experiments:
                known = client.get_experiment_by_name(title)
                folder = path.resolve().with_suffix(".artifacts").as_uri()
                experiments[title] = known.experiment_id if known else client.create_experiment(title, folder)
            made = client.create_run(experiments[title], run_name=accepted(name, 250), start_time=_started_ms(run))
            params = [
                entities.Param(_key(key), printable(str(value)))
                for key, value in settings(run.config)
                if value is not None
            ]
            metrics = [
                entities.Metric(_key(field), value, time_ms, record["round"])
                for record, time_ms in _timed(run)
                for field, value in _numbers(record)
            ]
            for start in range(0, max(len(metrics), len(params)), 100):  # it takes so many params in one call
                part = slice(start, start + 100)
                client.log_batch(made.info.run_id, metrics=metrics[part], params=params[part])
            status = "FINISHED" if run.summary is not None else "KILLED"
            client.set_terminated(made.info.run_id, status=status)


def export_wandb(runs: Sequence[Run], path: Path) -> None:
    """A folder of offline runs, which `wandb sync` uploads if one wants that."""
    with _variables(WANDB_ERROR_REPORTING="false"):
        wandb = _need("wandb", "wandb")
        with writing(path, _AGAIN):
            path.mkdir(parents=True, exist_ok=True)
        quiet = wandb.Settings(console="off", silent=True, disable_git=True, x_disable_meta=True, x_disable_stats=True)
        for name, run in named_runs(runs, _MAX_BYTES):
            project = accepted(str(run.config.get("name", "fedge")), _MAX_BYTES, _NOT_IN_PROJECTS)
            options = {"config": dict(run.config), "mode": "offline", "settings": quiet, "reinit": "finish_previous"}
            made = wandb.init(dir=str(path), project=project, name=accepted(name, _MAX_BYTES), **options)
            for record in run.rounds:
                made.log(dict(_numbers(record)), step=record["round"])
            for key, value in (run.summary or {}).items():
                made.summary[key] = value
            made.finish()


SINKS: Mapping[str, Callable[[Sequence[Run], Path], None]] = {
    "csv": export_csv,
    "parquet": export_parquet,
    "tensorboard": export_tensorboard,
    "mlflow": export_mlflow,
    "wandb": export_wandb,
    "hfl-json": export_hfl_json,
}


def hfl_results(group: RunGroup) -> dict[str, Any]:
    """The content of the document's result file (its section 4.1.5).

    A metric keeps its value until it is measured again; it is null before it first was, and where no run of a
    round has it. With a target, `rounds_to_target` is the mean over seeds of the first round that reached it, and
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
    """The settings under the document's names (its section 4.1.1), as far as there are such, and all under `fedge`."""
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
    """Over the seeds that have a value; a seed that ended early has none from then on."""
    longest = max(map(len, seeds))
    rounds = [[seed[i] for seed in seeds if i < len(seed)] for i in range(longest)]
    known = [[value for value in values if value is not None] for values in rounds]
    return [fmean(values) if values else None for values in known]


def _numbers(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for field, value in record.items():
        if field != "round" and isinstance(value, int | float):
            yield field, float(value)


def _key(name: str) -> str:
    """Return the name of a setting or field as MLflow accepts it."""
    return accepted(name, 250, _NOT_IN_KEYS)


def _started_ms(run: Run) -> int:
    try:
        return max(0, int(datetime.fromisoformat(run.environment["started"]).timestamp() * 1000))
    except (KeyError, ValueError, TypeError, OverflowError, RunError):  # not known
        return 0


def _timed(run: Run) -> Iterator[tuple[Mapping[str, Any], int]]:
    """The records with the time at which each was made, as far as it is known."""
    now = float(_started_ms(run))
    for record in run.rounds:
        now = min(max(0.0, now + 1000 * (record.get("seconds") or 0.0)), _LAST_MS)
        yield record, int(now)


def _plain_name(group: RunGroup) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", str(group.runs[0].config.get("name", "run")))


def _need(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        name = module.partition(".")[0]
        raise FedgeError(f"this needs {name}, which is not installed; pip install 'fedge[{extra}]'") from None


@contextmanager
def _new_file(path: Path) -> Iterator[None]:
    with writing(path, _AGAIN):
        path.parent.mkdir(parents=True, exist_ok=True)
        yield


@contextmanager
def _variables(**values: str) -> Iterator[None]:
    """Environment variables for a while; those that are set already stay."""
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
