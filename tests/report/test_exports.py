"""Exports, read back by the tools they are for where these are installed."""

import csv
import json
import sys
from pathlib import Path

import pytest

from fedge.core.errors import ConfigError, FedgeError
from fedge.report.exports import SINKS, hfl_results
from fedge.report.groups import group_runs
from fedge.runs import Run


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    found = []
    for seed, latencies in ((1, (1.0, 2.0, 9.0)), (2, (3.0, 4.0))):
        path = tmp_path / "runs" / f"seed-{seed}"
        path.mkdir(parents=True)
        algorithm = {"name": "fedavg", "learning_rate": 0.5, "batch_size": 20}
        config = {"format": 1, "name": "first", "seed": seed, "rounds": 3, "algorithm": algorithm}
        (path / "config.json").write_text(json.dumps(config | {"data": {"name": "digits", "clients": 7}}))
        records = [{"round": i, "sim_seconds": latency} for i, latency in enumerate(latencies, 1)]
        records[1]["accuracy"] = seed / 4
        (path / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        (path / "summary.json").write_text("{}")
        found.append(Run(path))
    return found


def test_result_file_of_the_hierarchical_document(runs, tmp_path: Path) -> None:
    SINKS["hfl-json"](runs, tmp_path / "out" / "first.json")
    found = json.loads((tmp_path / "out" / "first.json").read_text())
    assert found["results"] == {
        "train_accuracy": [None, None, None],
        # null before it is measured, then kept; from round 3 on there is only the first seed
        "test_accuracy": [None, 0.375, 0.25],
        "latency": [2.0, 3.0, 9.0],
        "weight_divergence": [None, None, None],
        "latency_median": 3.0,
    }
    assert found["config"]["n_clients"] == 7
    assert found["config"]["client_lr"] == 0.5
    assert found["config"]["fedge"]["algorithm"]["name"] == "fedavg"


def test_a_folder_has_a_file_for_each_setting(runs, tmp_path: Path) -> None:
    runs[1].config["algorithm"]["learning_rate"] = 1
    SINKS["hfl-json"](runs, tmp_path / "out")
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["first-0.json", "first-1.json"]
    with pytest.raises(ConfigError, match="holds one setting, got 2"):
        SINKS["hfl-json"](runs, tmp_path / "out.json")


def test_a_run_without_rounds(runs) -> None:
    (runs[0].path / "rounds.jsonl").write_text("")
    found = hfl_results(group_runs([Run(runs[0].path)])[0])
    assert found["results"]["test_accuracy"] == []
    assert found["results"]["latency_median"] is None


def test_csv(runs, tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="needs the extra `table`")
    SINKS["csv"](runs, tmp_path / "out.csv")
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["sim_seconds"] for row in rows] == ["1.0", "2.0", "9.0", "3.0", "4.0"]
    assert [row["accuracy"] for row in rows] == ["", "0.25", "", "", "0.5"]
    assert {row["algorithm.name"] for row in rows} == {"fedavg"}


def test_parquet(runs, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra `table`")
    SINKS["parquet"](runs, tmp_path / "out.parquet")
    assert parquet.read_table(tmp_path / "out.parquet")["round"].to_pylist() == [1, 2, 3, 1, 2]


def test_tensorboard(runs, tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="needs the extra")
    SINKS["tensorboard"](runs, tmp_path / "events")
    found = reader.EventAccumulator(str(tmp_path / "events" / "seed-1"))
    found.Reload()
    assert [(event.step, event.value) for event in found.Scalars("sim_seconds")] == [(1, 1), (2, 2), (3, 9)]
    assert [(event.step, event.value) for event in found.Scalars("accuracy")] == [(2, 0.25)]


@pytest.mark.full
def test_mlflow(runs, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    tracking = pytest.importorskip("mlflow.tracking", reason="needs the extra `mlflow`")
    SINKS["mlflow"](runs, tmp_path / "runs.db")
    client = tracking.MlflowClient(f"sqlite:///{tmp_path / 'runs.db'}")
    (experiment,) = [one for one in client.search_experiments() if one.name == "first"]
    found = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert set(found) == {"seed-1", "seed-2"}
    assert found["seed-1"].data.params["algorithm.learning_rate"] == "0.5"
    history = client.get_metric_history(found["seed-1"].info.run_id, "sim_seconds")
    assert [(metric.step, metric.value) for metric in history] == [(1, 1), (2, 2), (3, 9)]


@pytest.mark.full
def test_wandb(runs, tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="needs the extra `wandb`")
    SINKS["wandb"](runs, tmp_path / "offline")
    assert len(list((tmp_path / "offline").glob("wandb/offline-run-*/*.wandb"))) == 2


@pytest.mark.parametrize(
    ("kind", "module", "extra"),
    [
        ("parquet", "pyarrow", "table"),
        ("tensorboard", "tensorboard", "tensorboard"),
        ("mlflow", "sqlalchemy", "mlflow"),
        ("wandb", "wandb", "wandb"),
    ],
)
def test_a_missing_package_names_its_extra(runs, tmp_path: Path, monkeypatch, kind, module, extra) -> None:
    pytest.importorskip("pandas", reason="needs the extra `table`")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(FedgeError, match=rf"needs {module}.*pip install 'fedge\[{extra}\]'"):
        SINKS[kind](runs, tmp_path / "out")
