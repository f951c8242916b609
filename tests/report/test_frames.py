"""All runs as one table, in any state of the runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedge
from fedge.core.errors import ConfigError, FedgeError, RunError
from fedge.report import frames as table
from fedge.report.columns import read_rounds
from fedge.runs import Run

pandas = pytest.importorskip("pandas", reason="needs the extra `table`")


def write_run(path: Path, records: list[dict[str, Any]], summary: dict[str, Any] | None = None, **config: Any) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"format": 1, "name": path.name, **config}))
    (path / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    if summary is not None:
        (path / "summary.json").write_text(json.dumps(summary))
    return path


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    first = [{"round": 1, "loss": 2.5}, {"round": 2, "loss": 1.5, "accuracy": 0.25}]
    rest = {"algorithm": {"name": "fedavg", "rate": 0.5, "steps": None}, "seeds": None, "codec": ["a", "b"]}
    write_run(tmp_path / "a", first, {"rounds": 2, "accuracy": 0.25, "rounds_to_target": None}, rounds=2, **rest)
    write_run(tmp_path / "b", [{"round": 1, "loss": 3}], None, rounds=9, algorithm={"name": "scaffold", "rate": 1})
    return tmp_path


def test_a_row_for_each_round_with_the_settings(runs: Path) -> None:
    found = fedge.load(runs)
    assert list(found["run"]) == [str(runs / "a")] * 2 + [str(runs / "b")]
    assert list(found["algorithm.name"]) == ["fedavg", "fedavg", "scaffold"]
    assert list(found["algorithm.rate"]) == [0.5, 0.5, 1]
    assert list(found["round"]) == [1, 2, 1]
    assert list(found["loss"]) == [2.5, 1.5, 3]
    assert found["accuracy"].isna().tolist() == [True, False, True]
    assert found["round"].dtype == np.int64
    assert found["codec"].tolist()[:2] == ['["a","b"]'] * 2
    assert not {"algorithm.steps", "seeds", "format"} & set(found.columns)


def test_a_row_for_each_run(runs: Path) -> None:
    found = fedge.load(str(runs), what="summary")
    assert list(found["status"]) == ["complete", "unfinished"]
    assert found["rounds"].tolist()[0] == 2
    assert list(found["config.rounds"]) == [2, 9]
    assert "rounds_to_target" not in found.columns


def test_a_row_for_each_run_has_the_rounds_to_target_of_the_mean(tmp_path: Path) -> None:
    target = {"metric": "accuracy", "value": 0.9, "stop": False}
    for seed, (values, first) in enumerate([((0.5, 0.95, 0.95), 2), ((0.1, 0.8, 0.9), 3)]):
        path = tmp_path / f"seed-{seed}"
        write_run(
            path, [{"round": i + 1, "accuracy": v} for i, v in enumerate(values)], name="a", seed=seed, target=target
        )
        (path / "summary.json").write_text(json.dumps({"rounds": 3, "rounds_to_target": first}))
    found = fedge.load(tmp_path, what="summary")
    assert list(found["rounds_to_target"]) == [2, 3]
    assert list(found["rounds_to_target_of_mean"]) == [3, 3]  # means 0.3, 0.875, 0.925


def test_polars_is_used_if_pandas_is_not_installed(runs: Path, monkeypatch) -> None:
    polars = pytest.importorskip("polars")
    monkeypatch.setattr(table, "find_spec", lambda name: None if name == "pandas" else name)
    found = fedge.load(runs)
    assert isinstance(found, polars.DataFrame)
    assert found["accuracy"].to_list() == [None, 0.25, None]
    assert found["algorithm.name"].to_list() == ["fedavg", "fedavg", "scaffold"]


def test_neither_installed(runs: Path, monkeypatch) -> None:
    monkeypatch.setattr(table, "find_spec", lambda name: None)
    with pytest.raises(FedgeError, match=r"pip install 'fedge\[table\]'"):
        fedge.load(runs)


def test_unreadable_runs_are_left_out_with_a_warning(runs: Path) -> None:
    write_run(runs / "newer", [], format=7)
    write_run(runs / "foreign", [], format=None)
    (runs / "half").mkdir()
    (runs / "half" / "environment.json").write_text("{}")
    with pytest.warns(UserWarning, match="left out") as said:
        found = fedge.load(runs)
    assert len(found) == 3
    reasons = " ".join(str(one.message) for one in said)
    assert "has format 7" in reasons
    assert "is not a run of fedge" in reasons
    assert "expected config.json" in reasons


def test_no_runs(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no runs in"):
        fedge.load(tmp_path)
    with pytest.raises(RunError, match="no directory at"):
        fedge.load(tmp_path / "absent")


def test_an_unknown_table_is_refused(runs: Path) -> None:
    with pytest.raises(ConfigError, match="got 'clients'"):
        fedge.load(runs, what="clients")


def test_import_needs_no_pandas() -> None:
    import subprocess

    code = "import sys, fedge, fedge.report.frames; print('pandas' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


NAMES = ("own", "a", "b_with_a_name_of_more_than_31_letters")
VALUES = st.one_of(st.integers(-(2**40), 2**40), st.floats(allow_nan=False, allow_infinity=False))
RECORDS = st.lists(st.dictionaries(st.sampled_from(NAMES), VALUES), max_size=6)
ODD = st.one_of(VALUES, st.none(), st.booleans(), st.text('aé\n"\\', max_size=3))
ODD_RECORDS = st.lists(st.dictionaries(st.sampled_from(NAMES), ODD), max_size=4)


@settings(max_examples=60)
@given(st.lists(st.one_of(RECORDS, ODD_RECORDS), min_size=1, max_size=4))
def test_columns_equal_the_records(tmp_path_factory, written) -> None:
    folder = tmp_path_factory.mktemp("runs")
    written = [[{"round": i + 1} | record for i, record in enumerate(records)] for records in written]
    runs = [Run(write_run(folder / str(i), records)) for i, records in enumerate(written)]
    found = read_rounds(runs)
    assert found.lengths == [len(records) for records in written]
    rows = [record for records in written for record in records]
    assert set(found.columns) == {name for row in rows for name in row}
    for name, column in found.columns.items():
        for value, row in zip(column.tolist(), rows, strict=True):
            missing = row.get(name) is None
            assert (value is None or value != value) if missing else value == row[name]


def test_twenty_fields_are_decoded_at_their_offsets(tmp_path: Path) -> None:
    """With sixteen or more fields, the head of a MessagePack row is longer."""
    rows = [{"round": row + 1} | {f"field_{i}": i + row / 4 for i in range(20)} for row in range(3)]
    found = read_rounds([Run(write_run(tmp_path / "a", rows))])
    for i in range(20):
        assert found.columns[f"field_{i}"].tolist() == [i, i + 0.25, i + 0.5]


def test_a_column_has_the_type_of_the_records_not_of_their_values(tmp_path: Path) -> None:
    rows = [{"round": 1, "count": 1, "seconds": 1.0}, {"round": 2, "count": 2, "seconds": 2.0}]
    found = read_rounds([Run(write_run(tmp_path / name, rows)) for name in "ab"])
    assert found.columns["count"].dtype == np.int64
    assert found.columns["seconds"].dtype == np.float64


def test_a_field_that_only_some_runs_have(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a", [{"round": 1, "x": 1}]), write_run(tmp_path / "b", [{"round": 1, "y": 2.5}])]
    found = read_rounds([Run(path) for path in runs])
    assert found.columns["x"][0] == 1
    assert np.isnan(found.columns["x"][1])
    assert found.columns["y"][1] == 2.5


LONG = [{"round": i, "filler": "x" * 100} for i in range(1, 1001)]  # over 100 KB, of which the tail is 8


def test_the_last_value_of_a_field_wherever_it_is(tmp_path: Path) -> None:
    early = [{**LONG[0], "accuracy": 0.5}, *LONG[1:]]
    run = Run(write_run(tmp_path / "a", early))
    assert run.last("round") == 1000
    assert "rounds" not in run.__dict__  # not all was read
    assert run.last("accuracy") == 0.5
    assert run.last("nothing") is None


@pytest.mark.parametrize("what", ["rounds", "summary"])
def test_a_record_without_a_round_far_from_the_end_is_left_out(tmp_path: Path, what) -> None:
    settings = {"seed": 1, "target": {"metric": "accuracy", "value": 0.5}}
    summary = {"rounds": 1000, "rounds_to_target": 1}
    for name in ("first", "second", "third"):
        write_run(tmp_path / name, LONG, summary, **settings)
    lines = (tmp_path / "second" / "rounds.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "second" / "rounds.jsonl").write_text("".join([lines[0].replace('"round"', '"turn"'), *lines[1:]]))
    with pytest.warns(
        UserWarning, match=r"second/rounds\.jsonl is damaged: object missing required field round"
    ) as said:
        found = fedge.load(tmp_path, what=what)
    assert len(said) == 1
    assert [Path(run).name for run in dict.fromkeys(found["run"])] == ["first", "third"]


def test_checking_a_run_reads_only_its_end(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a", LONG)
    text = (path / "rounds.jsonl").read_text()
    (path / "rounds.jsonl").write_text("{broken}\n" + text)
    assert Run(path).problem is None
    with pytest.raises(RunError, match=r"rounds\.jsonl is damaged"):
        _ = Run(path).rounds
    (path / "rounds.jsonl").write_text(text + "{broken}\n")
    assert "rounds.jsonl is damaged" in (Run(path).problem or "")
