"""Exports, read back by their tools if these are installed."""

import csv
import json
import re
import sys
from pathlib import Path

import pytest

from fedge.core.errors import ConfigError, FedgeError
from fedge.core.printable import printable
from fedge.report.exports import SINKS, hfl_results
from fedge.report.groups import group_runs
from fedge.runs import Run
from fedge.track.export_names import accepted


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


def test_result_file_of_serena_2020(runs, tmp_path: Path) -> None:
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


def test_a_folder_has_a_file_for_each_group(runs, tmp_path: Path) -> None:
    runs[1].config["algorithm"]["learning_rate"] = 1
    SINKS["hfl-json"](runs, tmp_path / "out")
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["first-0.json", "first-1.json"]
    with pytest.raises(ConfigError, match="holds one group of runs, got 2"):
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


@pytest.fixture
def reaching(tmp_path: Path) -> list[Run]:
    """Two seeds that reach 90% in rounds 2 and 3; the mean, 0.3, 0.875, 0.925, does in 3. A third has no target."""
    for name, target, values, first in (
        ("a", 0.9, (0.5, 0.95, 0.95), 2),
        ("b", 0.9, (0.1, 0.8, 0.9), 3),
        ("c", None, (0.1, 0.1, 0.1), None),
    ):
        path = tmp_path / "runs" / name
        path.mkdir(parents=True)
        config = {"format": 2, "name": "x" if target else "y", "seed": ord(name), "rounds": 3}
        goal = {"metric": "accuracy", "value": target} if target else None
        (path / "config.json").write_text(json.dumps(config | {"target": goal}))
        records = [{"round": i, "accuracy": value} for i, value in enumerate(values, 1)]
        (path / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        (path / "summary.json").write_text(json.dumps({"rounds": 3} | ({"rounds_to_target": first} if first else {})))
    return [Run(tmp_path / "runs" / name) for name in "abc"]


def test_both_rounds_to_target_are_in_csv(reaching, tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="needs the extra `table`")
    SINKS["csv"](reaching, tmp_path / "out.csv")
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    both = [(row["rounds_to_target"], row["rounds_to_target_of_mean"]) for row in rows]
    assert [tuple(float(value or -1) for value in pair) for pair in both] == [(2, 3)] * 3 + [(3, 3)] * 3 + [
        (-1, -1)
    ] * 3


def test_both_rounds_to_target_are_in_parquet(reaching, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra `table`")
    SINKS["parquet"](reaching[:2], tmp_path / "out.parquet")
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table["rounds_to_target"].to_pylist() == [2, 2, 2, 3, 3, 3]
    assert table["rounds_to_target_of_mean"].to_pylist() == [3] * 6


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


LONGEST = "x" * 255
NAMES = [
    "a\x1b[2Jb",
    "a_[2Jb",
    "c?d",
    "c_d",
    "caf\udce9",
    "café",
    LONGEST,
    LONGEST[:-1] + "y",
    "漢" * 80,
    ".hidden",
    "...",
]
"""Names of folders; some differ only in characters that no tool accepts."""
HOSTILE_KEYS = [
    "",
    ".",
    "..",
    "/",
    "a/../b",
    "a//b",
    "a\x00b",
    "a\nb",
    "a?b",
    "a#b",
    "<b>",
    "k" * 400,
    "k" * 401,
    "é漢",
]
EXTREMES = [0.0, -0.0, 5e-324, 1.7e308, -1.7e308, 2**63, -(2**63), 2**70, True, None]


@pytest.fixture
def hostile(tmp_path: Path) -> list[Run]:
    for i, name in enumerate(NAMES):
        path = tmp_path / "hostile" / name
        path.mkdir(parents=True)
        algorithm = {"name": "f\x1b", **{key: HOSTILE_KEYS[-1 - at] for at, key in enumerate(HOSTILE_KEYS)}}
        title = ["", "a/b", "a:b", "a_b", "p" * 300, "p" * 301, "\x1b[2J", "a\x00b"][i % 8]
        config = {"format": 2, "name": title, "seed": 2**63 + i, "rounds": 3, "algorithm": algorithm, "": {"": 2**70}}
        (path / "config.json").write_text(json.dumps(config))
        values = dict(zip(HOSTILE_KEYS, EXTREMES, strict=False))
        records = [{"round": 1, **values}, {"round": 2**53, "seconds": 1e308}, {"round": 3, "seconds": -1e308}]
        (path / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        (path / "summary.json").write_text(json.dumps(values))
        (path / "environment.json").write_text(json.dumps({"started": "0001-01-01T00:00:00"}))
    return [Run(tmp_path / "hostile" / name) for name in NAMES]


def test_accepted_names_are_distinct() -> None:
    for names, limit, refused in (
        (NAMES, 120, "(?!)"),
        (HOSTILE_KEYS, 250, r"[^\w.\- :]"),
        (["漢" * 41, "漢" * 42], 122, "(?!)"),
    ):
        found = [accepted(name, limit, refused) for name in names]
        assert len(set(found)) == len(names)
        for name in found:
            assert 0 < len(name.encode()) <= limit
            assert not name.startswith(".")
            assert not re.search(refused, name)
            assert name == printable(name)
    assert accepted("fedavg+rate-0.1 é", 120) == "fedavg+rate-0.1 é"


def test_tensorboard_accepts_hostile_names_and_numbers(hostile, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs the extra `tensorboard`")
    SINKS["tensorboard"](hostile, tmp_path / "events")
    assert len(list((tmp_path / "events").iterdir())) == len(NAMES)


@pytest.mark.full
def test_mlflow_accepts_hostile_names_and_numbers(hostile, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    tracking = pytest.importorskip("mlflow.tracking", reason="needs the extra `mlflow`")
    SINKS["mlflow"](hostile, tmp_path / "runs.db")
    client = tracking.MlflowClient(f"sqlite:///{tmp_path / 'runs.db'}")
    experiments = [one for one in client.search_experiments() if one.name != "Default"]
    assert len(experiments) == 8  # one for each title: none is mistaken for another
    found = client.search_runs([one.experiment_id for one in experiments])
    assert len({run.info.run_name for run in found}) == len(NAMES)
    for run in found:
        assert run.info.status == "FINISHED"
        assert len([key for key in run.data.params if key.startswith("algorithm.")]) == 1 + len(HOSTILE_KEYS)
        assert {2.0**63, 2.0**70, 1.7e308} <= set(run.data.metrics.values())


@pytest.mark.full
def test_wandb_accepts_hostile_names_and_numbers(hostile, tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="needs the extra `wandb`")
    SINKS["wandb"](hostile, tmp_path / "offline")
    assert len(list((tmp_path / "offline").glob("wandb/offline-run-*/*.wandb"))) == len(NAMES)
