"""Normalisation by the clients' sums: when it is computed, and that it stays the same."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from e2e.experiments import SMALL, changed
from fedge.config import parse
from fedge.core.errors import RunError, VoidError
from fedge.core.progress import Silent
from fedge.experiment.input_scaling import FILE, InputScaling
from fedge.experiment.networked_server import serve
from fedge.experiment.start import create_run
from fedge.net.protocol import InputMoments, Scaled
from fedge.runs import files

PART: Any = SimpleNamespace(shape=(1,), plan=SimpleNamespace(sums=True))


def test_it_is_computed_once_and_not_in_a_void_round(tmp_path: Path) -> None:
    """Otherwise the sums of too few clients would determine the inputs of the whole run."""
    (tmp_path / FILE).parent.mkdir()
    scaling = InputScaling(tmp_path, PART)
    assert not scaling.is_due(enough=False)
    assert scaling.is_due(enough=True)
    # The values 1, 3 and 5, 7: mean 4, mean square 21
    found = scaling.find({1: InputMoments(2.0, [12.0], [74.0]), 0: InputMoments(2.0, [4.0], [10.0])})
    assert found.mean == [4.0]
    assert found.std == pytest.approx([5**0.5])
    assert not scaling.is_due(enough=True)
    assert InputScaling(tmp_path, PART).found == found


def test_a_server_scales_nothing_in_a_void_round(tmp_path: Path) -> None:
    data = {"name": "remote", "shape": [2], "outputs": 2, "normalise": True}
    net = {"min_clients": 1, "wait_s": 0.01}
    settings = changed(SMALL, data=data, rounds=2, net=net, evaluate={"at": "clients"}, engine={"name": "loop"})
    config = parse(settings)
    with pytest.raises(VoidError, match="no client answered"):
        serve(config, runs=tmp_path, listen="127.0.0.1:0", pki=None, progress=Silent())
    assert len((tmp_path / config.name / "rounds.jsonl").read_text().splitlines()) == 2
    assert not (tmp_path / config.name / FILE).exists()


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b'{"type": "scaled", "mean": "x", "std": []}'])
def test_a_damaged_file_ends_the_server_without_leaks(tmp_path: Path, content: bytes) -> None:
    config = parse(changed(SMALL, rounds=2))
    with create_run(tmp_path / config.name, config):
        pass
    file = tmp_path / config.name / FILE
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    with pytest.raises(RunError, match=r"scaled\.json is damaged: .*; put back a copy of it"):
        serve(config, runs=tmp_path, listen="127.0.0.1:0", pki=None, progress=Silent())
    opened = [os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.lexists(entry.path)]
    assert not [name for name in opened if files.REGISTRY in name or "events.jsonl" in name]
    assert not {"network", "events"} & {thread.name for thread in threading.enumerate()}


def test_round_trip(tmp_path: Path) -> None:
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / FILE).write_bytes(files.encode_pretty(Scaled([1.0], [2.0])))
    assert InputScaling(tmp_path, PART).found == Scaled([1.0], [2.0])
