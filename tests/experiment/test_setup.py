"""A run builds its data once, whatever reads it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fedge
from e2e.experiments import SMALL, Settings, changed
from fedge.client.client_side import ClientSide
from fedge.config import parse, plain
from fedge.core.errors import ModelError
from fedge.core.progress import Silent
from fedge.core.schema import tag
from fedge.data.digits import Digits
from fedge.data.divided_dataset import DividedClients
from fedge.engines import wire
from fedge.experiment.setup import Setup
from fedge.experiment.start import resume
from fedge.models import MODELS
from fedge.sweeps import worker
from fedge.sweeps.plan import PlannedRun

CELLS = {"clock": "cells", "cells": 4, "record": True}


def train(folder: Path, settings: Settings) -> Path:
    run = fedge.run(settings, runs=folder)
    assert isinstance(run, fedge.Run)
    return run.path


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds for which data was built, in order."""
    seeds: list[int] = []
    build = Digits.build

    def count(options: Digits, seed: int) -> DividedClients:
        seeds.append(seed)
        return build(options, seed)

    monkeypatch.setattr(Digits, "build", count)
    return seeds


@pytest.mark.parametrize("engine", ["loop", "wire", "block", "pool", "auto"])
def test_a_run_builds_its_data_once(engine: str, built: list[int], tmp_path: Path) -> None:
    """User evaluation, traces and edge records, which also read data, are all enabled."""
    settings = changed(SMALL, rounds=2, engine={"name": engine}, trace={"clients": 1}, edge=CELLS)
    train(tmp_path, changed(settings, evaluate={"user_accuracy": True, "train": True}))
    assert built == [3]


def test_repeats_build_their_data_once_for_each_seed(built: list[int], tmp_path: Path) -> None:
    fedge.run(changed(SMALL, rounds=1), runs=tmp_path, seeds=[5, 4, 6])
    assert built == [5, 4, 6]


def test_a_resumed_run_builds_its_data_once(built: list[int], tmp_path: Path) -> None:
    path = train(tmp_path, changed(SMALL, rounds=1))
    resume(path, ["rounds=2"], Silent())
    assert built == [3, 3]
    resume(path, [], Silent())  # complete: nothing to do
    assert built == [3, 3]


def test_the_worker_of_a_sweep_builds_data_once(built: list[int], tmp_path: Path) -> None:
    class Deaf:
        def send(self, message: object) -> None:
            pass

    planned = PlannedRun("small", tmp_path / "small", plain(parse(changed(SMALL, rounds=2))), tmp_path)
    forwarder = worker.ProgressForwarder(Deaf(), os.getppid())
    worker.train(planned.until(1), forwarder)
    assert built == [3]
    worker.train(planned, forwarder)
    assert built == [3, 3]


@pytest.mark.parametrize("engine", ["loop", "wire"])
def test_a_wire_shares_no_model_with_the_server(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sides: list[ClientSide] = []
    monkeypatch.setattr(wire, "serve", lambda side, *args, serve=wire.serve: sides.append(side) or serve(side, *args))
    made: list[Setup] = []
    build = Setup.of
    monkeypatch.setattr(Setup, "of", lambda *args: made.append(build(*args)) or made[-1])
    train(tmp_path, changed(SMALL, rounds=1, engine={"name": engine}))
    assert bool(sides) == (engine == "wire")
    for side in sides:
        assert side.network is not made[0].network
        assert side.algorithm is not made[0].algorithm
        assert side.network.digest() == made[0].network.digest()


# ---------------------------------------------------------------- models that do not fit their data


@pytest.fixture
def speeches(tmp_path: Path) -> Path:
    (tmp_path / "shakespeare").mkdir()
    lines = [f"Hamlet\tSPEAKER {i}\t{' / '.join(['To be, or not to be, that is the question'] * 8)}" for i in range(3)]
    (tmp_path / "shakespeare" / "speeches.tsv").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.parametrize("data", ["shakespeare", "digits", "synthetic"])
@pytest.mark.parametrize("model", [tag(kind) for kind in MODELS if tag(kind)])
def test_every_model_fits_the_data_or_is_refused(model: str, data: str, speeches: Path) -> None:
    """Characters need an embedding, images two dimensions: each model accepts some data sets."""
    table = {"name": data, "dir": str(speeches)} if data == "shakespeare" else {"name": data, "clients": 3}
    config = parse({"data": table, "model": {"name": model}, "algorithm": {"name": "fedavg"}, "seed": 1, "rounds": 1})
    fits = (model == "shakespeare_gru") == (data == "shakespeare") and (data != "synthetic" or model in DENSE)
    if fits:
        assert Setup.of(config, 1).network.layout.num_params > 0
    else:
        with pytest.raises(ModelError, match=r"^model\.name: ") as caught:
            Setup.of(config, 1)
        assert "choose" in str(caught.value) or "use it with" in str(caught.value)


DENSE = {"linear", "logistic", "bag_of_words", "nn", "mnist_2nn", "mtfl_2nn", "femnist_dnn"}


def test_tokens_need_an_embedding_and_numbers_must_not_have_one(speeches: Path) -> None:
    words = {"name": "shakespeare", "dir": str(speeches)}
    raw = {"model": {"name": "logistic"}, "algorithm": {"name": "fedavg"}, "seed": 1, "rounds": 1}
    with pytest.raises(ModelError, match=r"indices of words or characters.*such as shakespeare_gru"):
        Setup.of(parse(raw | {"data": words}), 1)
    numbers = {"data": {"name": "synthetic", "clients": 3}, "model": {"name": "shakespeare_gru"}}
    with pytest.raises(ModelError, match="expects token indices, but the inputs are real numbers"):
        Setup.of(parse(raw | numbers), 1)
