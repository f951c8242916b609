"""Reading one run directory for the table."""

from __future__ import annotations

import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from benchmarks.page_runs import make_run

from fedge.core.lock import Lock
from fedge.view.entry_groups import EntryGroup
from fedge.view.run_entry import RunEntry, read_entry, stamp_of, status_of


def read(run: Path, odd: frozenset[str] = frozenset()) -> RunEntry:
    return read_entry(run, os.fsencode(run.name), stamp_of(str(run)), None, odd)


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def test_a_complete_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", seed=3, rounds=4)
    (run / "environment.json").write_text(json.dumps({"started": "2026-11-18T04:00:00+00:00"}))
    config = json.loads((run / "config.json").read_text())
    entry = read(run)
    assert (entry.id, entry.note_key, entry.path, entry.algorithm) == (config["id"], config["id"], "a", "fedavg")
    assert len(entry.key) == 16
    assert (entry.round, entry.num_rounds, entry.metric, entry.clock) == (4, 4, "accuracy", "simulated")
    assert (entry.problem, entry.networked, entry.holds_runs) == (None, False, False)
    assert entry.summary == json.loads((run / "summary.json").read_text())
    assert entry.settings["algorithm.learning_rate"] == 0.1
    assert "data.dir" not in entry.settings  # not set
    assert entry.started_s == datetime(2026, 11, 18, 4, tzinfo=UTC).timestamp()
    assert status_of(entry, tmp_path) == "complete"


def test_runs_that_differ_in_the_seed_alone_have_equal_digests(tmp_path: Path) -> None:
    one, two = (read(make_run(tmp_path / f"s{seed}", seed)).alike for seed in (1, 2))
    assert one == two != ""
    assert read(make_run(tmp_path / "other", 1, rate=0.2)).alike != one


def test_the_status_of_a_run_that_has_not_ended(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", finished=False)
    entry = read(run)
    assert status_of(entry, tmp_path) == "unfinished"
    lock = Lock(run / "lock")
    assert status_of(entry, tmp_path) == "running"
    lock.release()
    assert status_of(entry, tmp_path) == "unfinished"
    (run / "lock").write_text("1 2 far-away 0b5e\n")
    assert status_of(entry, tmp_path) == "elsewhere"
    (run / "lock").write_text(f"1 2 {socket.gethostname()} 0b5e\n")
    assert status_of(entry, tmp_path) == "unfinished"


@pytest.mark.parametrize(("target", "metric"), [("loss", "loss"), ("train_loss", "train_loss"), ("f1", "accuracy")])
def test_a_run_is_judged_by_its_target(tmp_path: Path, target: str, metric: str) -> None:
    run = make_run(tmp_path / "a", target={"metric": target, "value": 0.5})
    assert read(run).metric == metric


def test_a_run_without_accuracy_is_judged_by_its_loss() -> None:
    assert RunEntry(folder=b"", stamp=(), last={"train_loss": 1.0, "loss": 2.0}).metric == "loss"
    assert RunEntry(folder=b"", stamp=(), last={"train_loss": 1.0}).metric == "train_loss"
    assert RunEntry(folder=b"", stamp=(), settings={"target.metric": 3}).metric == "accuracy"


def test_the_name_of_a_run(tmp_path: Path) -> None:
    assert read(make_run(tmp_path / "a", name="b")).name == "b"
    run = make_run(tmp_path / "c")
    change(run / "config.json", name="")
    assert read(run).name == "c"


@pytest.mark.parametrize("started", [None, 5, "yesterday", "", ["x"]])
def test_a_start_that_cannot_be_read_is_unknown(tmp_path: Path, started: Any) -> None:
    run = make_run(tmp_path / "a")
    (run / "environment.json").write_text(json.dumps({"started": started}))
    assert (read(run).started_s, read(run).problem) == (None, None)


def test_odd_numbers_of_rounds(tmp_path: Path) -> None:
    entry = RunEntry(folder=b"", stamp=(), last={"round": "x"}, settings={"rounds": "y"})
    assert (entry.round, entry.num_rounds) == (0, None)
    assert RunEntry(folder=b"", stamp=()).round == 0


def test_the_last_value_of_each_field(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", rounds=2, finished=False)
    with (run / "rounds.jsonl").open("a") as file:
        file.write('{"round": 3, "accuracy": null, "loss": 0.25}\n')
    entry = read(run)
    records = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    assert (entry.last["round"], entry.last["loss"]) == (3, 0.25)
    assert entry.last["accuracy"] == records[1]["accuracy"]  # it is not measured in each round


@pytest.mark.parametrize("file", ["config.json", "rounds.jsonl", "summary.json"])
def test_the_reason_of_damage_does_not_reveal_the_folder(tmp_path: Path, file: str) -> None:
    run = make_run(tmp_path / "a")
    (run / file).write_text("nonsense\n")
    entry = read(run)
    assert (entry.problem or "").startswith(f"{file} is damaged: ")
    assert str(tmp_path) not in (entry.problem or "")
    assert status_of(entry, tmp_path) == "damaged"


def test_files_that_are_not_regular_are_named_and_not_read(tmp_path: Path) -> None:
    entry = read(make_run(tmp_path / "a"), frozenset({"rounds.jsonl", "lock"}))
    assert entry.odd == ("lock", "rounds.jsonl")
    assert (entry.problem or "").startswith("lock: expected a regular file, got a symbolic link")
    assert (entry.settings, entry.summary) == ({}, None)


def test_the_stamp_of_a_run_changes_with_its_files(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", finished=False)
    stamps = [stamp_of(str(run))]
    assert len(stamps[0]) == 9
    assert stamps[0][3:6] == (0, 0, 0)  # no summary
    for act in (
        lambda: (run / "summary.json").write_text("{}"),
        lambda: (run / "rounds.jsonl").open("a").write("x"),
        lambda: os.utime(run / "config.json", ns=(1, 1)),
        lambda: (run / "rounds.jsonl").unlink(),
    ):
        act()
        stamps.append(stamp_of(str(run)))
    assert len(set(stamps)) == len(stamps)


def test_a_seed_that_was_run_twice_counts_as_its_last_finished_run() -> None:
    first, last = (RunEntry(folder=name, stamp=(), alike="x", summary={}) for name in (b"a", b"c"))
    begun = [RunEntry(folder=name, stamp=(), alike="x") for name in (b"b", b"d")]
    assert EntryGroup("", [begun[0], first, last, begun[1]], False).samples == [last]
    assert EntryGroup("", begun, False).samples == begun[:1]
