"""An algorithm in a user file, on the command line: run, killed, resumed, changed, swept, on worker processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.command import Fedge, wait_until
from e2e.experiments import Settings, assert_same, changed, records, write
from own_parts import write_own

OWN: Settings = {
    "name": "own",
    "seed": 5,
    "rounds": 30,
    "data": {"name": "digits", "clients": 10},
    "model": {"name": "mine.py:Net"},
    "algorithm": {"name": "mine.py:FedAvgM", "beta": 0.5, "local_steps": 1},
    "checkpoint": {"every": 1},
}


@pytest.mark.full
@pytest.mark.parametrize("engine", ["block", "pool"])
def test_run_kill_and_resume(fedge: Fedge, tmp_path: Path, engine: str) -> None:
    """Resumed from another folder it equals an undisturbed run; with a changed file it is refused."""
    mine = write_own(tmp_path / "code")
    file = write(mine.parent, changed(OWN, engine={"name": engine, "workers": 2}))
    whole, cut = tmp_path / "whole" / "own", tmp_path / "cut" / "own"
    assert fedge("run", file, "--runs", whole.parent).code == 0
    with fedge.start("run", file, "--runs", cut.parent) as process:
        wait_until(lambda: (cut / "rounds.jsonl").exists() and (cut / "rounds.jsonl").stat().st_size > 0)
        process.kill()
    assert len(records(cut)) < OWN["rounds"]
    text = mine.read_text()
    mine.write_text(text + "# edited\n")
    refused = fedge("resume", cut)
    assert refused.code == 6
    assert f"{mine} is not the file that {cut} was made with" in refused.err
    mine.write_text(text)
    assert fedge("resume", cut).code == 0
    assert_same(cut, whole)


def test_a_sweep_over_user_algorithms_and_options(fedge: Fedge, tmp_path: Path) -> None:
    """Paths in conditions are relative to the file, like all others."""
    mine = write_own(tmp_path / "code")
    sweep = {"when": [{"if": "algorithm.name=mine.py:FedAvgM", "key": "algorithm.beta", "values": [0.1, 0.9]}]}
    algorithm = {"name": ["fedavg", "mine.py:FedAvgM"], "local_steps": 1}
    file = write(mine.parent, {**changed(OWN, algorithm=algorithm, rounds=1), "sweep": sweep})
    done = fedge("sweep", file, "--runs", tmp_path / "runs")
    assert done.code == 0, done.err
    found = {path.parent.name for path in (tmp_path / "runs" / "own").glob("*/summary.json")}
    assert found == {"fedavg", "mine.py-FedAvgM+beta-0.1", "mine.py-FedAvgM+beta-0.9"}
