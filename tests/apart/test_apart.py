"""A server without any data and clients behind pipes are bit-equal to `loop`."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import fedge
from apart.pipes import Served, run_apart
from fedge.config import parse
from fedge.core import message
from fedge.core.errors import TrainingError
from fedge.core.layout import Tree
from fedge.experiment.setup import Setup
from fedge.runs import Run
from fedge.runs.directory import RunDirectory

NUM_CLIENTS, ROUNDS = 4, 3
SCENES: dict[str, dict[str, Any]] = {
    "fedavg": {"algorithm": {"name": "fedavg", "local_epochs": 1}, "evaluate": {"train": True}},
    "scaffold": {
        "algorithm": {"name": "scaffold", "local_steps": 3},
        "selection": {"fraction": 0.5},
        "evaluate": {"user_accuracy": True, "after_training": True},
    },
    "mtfl": {
        "model": {"name": "mtfl_2nn"},
        "algorithm": {"name": "fedavg_adam", "local_steps": 3},
        "personal": {"private": "bn"},
        "evaluate": {"user_accuracy": True, "after_training": True},
    },
    "ce_fedavg": {
        "algorithm": {"name": "ce_fedavg", "local_steps": 3},
        "evaluate": {"cosine_distance": True},
        "codec": {"down": ["fp16"]},
    },
    "dynavg": {
        "algorithm": {"name": "dynavg", "delta": 0.001, "local_steps": 3},
        "selection": {"fraction": 1.0},
        "evaluate": {"user_accuracy": True},
    },
}


def settings(name: str) -> dict[str, Any]:
    scene = SCENES[name]
    return {
        "name": name,
        "seed": 3,
        "rounds": ROUNDS,
        "data": {"name": "digits", "clients": NUM_CLIENTS, "noise": {"fraction": 0.25, "std": 0.5}},
        "model": {"name": "logistic"},
        "engine": {"name": "loop"},
        "selection": {"fraction": 0.75},
        **scene,
        "evaluate": {"at": "clients", **scene.get("evaluate", {})},
    }


def private_state(path: Path, setup: Setup) -> dict[int, Tree]:
    with RunDirectory.open(path) as directory:
        store = directory.kept_store(setup.algorithm.keep(setup.network.variables))
        directory.restore()
        return {client: store.read(client) for client in range(NUM_CLIENTS)}


def assert_same(found: Tree, expected: Tree) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


@pytest.mark.parametrize("name", SCENES)
def test_a_server_without_data_is_bit_equal_to_loop(name: str, tmp_path: Path) -> None:
    config = parse(settings(name))
    apart: Served = run_apart(config, tmp_path / "apart", NUM_CLIENTS)
    fedge.run(config, runs=tmp_path)
    found, expected = Run(tmp_path / "apart"), Run(tmp_path / name)
    assert found.status == expected.status == "complete"
    for one, other in zip(found.rounds, expected.rounds, strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}
    assert found.rounds[-1]["evaluated_at"] == "clients"
    assert_same(found.state(), expected.state())
    for one, other in zip(found.clients, expected.clients, strict=True):
        assert one == other
    kept = private_state(tmp_path / name, Setup.of(config, 3))
    for client in range(NUM_CLIENTS):
        assert_same(apart.kept[client], kept[client])
    assert apart.reasons == []


def changed(data: bytes, change: dict[str, Any]) -> bytes:
    """Return the answer with some entries replaced, or removed where the new value is None."""
    meta, tree = message.unpack(data, message.WorkAnswer)
    return message.pack(meta, {name: value for name, value in {**tree, **change}.items() if value is not None})


SPOILT = {
    "missing name": (lambda data: changed(data, {"y": None}), "its upload has 'stats', expected 'stats', 'y'"),
    "extra name": (lambda data: changed(data, {"z": torch.ones(1)}), "its upload has 'stats', 'y', 'z'"),
    "shape": (lambda data: changed(data, {"y": torch.ones(1)}), r"'y' is float32\[1\], expected float32\[7850\]"),
    "dtype": (lambda data: changed(data, {"y": torch.ones(7850).double()}), "'y' is float64"),
    "not finite": (lambda data: changed(data, {"y": torch.full((7850,), float("nan"))}), "'y' is not finite"),
    "truncated": (lambda data: data[:-9], "cannot be read"),
    "nothing": (lambda data: b"", "cannot be read"),
}


@pytest.mark.parametrize("what", SPOILT)
def test_a_bad_answer_behind_a_pipe_is_rejected_alone(what: str, tmp_path: Path) -> None:
    spoil, reason = SPOILT[what]
    raw = {**settings("fedavg"), "reduce": {"on_bad": "reject"}, "selection": {"fraction": 1.0}, "rounds": 1}
    served = run_apart(parse(raw), tmp_path / "bad", NUM_CLIENTS, {2: spoil})
    (record,) = Run(tmp_path / "bad").rounds
    assert (record["cohort"], record["reported"], record["rejected"]) == (4, 3, 1)
    (given,) = served.reasons
    assert re.search(reason, given)


def test_by_default_a_bad_answer_stops_the_run(tmp_path: Path) -> None:
    raw = {**settings("fedavg"), "selection": {"fraction": 1.0}}
    with pytest.raises(TrainingError, match=r"round 1, client 2: the upload 'y' is float32\[1\].*on_bad"):
        run_apart(parse(raw), tmp_path / "bad", NUM_CLIENTS, {2: SPOILT["shape"][0]})
