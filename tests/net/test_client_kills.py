"""Clients killed in each of their states: rounds close without them, and they rejoin."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import torch

from e2e.command import Fedge
from e2e.experiments import Settings, changed
from fedge.config import load
from fedge.experiment.setup import Setup
from net import process_hooks
from net.deployment import Deployment, hook, server_state
from net.scenes import MTFL, SCAFFOLD

ACTIVITIES = ("offered", "fetching", "working", "waiting", "uploading")
VICTIM = 1


def kill_client(deployment: Deployment, activity: str, number: int) -> None:
    """Start the victim, which dies the n-th time that it reaches a state, and wait for its death."""
    dying = hook(process_hooks.client_dies_at, activity=activity, number=number)
    victim = deployment.start_client(VICTIM, hooks=(dying,))
    assert victim.wait().code == -signal.SIGKILL


@pytest.mark.full
def test_restarted_client_loses_nothing(fedge: Fedge, tmp_path: Path) -> None:
    """It is killed in each state in turn, and restarted each time before its lease expires."""
    with Deployment(fedge, tmp_path, changed(SCAFFOLD, rounds=2, net={"lease_s": 100.0})) as deployment:
        deployment.start_server()
        deployment.start_clients(0, 2)
        for activity in ACTIVITIES:
            kill_client(deployment, activity, 1)
        deployment.start_client(VICTIM)
        deployment.finish()
        deployment.assert_equals_simulation()
        assert deployment.events("late") == []


@pytest.mark.parametrize(
    ("activity", "settings"),
    [
        *(pytest.param(activity, SCAFFOLD, marks=pytest.mark.full) for activity in ACTIVITIES),
        *(pytest.param(activity, MTFL, marks=pytest.mark.full) for activity in ACTIVITIES),
    ],
)
def test_rounds_close_without_a_killed_client(fedge: Fedge, tmp_path: Path, activity: str, settings: Settings) -> None:
    """It is killed in round 3, and rejoins before round 7."""
    settings = changed(
        settings,
        rounds=8,
        selection={"fraction": 1.0},
        evaluate={"every": 8},
        net={"lease_s": 1.5, "min_clients": 2},
    )
    go_on = tmp_path / "go on"
    with Deployment(fedge, tmp_path, settings) as deployment:
        deployment.start_server()
        dying = hook(process_hooks.client_dies_at, activity=activity, number=3)
        victim = deployment.start_client(VICTIM, hooks=(dying,))
        deployment.wait_for_event("join", client=VICTIM)
        deployment.start_client(0, hooks=(hook(process_hooks.client_works_after, file=str(go_on), number=6),))
        assert victim.wait().code == -signal.SIGKILL
        deployment.start_client(2)
        deployment.wait_for_rounds(5)
        lease = [event for event in deployment.events("drop") if "lease" in event.get("reason", "")]
        assert [(event["client"], event["round"]) for event in lease] == [(VICTIM, 3)]
        assert "the lease of 1.5 s has expired" in lease[0]["reason"]
        assert deployment.records()[2]["reported"] < deployment.records()[2]["cohort"]
        deployment.start_client(VICTIM)
        deployment.wait_for_joins(VICTIM, 2)
        go_on.touch()
        deployment.finish()
        assert [record["round"] for record in deployment.records()] == list(range(1, 9))
        assert deployment.records()[-1]["reported"] == 3
        assert deployment.events("fail", "reject") == []
        assert_private_state_is_what_counted(deployment)


def assert_private_state_is_what_counted(deployment: Deployment) -> None:
    """Each client has the version that the server counted last; the mean of SCAFFOLD's c_i is the server's c."""
    setup = Setup.of(load(deployment.file), deployment.settings["seed"])
    versions = deployment.committed_versions()
    kept = [deployment.private_state(number, setup) for number in range(deployment.num_clients)]
    for number, version in enumerate(versions):
        assert deployment.versions(number) == [version]
    if deployment.settings["algorithm"]["name"] == "scaffold":
        mean = torch.stack([tree["c_i"] for tree in kept]).mean(0)
        torch.testing.assert_close(mean, server_state(deployment.run)["base.c"])
