"""Sparklines, best and last values, read once and stored."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from benchmarks.page_runs import make_run

from fedge.view import histories
from fedge.view.histories import Histories, find_record
from fedge.view.run_entry import RunEntry
from fedge.view.run_index import RunIndex

Open = Callable[[], tuple[Histories, dict[str, RunEntry]]]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs whose records are read."""
    found: list[str] = []
    real = histories._read

    def noted(entry: RunEntry, folder: Path) -> Any:
        found.append(entry.path)
        return real(entry, folder)

    monkeypatch.setattr(histories, "_read", noted)
    return found


@pytest.fixture
def reopen(runs: Path) -> Open:
    """reopen(): histories of a new process, and the runs by their paths."""

    def make() -> tuple[Histories, dict[str, RunEntry]]:
        index = RunIndex(runs)
        return Histories(index), {entry.path: entry for entry in index.scan().values()}

    return make


def write(run: Path, values: list[float | None], field: str = "accuracy") -> None:
    lines = [json.dumps({"round": i, field: value}) for i, value in enumerate(values, 1)]
    (run / "rounds.jsonl").write_text("\n".join(lines) + "\n")


def test_the_curve_best_and_last_of_a_run(runs: Path, reopen: Open) -> None:
    write(runs / "begun/seed-1", [0.1, 0.123456, None, 0.5, 0.25])
    history, entries = reopen()
    assert history.known(entries["begun/seed-1"]) is None
    assert set(history.refresh([entries["begun/seed-1"]])) == {entries["begun/seed-1"].key}
    found = history.known(entries["begun/seed-1"])
    assert found is not None
    assert (found.metric, found.spark, found.best, found.last) == ("accuracy", [0.1, 0.1235, 0.5, 0.25], 0.5, 0.25)


def test_the_best_of_a_loss_is_the_lowest(runs: Path, reopen: Open) -> None:
    write(runs / "begun/seed-1", [3.0, 1.0, 2.0], "loss")
    history, entries = reopen()
    list(history.refresh(entries.values()))
    found = history.known(entries["begun/seed-1"])
    assert found is not None
    assert (found.metric, found.best, found.last) == ("loss", 1.0, 2.0)


def test_a_long_curve_is_thinned_and_keeps_its_extremes(runs: Path, reopen: Open) -> None:
    values: list[float | None] = [0.5] * 1_000
    values[333], values[777], values[-1] = 1.0, 0.0, 0.75
    write(runs / "begun/seed-1", values)
    history, entries = reopen()
    list(history.refresh(entries.values()))
    found = history.known(entries["begun/seed-1"])
    assert found is not None
    assert 10 <= len(found.spark) <= histories.MOST_POINTS
    assert {0.0, 1.0} <= set(found.spark)
    assert (found.spark[-1], found.best) == (0.75, 1.0)


def test_histories_are_stored_and_read_again_when_a_run_changes(runs: Path, reopen: Open, reads: list[str]) -> None:
    history, entries = reopen()
    assert len(list(history.refresh(entries.values()))) == len(reads) == 7  # all but the damaged one
    assert "broken/seed-1" not in reads
    reads.clear()
    assert list(history.refresh(entries.values())) == []
    history, entries = reopen()  # another process
    assert history.known(entries["rate-0.1/seed-1"]) is not None
    assert list(history.refresh(entries.values())) == reads == []
    with (runs / "begun/seed-1/rounds.jsonl").open("a") as file:
        file.write('{"round": 5, "accuracy": 0.875}\n')
    history, entries = reopen()
    assert list(history.refresh(entries.values())) == [entries["begun/seed-1"].key]
    assert reads == ["begun/seed-1"]
    history, entries = reopen()
    found = history.known(entries["begun/seed-1"])
    assert found is not None
    assert found.last == 0.875


def test_another_metric_is_read(runs: Path, reopen: Open, reads: list[str]) -> None:
    history, entries = reopen()
    list(history.refresh(entries.values()))
    reads.clear()
    config = runs / "begun/seed-1/config.json"
    settings = json.loads(config.read_text()) | {"target": {"metric": "loss", "value": 0.5}}
    config.write_text(json.dumps(settings))
    _, entries = reopen()
    list(history.refresh(entries.values()))
    assert reads == ["begun/seed-1"]


@pytest.mark.parametrize("data", [b"", b"nonsense", b"\x91" * 5_000])
def test_a_stored_history_that_cannot_be_read(reopen: Open, reads: list[str], data: bytes) -> None:
    history, entries = reopen()
    list(history.refresh(entries.values()))
    with closing(sqlite3.connect(history._index._file)) as database, database:
        database.execute("UPDATE histories SET history = ?", (data,))
    history, entries = reopen()
    reads.clear()
    assert history.known(entries["begun/seed-1"]) is None
    assert len(list(history.refresh(entries.values()))) == len(reads) == 7


@pytest.mark.parametrize(
    "content", ["", "nonsense\n", '{"round": 1}\n', '{"round": 1, "accuracy": "x"}\n', '{"round": 1, "accuracy": 0.5}']
)
def test_records_without_the_metric(runs: Path, content: str) -> None:
    index = RunIndex(runs)
    entry = next(entry for entry in index.scan().values() if entry.path == "begun/seed-1")
    (runs / "begun/seed-1/rounds.jsonl").write_text(content)  # since the index was made
    history = Histories(index)
    list(history.refresh([entry]))
    found = history.known(entry)
    assert found is not None
    assert (found.spark, found.best, found.last) == ([], None, None)


def test_the_value_of_a_round(runs: Path, reopen: Open) -> None:
    write(runs / "begun/seed-1", [0.1, None, 0.3])
    history, entries = reopen()
    entry = entries["begun/seed-1"]
    assert [history.at(entry, "accuracy", number) for number in (1, 2, 3, 4, 2**53)] == [0.1, None, 0.3, None, None]
    assert history.at(entry, "nothing", 1) is None
    for content in ("", "nonsense\n", '{"other": 1}\n', '{"round": 1, "accuracy": "x"}\n', '{"round":' * 3_000 + "\n"):
        (runs / "begun/seed-1/rounds.jsonl").write_text(content)
        assert history.at(entry, "accuracy", 1) is None, content
    (runs / "begun/seed-1/rounds.jsonl").unlink()
    assert history.at(entry, "accuracy", 1) is None


@pytest.mark.parametrize("sizes", [[0, 0, 0, 0], [9000, 1, 1, 9000], [1, 20_000, 1, 20_000], [100_000, 0, 0, 3]])
@pytest.mark.parametrize("end", ["", '{"round": 6, "x', "\n"])
def test_every_record_is_found(tmp_path: Path, sizes: list[int], end: str) -> None:
    file = tmp_path / "rounds.jsonl"
    numbers = (1, 2, 4, 5)
    lines = [json.dumps({"round": n, "x": "y" * size}) + "\n" for n, size in zip(numbers, sizes, strict=True)]
    file.write_text("".join(lines) + (end if end != "\n" else ""))
    for number in range(8):
        found = find_record(file, number)
        assert (found or {}).get("round") == (number if number in numbers else None)


def test_a_run_without_records(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    (tmp_path / "a" / "rounds.jsonl").write_text("")
    assert find_record(tmp_path / "a" / "rounds.jsonl", 1) is None
