"""Runs with a hostile client: records, costs and checkpoints."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import torch

import fedge
from e2e.experiments import records
from fedge.api.run import Run
from fedge.client.network import Network
from fedge.config import Config
from fedge.core.algorithm import Algorithm
from fedge.core.errors import TrainingError, VoidError
from fedge.core.progress import Silent
from fedge.experiment import setup
from fedge.experiment.start import resume
from hostile_clients import BAD, poison

SETTINGS: dict[str, Any] = {
    "name": "hostile",
    "rounds": 3,
    "data": {"name": "digits", "clients": 4},
    "model": {"name": "logistic"},
    "algorithm": {"name": "fedavg", "local_steps": 2},
    "selection": {"fraction": 1.0},
    "checkpoint": {"every": 1},
    "engine": {"name": "loop"},
}
HONEST = setup.algorithm_of


def spoil(monkeypatch: pytest.MonkeyPatch, value: float = float("nan"), bad: Collection[int] = (BAD,)) -> None:
    """Add hostile clients to runs from round 2 on."""

    def algorithm_of(config: Config, network: Network) -> Algorithm:
        return poison(HONEST(config, network), value, bad)

    monkeypatch.setattr(setup, "algorithm_of", algorithm_of)


def run(folder: Path, **changes: Any) -> Run:
    made = fedge.run(SETTINGS, runs=folder, **changes)
    assert isinstance(made, Run)
    return made


def rows(made: Run) -> dict[int, dict[str, Any]]:
    lines = (made.path / "clients.jsonl").read_text().splitlines()
    return {row["client"]: row for row in map(json.loads, lines)}


@pytest.mark.parametrize("engine", ["loop", "wire", "block", "pool"])
def test_a_rejected_client_is_counted_and_charged(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch)
    made = run(tmp_path, **{"reduce.on_bad": "reject", "engine.name": engine})
    first, *others = made.rounds
    assert "rejected" not in first
    assert (first["cohort"], first["reported"], first["dropped"]) == (4, 4, 0)
    for record in others:
        assert (record["rejected"], record["cohort"], record["reported"], record["dropped"]) == (1, 4, 3, 1)
        assert {name: record[name] for name in ("messages", "bytes_down", "bytes_up", "local_steps", "flops")} == {
            name: first[name] for name in ("messages", "bytes_down", "bytes_up", "local_steps", "flops")
        }
        assert record["sim_seconds"] == pytest.approx(first["sim_seconds"], rel=1e-12)
        assert "void" not in record
    accounts = rows(made)
    assert [accounts[client]["rounds"] for client in range(4)] == [3, 3, 3, 3]
    assert [accounts[client]["communications"] for client in range(4)] == [3, 3, 1, 3]  # none was accepted
    assert accounts[BAD]["bytes_up"] == accounts[0]["bytes_up"]
    assert all(value.isfinite().all() for value in made.model.state_dict().values())


@pytest.mark.parametrize("engine", ["loop", "block"])
def test_a_run_that_was_stopped_by_a_bad_upload_can_be_resumed(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = run(tmp_path / "one", **{"engine.name": engine})
    spoil(monkeypatch)
    with pytest.raises(TrainingError, match=r"^round 2, client 2: the upload 'y' is not finite"):
        run(tmp_path / "other", **{"engine.name": engine})
    stopped = tmp_path / "other" / "hostile"
    assert [record["round"] for record in records(stopped)] == [1]
    monkeypatch.undo()
    resume(stopped, [], Silent())
    assert records(stopped) == records(undisturbed.path)
    for name, value in undisturbed.model.state_dict().items():
        assert torch.equal(Run(stopped).model.state_dict()[name], value)


def test_a_stopped_run_can_be_resumed_without_the_bad_uploads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch)
    expected = run(tmp_path / "one", **{"reduce.on_bad": "reject"})
    with pytest.raises(TrainingError):
        run(tmp_path / "other")
    resume(tmp_path / "other" / "hostile", ["reduce.on_bad=reject"], Silent())
    assert records(tmp_path / "other" / "hostile") == records(expected.path)


def test_rounds_in_which_all_are_rejected_are_void(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, bad=range(4))
    with pytest.raises(
        VoidError, match=r'4 answers of the last round were rejected: resume with reduce\.on_bad = "stop"'
    ):
        run(tmp_path, **{"reduce.on_bad": "reject", "edge.max_void_rounds": 2})
    first, *others = records(tmp_path / "hostile")
    assert [(record["rejected"], record["reported"], record["void"]) for record in others] == [(4, 0, True)] * 2
    assert {record["loss"] for record in others} == {first["loss"]}


@pytest.mark.parametrize("clock", ["fixed", "cells"])
def test_rejected_clients_are_on_the_timeline(clock: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All clients meet the deadline, the rejected one included, so the round takes as long as if it had been honest,
    and its line of edge.jsonl names all clients."""
    changes: dict[str, Any] = {"edge.clock": clock, "edge.deadline_s": 1e6, "edge.record": True}
    changes |= {"edge.cells": 2, "edge.global_every": 1} if clock == "cells" else {}
    honest = run(tmp_path / "one", **changes)
    spoil(monkeypatch)
    made = run(tmp_path / "other", **changes, **{"reduce.on_bad": "reject"})
    for found, expected in zip(made.rounds, honest.rounds, strict=True):
        assert {n: v for n, v in found.items() if n.startswith("sim_")} == {
            n: v for n, v in expected.items() if n.startswith("sim_")
        }
        assert found["energy_j"] == expected["energy_j"]
    assert [record.get("rejected") for record in made.rounds] == [None, 1, 1]
    lines = [json.loads(line) for line in (made.path / "edge.jsonl").read_text().splitlines()]
    assert [sorted(line["clients"]) for line in lines] == [[0, 1, 2, 3]] * 3


def test_a_large_norm_is_rejected_but_accepted_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, value=1e3)
    limited = run(tmp_path / "one", **{"reduce.on_bad": "reject", "reduce.max_norm": 100.0})
    assert [record.get("rejected") for record in limited.rounds] == [None, 1, 1]
    assert [record.get("rejected") for record in run(tmp_path / "other").rounds] == [None, None, None]
