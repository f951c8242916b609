"""Runs in which clients are in cells, move, are late or unavailable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import fedge
from e2e.command import Fedge
from e2e.experiments import Settings, Stopping, assert_same, changed, kept, records, write
from fedge.api.run import Run
from fedge.core.errors import VoidError
from fedge.core.progress import Silent
from fedge.experiment.start import resume
from fedge.runs.checkpoint import load

FLAT: Settings = {
    "name": "world",
    "seed": 5,
    "rounds": 4,
    "data": {"name": "digits", "clients": 9, "partition": {"name": "shards", "per_client": 2}},
    "model": {"name": "logistic"},
    "algorithm": {"name": "fedavg", "local_steps": 2},
    "selection": {"count": 4},
    "checkpoint": {"every": 2},
    "engine": {"name": "loop"},
}
CELLS: Settings = {
    **FLAT,
    "selection": {"fraction": 0.6},
    "edge": {"clock": "cells", "cells": 3, "global_every": 3, "mobility_rate": 0.4, "record": True},
}
NORMED = {"model": {"name": "mtfl_2nn"}, "personal": {"private": "bn"}}


def run(settings: Settings, runs: Path, progress: Silent | None = None) -> Run:
    found = fedge.run(settings, runs=runs, progress=progress)
    assert isinstance(found, Run)
    return found


def weights(trained: Run) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in trained.model.state_dict().items()}


# ---------------------------------------------------------------- one cell

TIMES = ("sim_seconds", "sim_down_s", "sim_compute_s", "sim_up_s", "sim_wait_s", "energy_j")
ONLY_WITH_CELLS = ("weight_divergence", "bytes_backhaul")


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": {"name": "fedavg", "local_epochs": 1}},
        {"algorithm": {"name": "scaffold", "local_steps": 2}},
        {**NORMED, "evaluate": {"user_accuracy": True}},
        {"algorithm": {"name": "dynavg", "delta": 0.05, "local_steps": 2}},
        {"algorithm": {"name": "ce_fedavg", "local_steps": 2}},
        {"codec": {"up": ["error_feedback", "sparsify(0.9)", "uniq", "golomb"], "down": ["fp16"]}},
        {"schedule": {"local_steps": {"name": "rounds"}, "learning_rate": {"name": "warmup", "epochs": 1}}},
    ],
    ids=["fedavg", "scaffold", "mtfl", "dynavg", "ce_fedavg", "codec", "schedule"],
)
def test_one_cell_equals_no_cells(changes: Settings, tmp_path: Path) -> None:
    """Model and metrics are bit-identical to a flat run; time and energy differ."""
    settings = changed(FLAT, rounds=3, **changes)
    flat = run(settings, tmp_path / "flat")
    cell = run(changed(settings, edge={"clock": "cells", "cells": 1}), tmp_path / "cell")
    assert weights(cell) == weights(flat)
    assert kept(cell.path) == kept(flat.path)
    for one, other in zip(records(cell.path), records(flat.path), strict=True):
        assert one["weight_divergence"] == 0.0
        assert {name: value for name, value in one.items() if name not in (*TIMES, *ONLY_WITH_CELLS)} == {
            name: value for name, value in other.items() if name not in (*TIMES, *ONLY_WITH_CELLS)
        }


# ---------------------------------------------------------------- moving


def test_without_mobility_no_client_moves(tmp_path: Path) -> None:
    lines = run(changed(CELLS, edge={"mobility_rate": 0.0}), tmp_path).edge
    assert [line["occupancy"] for line in lines] == [[3, 3, 3]] * 4
    for line in lines:
        assert line["cell"] == [client // 3 for client in line["clients"]]


def test_with_mobility_clients_move_and_none_is_lost(tmp_path: Path) -> None:
    lines = run(CELLS, tmp_path).edge
    assert {sum(line["occupancy"]) for line in lines} == {9}
    assert len({tuple(line["occupancy"]) for line in lines}) > 1
    # no sample of any class is lost
    totals = [[sum(cell) for cell in zip(*line["classes"], strict=True)] for line in lines]
    assert totals == [totals[0]] * 4
    assert sum(totals[0]) == 1438  # four fifths of the 1797 digits are for training


def test_private_state_moves_with_its_client(tmp_path: Path) -> None:
    """A client whose model is entirely private learns the same in a flat run and when it moves between cells."""
    private = changed(FLAT, rounds=3, selection={"count": 9}, personal={"private": ["*"]})
    edge = {"clock": "cells", "cells": 3, "global_every": 2, "mobility_rate": 0.9}
    flat, moving = run(private, tmp_path / "flat"), run({**private, "edge": edge}, tmp_path / "moving")
    assert kept(moving.path) == kept(flat.path)
    assert len(kept(moving.path)) == 9


def test_only_participants_have_private_state(tmp_path: Path) -> None:
    settings = changed(CELLS, rounds=2, selection={"fraction": 0.3}, **NORMED)
    found = run(settings, tmp_path)
    assert set(kept(found.path)) == {client for line in found.edge for client in line["clients"]}
    assert len(kept(found.path)) < 9


@pytest.mark.full
@pytest.mark.parametrize("algorithm", ["dsgd", "fedopt", "mfl", "mimelite", "fedgbo", "scaffold", "ce_fedavg"])
def test_several_cells_learn(algorithm: str, tmp_path: Path) -> None:
    settings = changed(CELLS, rounds=9, algorithm={"name": algorithm, "learning_rate": 0.05})
    losses = [record["loss"] for record in run(settings, tmp_path).rounds if "loss" in record]
    assert len(losses) == 3
    assert losses == sorted(losses, reverse=True)


# ---------------------------------------------------------------- merging


def test_the_cost_of_a_merge_and_the_rounds_that_measure_it(tmp_path: Path) -> None:
    """After every third round, and in the last round for a hypothetical merge."""
    found = run(changed(CELLS, edge={"backhaul_mbps": 1.0}), tmp_path)
    rounds = found.rounds
    assert ["accuracy" in record for record in rounds] == [False, False, True, True]
    assert ["weight_divergence" in record for record in rounds] == [False, False, True, False]
    assert rounds[2]["weight_divergence"] > 0
    # up and down for each of three cells: 7850 float32 parameters and a header
    travelled = rounds[2]["bytes_backhaul"] / 6
    assert 31_400 < travelled < 31_700
    assert [record["bytes_backhaul"] for record in rounds] == [0, 0, 6 * travelled, 0]
    assert found.summary["bytes_backhaul"] == 6 * travelled
    # latency of a round: that of the slowest cell, plus at a merge the transfer to the centre and back at 1 Mbit/s
    slowest = [max(filter(None, line["latency"])) for line in found.edge]
    expected = [*slowest[:2], slowest[2] + 2 * travelled * 8e-6, slowest[3]]
    assert [record["sim_seconds"] for record in rounds] == pytest.approx(expected)
    assert [line["merged"] for line in found.edge] == [False, False, True, False]


def test_cells_that_wait_only_at_merges_finish_earlier(tmp_path: Path) -> None:
    """Nothing else changes: neither the model nor the time of each cell."""
    settings = changed(CELLS, rounds=3)
    by_round, by_merge = (run(changed(settings, edge={"sync": sync}), tmp_path / sync) for sync in ("round", "merge"))
    assert weights(by_merge) == weights(by_round)
    assert by_merge.edge == by_round.edge
    columns = zip(*(line["latency"] for line in by_merge.edge), strict=True)
    alone = max(sum(filter(None, latencies)) for latencies in columns)
    assert by_merge.summary["sim_seconds"] == pytest.approx(alone)
    together = sum(max(filter(None, line["latency"])) for line in by_round.edge)
    assert by_round.summary["sim_seconds"] == pytest.approx(together)
    assert alone < together


# ---------------------------------------------------------------- stopping

WORLDS: dict[str, Settings] = {
    "mobility": changed(CELLS, algorithm={"name": "scaffold", "local_steps": 2}),
    "trace": changed(CELLS, edge={"mobility_rate": 0.0, "trace": "moves.csv", "sync": "merge"}),
    "deadline": changed(CELLS, edge={"deadline_s": 0.12, "sync": "merge", "dropout": 0.2}, **NORMED),
    "fedcs": {
        **changed(CELLS, edge={"deadline_s": 0.02, "availability": {"name": "diurnal", "period_s": 0.1}}),
        "selection": {"name": "fedcs", "fraction": 1.0},
        "codec": {"up": ["error_feedback", "sparsify(0.9)", "uniq", "golomb"]},
    },
    "flat": {
        **FLAT,
        "edge": {"deadline_s": 0.14, "up_mbps": {"name": "lognormal", "median": 5, "sigma": 1}, "record": True},
    },
}
MOVES = "client,time,cell\n0,0,2\n1,0.03,2\n8,0.06,0\n1,0.1,0\n5,0.2,0\n"

HAPPENS: dict[str, Callable[[Run], bool]] = {
    "mobility": lambda run: len({tuple(line["occupancy"]) for line in run.edge}) > 2,
    "trace": lambda run: run.edge[0]["occupancy"] == [2, 3, 4] != run.edge[-1]["occupancy"],
    "deadline": lambda run: any(True in line["late"] for line in run.edge),
    "fedcs": lambda run: len({record["cohort"] for record in run.rounds}) > 1,
    "flat": lambda run: any(True in line["late"] for line in run.edge),
}
"""The effect that each experiment must show, so that the tests are meaningful."""


@pytest.mark.parametrize("what", WORLDS)
def test_resumed_in_the_middle_of_a_period(what: str, tmp_path: Path) -> None:
    """Saved after round 4, stopped in round 5, with merges after rounds 3 and 6."""
    (tmp_path / "moves.csv").write_text(MOVES)
    settings = changed(WORLDS[what], rounds=7, checkpoint={"every": 4})
    if "trace" in settings["edge"]:
        settings = changed(settings, edge={"trace": str(tmp_path / "moves.csv")})
    undisturbed = run(settings, tmp_path / "undisturbed")
    with pytest.raises(KeyboardInterrupt):
        run(settings, tmp_path / "stopped", Stopping())
    stopped = tmp_path / "stopped" / "world"
    checkpoint = load(stopped / "checkpoint" / "state.safetensors")
    assert checkpoint is not None
    assert checkpoint.meta["round"] == 4
    assert len((stopped / "edge.jsonl").read_text().splitlines()) == 5
    resume(stopped, [], Silent())
    assert_same(stopped, undisturbed.path)
    assert (stopped / "edge.jsonl").read_bytes() == (undisturbed.path / "edge.jsonl").read_bytes()
    assert HAPPENS[what](undisturbed)


# ---------------------------------------------------------------- too late

SLOW = changed(
    FLAT,
    rounds=2,
    algorithm={"name": "scaffold", "local_steps": 2},
    selection={"count": 9},
    edge={"seconds_per_step": [0.01] * 8 + [9.0], "deadline_s": 5.0, "record": True},
)


def test_only_uploads_in_time_are_averaged(tmp_path: Path) -> None:
    """As if the slow client were unavailable, but its work is charged, and its private state stays unchanged."""
    late = run(SLOW, tmp_path / "late")
    file = tmp_path / "on.csv"
    file.write_text("client,start,end\n" + "".join(f"{client},0,1e9\n" for client in range(8)))
    absent = run(changed(SLOW, edge={"availability": {"name": "trace", "file": str(file)}}), tmp_path / "absent")
    assert weights(late) == weights(absent)
    assert kept(late.path) == kept(absent.path)
    assert set(kept(late.path)) == set(range(8))
    for mine, other in zip(late.rounds, absent.rounds, strict=True):
        assert [mine[name] for name in ("cohort", "reported", "dropped")] == [9, 8, 1]
        assert [other[name] for name in ("cohort", "reported", "dropped")] == [8, 8, 0]
        assert mine["accuracy"] == other["accuracy"]
        assert mine["local_steps"] == other["local_steps"] + 2 == 18
        assert mine["bytes_up"] > other["bytes_up"]
        assert mine["energy_j"] == pytest.approx(other["energy_j"] + 5 * 18, abs=1)  # 18 s of computing at 5 W
        assert mine["sim_seconds"] == 5.0
    assert [line["clients"][-1] for line in late.edge] == [8, 8]
    assert [line["late"] for line in late.edge] == [[False] * 8 + [True]] * 2


def test_fedcs_does_not_ask_slow_clients(tmp_path: Path) -> None:
    found = run({**SLOW, "selection": {"name": "fedcs", "fraction": 1.0}}, tmp_path)
    for record in found.rounds:
        assert [record[name] for name in ("cohort", "reported", "dropped")] == [8, 8, 0]
        assert record["sim_seconds"] < 5.0


def test_dropped_clients_send_nothing(tmp_path: Path) -> None:
    found = run(changed(FLAT, rounds=3, selection={"count": 9}, edge={"dropout": 0.5}), tmp_path)
    for record in found.rounds:
        assert record["cohort"] == 9
        assert record["reported"] + record["dropped"] == 9
        assert record["local_steps"] == 2 * record["reported"]
    assert sum(record["dropped"] for record in found.rounds) > 0


# ---------------------------------------------------------------- void rounds

HOPELESS = changed(SLOW, rounds=6, edge={"seconds_per_step": 9.0, "max_void_rounds": 3})


@pytest.mark.parametrize("selection", [{"count": 9}, {"name": "fedcs", "fraction": 1.0}])
def test_void_rounds_end_the_run_and_it_can_be_resumed(
    selection: Settings, fedge: Fedge, tmp_path: Path, runs: Path
) -> None:
    ended = fedge("run", write(tmp_path, {**HOPELESS, "selection": selection}), "--runs", runs)
    assert ended.code == 5
    assert "no client answered in 3 consecutive rounds, the limit of edge.max_void_rounds" in ended.err
    assert "no client can meet edge.deadline_s = 5: raise it" in ended.err
    assert f"The run is kept: fedge resume {runs}/world --set edge.deadline_s=50" in ended.err
    assert "Traceback" not in ended.err
    found = records(runs / "world")
    assert [(record["void"], record["reported"], record["sim_seconds"]) for record in found] == [(True, 0, 5.0)] * 3
    asked = 0 if "name" in selection else 9
    assert [record["cohort"] for record in found] == [asked] * 3
    assert kept(runs / "world") == {}

    ended = fedge("resume", runs / "world", "--set", "edge.deadline_s=30")
    assert ended.code == 0, ended.err
    found = records(runs / "world")
    assert [record.get("void", False) for record in found] == [True] * 3 + [False] * 3
    assert found[-1]["accuracy"] > found[0]["accuracy"]


def test_a_void_round_does_not_change_the_model(tmp_path: Path) -> None:
    """No client is available on the first two days, of a minute each, so the schedule has a cohort of zero."""
    file = tmp_path / "on.csv"
    file.write_text("client,start,end\n" + "".join(f"{client},120,1e9\n" for client in range(9)))
    settings = changed(
        FLAT,
        rounds=3,
        edge={"availability": {"name": "trace", "file": str(file)}, "max_void_rounds": 3},
        schedule={"learning_rate": {"name": "warmup", "epochs": 2}},
        evaluate={"user_accuracy": True, "users": "selected"},
    )
    rounds = run(settings, tmp_path / "runs").rounds
    assert [record.get("void", False) for record in rounds] == [True, True, False]
    assert [record["sim_seconds"] for record in rounds[:2]] == [60.0, 60.0]  # retry_s, as there is no deadline
    assert rounds[0]["loss"] == rounds[1]["loss"] != rounds[2]["loss"]
    assert "train_loss" not in rounds[0]


def test_only_consecutive_void_rounds_end_a_run(tmp_path: Path) -> None:
    """Clients are available only in the last second of 61, and a round of two steps takes longer than that."""
    file = tmp_path / "on.csv"
    file.write_text("client,start,end\n" + "".join(f"{client},60,61\n" for client in range(9)))
    availability = {"name": "trace", "file": str(file), "repeat_s": 61.0}
    edge = {"availability": availability, "max_void_rounds": 2, "seconds_per_step": 0.6}
    rounds = run(changed(FLAT, edge=edge), tmp_path / "runs").rounds
    assert [record.get("void", False) for record in rounds] == [True, False, True, False]


def test_silence_without_a_deadline_names_its_reasons(tmp_path: Path) -> None:
    with pytest.raises(VoidError, match=r"no client was available: see edge\.availability and edge\.dropout"):
        run(changed(FLAT, edge={"dropout": 1.0, "max_void_rounds": 2}), tmp_path)
    found = records(tmp_path / "world")
    assert [(record["cohort"], record["dropped"]) for record in found] == [(4, 4), (4, 4)]


# ---------------------------------------------------------------- afterwards


def test_the_model_of_a_run_that_ended_between_merges(tmp_path: Path) -> None:
    """It is the hypothetical merge: that of a run whose last round is followed by a merge."""
    never, merged = (run(changed(CELLS, edge={"global_every": every}), tmp_path / str(every)) for every in (9, 4))
    assert weights(never) == weights(merged)
    assert never.rounds[-1]["loss"] == merged.rounds[-1]["loss"]


def test_cells_cannot_change(fedge: Fedge, tmp_path: Path, runs: Path) -> None:
    run(changed(CELLS, rounds=1), runs)
    for change in ("edge.cells=4", "edge=fixed"):
        ended = fedge("resume", runs / "world", "--set", change, "--set", "rounds=2")
        assert ended.code == 2
        assert ended.err == "error: edge.cells: cannot change when a run is resumed; start a new run instead\n"


def test_there_is_no_edge_file_without_edge_record(tmp_path: Path) -> None:
    found = run(changed(CELLS, rounds=1, edge={"record": False}), tmp_path)
    assert not (found.path / "edge.jsonl").exists()
    assert found.edge == []
