"""Invalid experiments are reported before anything is written, with the exit code of the error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from e2e.command import Fedge
from e2e.experiments import SMALL, Settings, changed, write

MNIST = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)

QUADRATIC = changed(SMALL, data={"name": "synthetic", "kind": "quadratic", "clients": 10}, model={"name": "linear"})

USER_FILE = """
import numpy as np

def nan_inside():
    x = np.zeros((100, 4))
    x[7, 2] = np.nan
    return x, np.zeros(100, int), np.zeros((20, 4)), np.zeros(20, int)

def three_arrays():
    return np.zeros((100, 4)), np.zeros(100, int), np.zeros((20, 4))

def raises():
    raise KeyError("no such column")

def build(shape, num_outputs):
    return shape / num_outputs
"""


def refuse(fedge: Fedge, tmp_path: Path, settings: Settings, code: int, *fragments: str, **options: Any) -> str:
    """Check that the command ends with this code, prints all these texts, and leaves nothing behind."""
    ended = fedge("run", write(tmp_path, settings), "--runs", tmp_path / "runs", **options)
    assert ended.code == code, ended.err
    assert ended.out == ""
    assert ended.err.startswith("error: ")
    assert "Traceback" not in ended.err
    for fragment in fragments:
        assert fragment in ended.err
    assert not (tmp_path / "runs").exists()
    return ended.err


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"rounds": "ten"}, ["rounds: expected int, got 'ten'"]),
        ({"rounds": 0}, ["rounds: expected int >= 1, got 0"]),
        ({"algorithm": {"learning_rate": -1.0}}, ["algorithm.learning_rate: expected float > 0", "got -1"]),
        ({"algorithm": {"learning_rate": float("nan")}}, ["algorithm.learning_rate: ", "got nan"]),
        ({"selection": {"count": 11}}, ["selection.count: ", "10 clients", "got 11"]),
        ({"algorithm": {"batchsize": 5}}, ["algorithm.batchsize: unknown key, did you mean 'batch_size'?"]),
        ({"chekpoint": {"every": 1}}, ["chekpoint: unknown key, did you mean 'checkpoint'?"]),
        ({"algorithm": {"name": "fedagv"}}, ["algorithm.name: unknown name 'fedagv', did you mean 'fedavg'?"]),
        ({"model": {"name": "mnist2nn"}}, ["model.name: unknown name 'mnist2nn', did you mean 'mnist_2nn'?"]),
        ({"data": {"name": "mnits"}}, ["data.name: unknown name 'mnits', did you mean 'mnist'?", "known: ", "digits"]),
        ({"seeds": [1, 2]}, ["seed and seeds exclude each other"]),
        ({"personal": {"private": "bn"}}, ["personal.private: ", "no BatchNorm"]),
        ({"target": {"metric": "user_accuracy", "value": 0.9}}, ["not measured", "evaluate.user_accuracy = true"]),
    ],
)
def test_configuration(fedge: Fedge, tmp_path: Path, changes: Settings, fragments: list[str]) -> None:
    refuse(fedge, tmp_path, changed(SMALL, **changes), 2, *fragments)


@pytest.mark.parametrize(
    ("edge", "fragments"),
    [
        ({"grid": [0, 3]}, ["edge.grid: expected int >= 1, got [0, 3]"]),
        ({"cells": 6, "grid": [2, 2]}, ["edge: grid [2, 2] has 4 cells, but cells is 6; set only one of them"]),
        ({"cells": 11}, ["edge.cells: expected at most one cell per client (10), got 11; lower edge.cells"]),
        ({}, ["edge.cells: ", "one cell per client (10), got 25"]),  # the default number of cells
        ({"cells": 2, "clients_per_cell": [5, 6]}, ["edge.clients_per_cell: ", "add up to the 10 clients, got 11"]),
        ({"cells": 2, "client_power_w": 0.0}, ["edge.client_power_w: expected float > 0.0, got 0"]),
        ({"cells": 2, "bandwidth_hz": -1.0}, ["edge.bandwidth_hz: expected float > 0.0, got -1"]),
        ({"cells": 2, "radius_m": [500.0, 0.0]}, ["edge.radius_m: expected float > 0.0, got [500.0, 0.0]"]),
        ({"cells": 2, "radius_m": [500.0]}, ["edge: radius_m: ", "one for each of 2 cells, got 1"]),
        ({"cells": 2, "devices": [{"share": 0.5}, {"share": 0.4}]}, ["edge: devices: ", "add up to 1, got 0.9"]),
        ({"cells": 2, "trace": "moves.csv", "mobility_rate": 0.1}, ["trace and mobility_rate exclude each other"]),
        ({"clock": "cels"}, ["edge.clock: unknown name 'cels', did you mean 'cells'?; known: cells, fixed"]),
        ({"clock": "fixed", "cells": 3}, ['edge.cells: needs clock = "cells" in the same table']),
    ],
)
def test_edge(fedge: Fedge, tmp_path: Path, edge: Settings, fragments: list[str]) -> None:
    refuse(fedge, tmp_path, changed(SMALL, edge={"clock": "cells", **edge}), 2, *fragments)


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"selection": {"name": "fedcs"}}, ["selection.name is fedcs, which needs a deadline: set edge.deadline_s"]),
        (
            {"cluster": {"round": 2}, "edge": {"clock": "cells", "cells": 2}},
            ["cluster and the cells of edge both divide clients and exclude each other"],
        ),
        (
            {
                "data": {"partition": {"name": "spatial", "grid": [1, 4]}},
                "edge": {"clock": "cells", "grid": [2, 2]},
            },
            ["data.partition: its grid of 1 x 4 cells differs from that of edge, 2 x 2; give both the same"],
        ),
        (
            {
                "data": {"partition": {"name": "spatial", "cells": 2}},
                "edge": {"clock": "cells", "cells": 2, "clients_per_cell": [4, 6]},
            },
            ["data.partition.clients_per_cell: expected the same as edge.clients_per_cell"],
        ),
        ({"edge": {"devices": [{"share": 1.0, "mobility_rate": 0.5}]}}, ["edge.devices: mobility_rate needs cells"]),
    ],
)
def test_edge_beside_other_tables(fedge: Fedge, tmp_path: Path, changes: Settings, fragments: list[str]) -> None:
    refuse(fedge, tmp_path, changed(SMALL, **changes), 2, *fragments)


@pytest.mark.parametrize(
    ("rows", "fragments"),
    [
        (None, ["cannot be read: No such file or directory; expected a CSV file"]),
        ("client,time,cell\n10,0,1", ["line 2: expected client to be a whole number from 0 to 9, got 10"]),
        ("client,time,cell\n0,0,2", ["line 2: expected cell to be a whole number from 0 to 1, got 2"]),
        ("client,time,cell\n0,5,1\n1,0,1\n0,4,0", ["line 4: expected time to be no earlier than", "got 4"]),
        ("client,time\n0,5", ["line 1: expected a header with client, time, cell; there is no 'cell'"]),
    ],
)
def test_mobility_trace(fedge: Fedge, tmp_path: Path, rows: str | None, fragments: list[str]) -> None:
    if rows is not None:
        (tmp_path / "moves.csv").write_text(rows)
    settings = changed(SMALL, edge={"clock": "cells", "cells": 2, "trace": "moves.csv"})
    refuse(fedge, tmp_path, settings, 3, str(tmp_path / "moves.csv"), *fragments)


@pytest.mark.parametrize("clock", [{"clock": "fixed"}, {"clock": "cells", "cells": 2}])
def test_missing_availability_trace(fedge: Fedge, tmp_path: Path, clock: Settings) -> None:
    edge = {**clock, "availability": {"name": "trace", "file": "on.csv"}}
    refuse(fedge, tmp_path, changed(SMALL, edge=edge), 3, f"{tmp_path}/on.csv cannot be read: No such file")


def test_all_problems_at_once(fedge: Fedge, tmp_path: Path) -> None:
    settings = changed(SMALL, rounds="ten", data={"clients": 0}, model={"name": "nm"}, engine={"nam": "loop"})
    said = refuse(fedge, tmp_path, settings, 2, "error: 4 problems\n")
    assert [line.partition(":")[0] for line in said.splitlines()[1:]] == [
        "  - rounds",
        "  - data.clients",
        "  - model.name",
        "  - engine.nam",
    ]


@pytest.mark.parametrize("metric", ["accuracy", "user_accuracy"])
def test_target_of_a_regression(fedge: Fedge, tmp_path: Path, metric: str) -> None:
    target = {"metric": metric, "value": 0.9}
    refuse(fedge, tmp_path, changed(QUADRATIC, target=target, evaluate={"user_accuracy": True}), 2, "target.metric")


def test_unknown_word_names_the_known_ones(fedge: Fedge, tmp_path: Path) -> None:
    target = {"metric": "f1", "value": 0.9}
    refuse(fedge, tmp_path, changed(SMALL, target=target), 2, "target.metric", "f1", "user_accuracy")


def test_infinite_number(fedge: Fedge, tmp_path: Path) -> None:
    settings = changed(SMALL, algorithm={"learning_rate": float("inf")})
    refuse(fedge, tmp_path, settings, 2, "algorithm.learning_rate")


@pytest.mark.parametrize(
    ("text", "fragment"),
    [("rounds = [", "is not valid TOML"), ("", "algorithm: is required"), (None, "cannot be read")],
)
def test_file(fedge: Fedge, tmp_path: Path, text: str | None, fragment: str) -> None:
    file = tmp_path / "some.toml"
    if text is not None:
        file.write_text(text)
    ended = fedge("run", file, folder=tmp_path)
    assert ended.code == 2
    assert fragment in ended.err


def test_more_clients_than_samples(fedge: Fedge, tmp_path: Path) -> None:
    # every fifth of the 1,797 digits is a test sample: 359
    refuse(fedge, tmp_path, changed(SMALL, data={"clients": 1439}), 3, "data.clients", "1439 clients", "at most 1438")


def test_missing_files(fedge: Fedge, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    said = refuse(fedge, tmp_path, changed(SMALL, data={"name": "mnist", "dir": str(folder)}), 3, str(folder / "mnist"))
    assert all(name in said for name in MNIST)


def test_one_missing_file(fedge: Fedge, tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    for name in MNIST[:3]:
        (tmp_path / "mnist" / name).write_bytes(b"")
    environment = {"FEDGE_DATA": str(tmp_path)}
    said = refuse(fedge, tmp_path, changed(SMALL, data={"name": "mnist"}), 3, MNIST[3], environment=environment)
    assert not any(name in said for name in MNIST[:3])


def test_corrupt_file(fedge: Fedge, tmp_path: Path) -> None:
    for name in MNIST:
        (tmp_path / name).write_bytes(b"not what was published")
    settings = changed(SMALL, data={"name": "mnist", "dir": str(tmp_path)})
    refuse(fedge, tmp_path, settings, 3, str(tmp_path / MNIST[0]), "corrupt", "22 bytes", "get it again")


@pytest.mark.parametrize(
    ("table", "function", "code", "fragments"),
    [
        ("data", "nan_inside", 3, ["x_train: 1 of 400 numbers are NaN"]),
        ("data", "three_arrays", 3, ["(x_train, y_train, x_test, y_test), got tuple of 3"]),
        ("data", "raises", 3, ["failed: KeyError: 'no such column' (line 13 of "]),
        ("data", "raise", 2, ["defines no 'raise', did you mean 'raises'?"]),
        ("model", "build", 4, ["failed: TypeError: ", "(line 16 of "]),
    ],
)
def test_user_file(fedge: Fedge, tmp_path: Path, table: str, function: str, code: int, fragments: list[str]) -> None:
    file = tmp_path / "mine.py"
    file.write_text(USER_FILE)
    settings = changed(SMALL, **{table: {"name": f"mine.py:{function}"}})
    refuse(fedge, tmp_path, settings, code, f"{table}.name: ", str(file), *fragments)


def test_user_file_that_cannot_be_imported(fedge: Fedge, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import there_is_no_such_module\n")
    settings = changed(SMALL, data={"name": "mine.py:load"})
    refuse(fedge, tmp_path, settings, 2, "data.name", "ModuleNotFoundError", "(line 1 of ")


def test_model_that_does_not_fit(fedge: Fedge, tmp_path: Path) -> None:
    refuse(fedge, tmp_path, changed(QUADRATIC, model={"name": "mtfl_cnn"}), 4, "model.name", "(20,)")
