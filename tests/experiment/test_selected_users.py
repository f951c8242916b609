"""`evaluate.users = "selected"`: the cohort of the next round, with the model that it downloads."""

from pathlib import Path
from typing import Any

import pytest

from e2e.experiments import SMALL, changed, records
from fedge import config as configuration
from fedge.core.progress import Silent
from fedge.experiment.setup import Setup
from fedge.experiment.start import start
from fedge.runs import Run

CELLS = {"clock": "cells", "cells": 2, "mobility_rate": 0.5, "dropout": 0.3}
WORLDS: dict[str, dict[str, Any]] = {
    "fixed": {},
    "unreliable": {"edge": {"dropout": 0.3, "availability": {"name": "diurnal", "period_s": 5.0}}},
    "cells": {"edge": CELLS, "selection": {"count": 2}},
    "fedcs": {"edge": {"deadline_s": 60.0}, "selection": {"name": "fedcs", "count": 4}},
}
ROUNDS = 4


def train(folder: Path, users: str, **changes: Any) -> Run:
    evaluate = {"user_accuracy": True, "users": users}
    settings = changed(SMALL, rounds=ROUNDS, data={"partition": "shards"}, evaluate=evaluate, engine={"name": "loop"})
    return Run(start(configuration.parse(changed(settings, **changes)), folder / users, Silent()))


def without_users(run: Run) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in line.items() if "user" not in key and key != "evaluated_clients"}
        for line in records(run.path)
    ]


@pytest.mark.parametrize("world", WORLDS)
def test_the_next_cohort_is_measured_and_nothing_else_changes(tmp_path: Path, world: str) -> None:
    everybody, selected = (train(tmp_path, users, **WORLDS[world]) for users in ("all", "selected"))
    assert without_users(everybody) == without_users(selected)
    accuracies = {row["client"]: row["user_accuracy"] for row in everybody.clients}
    found = {row["client"]: row["user_accuracy"] for row in selected.clients if "user_accuracy" in row}
    assert found.items() <= accuracies.items()
    # the cohort of a hypothetical fifth round
    longer = Run(start(configuration.parse(everybody.config | {"rounds": ROUNDS + 1}), tmp_path / "longer", Silent()))
    assert len(found) == longer.rounds[ROUNDS]["reported"]
    assert selected.summary is not None
    assert selected.summary["user_accuracy"] == pytest.approx(sum(found.values()) / len(found))


def test_the_cohort_is_that_of_the_next_round_and_not_of_the_last(tmp_path: Path) -> None:
    selected = train(tmp_path, "selected")
    setup = Setup.of(configuration.parse(selected.config), 3)
    (last,), (following,) = (setup.world().gather(round) for round in (ROUNDS, ROUNDS + 1))
    assert last.present != following.present
    assert tuple(row["client"] for row in selected.clients if "user_accuracy" in row) == following.present


def test_gathering_a_future_round_has_no_side_effect() -> None:
    settings = changed(SMALL, edge=CELLS, selection={"count": 2})
    world, untouched = (Setup.of(configuration.parse(settings), 3).world() for _ in range(2))
    world.gather(7)
    assert world.gather(1) == untouched.gather(1)
    before, after = untouched.state(), world.state()
    assert before.keys() == after.keys()
    assert all(bool((before[name] == after[name]).all()) for name in before)


def test_clean_users_are_a_target_that_stops_a_run(tmp_path: Path) -> None:
    noisy = {"data": {"noise": {"fraction": 0.5, "std": 3.0}, "partition": "iid"}, "rounds": 8}
    plain = train(tmp_path / "plain", "all", **noisy)
    values = [line["user_accuracy_clean"] for line in plain.rounds]
    goal = max(values[:-1])
    target = {"metric": "user_accuracy_clean", "value": goal, "stop": True}
    run = train(tmp_path / "stopped", "all", **noisy, target=target)
    assert run.summary is not None
    first = values.index(goal) + 1
    assert (run.summary["ended_by"], run.summary["rounds"], run.summary["rounds_to_target"]) == ("target", first, first)
    assert run.summary["best_user_accuracy_clean"] == goal


def test_user_accuracy_clean_needs_noisy_clients(tmp_path: Path) -> None:
    with pytest.raises(configuration.ConfigError, match=r"user_accuracy_clean needs noisy clients.*set data\.noise"):
        train(tmp_path, "all", target={"metric": "user_accuracy_clean", "value": 0.5})
