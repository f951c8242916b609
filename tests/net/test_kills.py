"""Servers killed at any moment, and restarted with the same command and the same clients."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from e2e.command import Fedge, wait_until
from e2e.experiments import Settings, changed
from net import process_hooks
from net.deployment import Deployment, hook
from net.records import transitions
from net.scenes import DYNAVG, FEDAVG, SCENES

ON_THE_WAY = (
    "round gathering -> open",
    "task offered -> accepted",
    "task accepted -> fetching",
    "task fetching -> working",
    "task working -> waiting",
    "task waiting -> uploading",
    "task uploading -> settled",
    "round open -> closing",
    "round closing -> reducing",
    "round reducing -> open",
    "round reducing -> committing",
    "round committing -> committed",
)
"""The transitions of a round with several exchanges if nothing goes wrong."""
FOUR = (
    "task fetching -> working",
    "task uploading -> settled",
    "round closing -> reducing",
    "round committing -> committed",
)


def killed(deployment: Deployment) -> None:
    assert deployment.server.wait().code == -signal.SIGKILL


def assert_each_round_once(deployment: Deployment) -> None:
    assert [record["round"] for record in deployment.records()] == list(range(1, deployment.settings["rounds"] + 1))


def run_with_kills(fedge: Fedge, folder: Path, settings: Settings, moments: list[tuple[str, int]]) -> None:
    """Kill the server at each of these moments in turn, in one run; the clients stay."""
    with Deployment(fedge, folder, settings) as deployment:
        deployment.start_server(die_at=moments[0])
        deployment.start_clients()
        killed(deployment)
        for moment in moments[1:]:
            deployment.start_server(die_at=moment)
            killed(deployment)
        deployment.start_server()
        deployment.finish()
        assert_each_round_once(deployment)
        deployment.assert_equals_simulation()


@pytest.mark.full
def test_server_killed_at_every_transition(fedge: Fedge, tmp_path: Path) -> None:
    """One run of dynamic averaging, in which the server dies at each transition; at some, in a later exchange."""
    moments = [(name, 2 if name.startswith("task") else 1) for name in ON_THE_WAY]
    run_with_kills(fedge, tmp_path, DYNAVG, moments)


@pytest.mark.full
def test_the_transitions_of_an_undisturbed_run(fedge: Fedge, tmp_path: Path) -> None:
    """They are those of the state machine, and servers are killed at all of them."""
    with Deployment(fedge, tmp_path, DYNAVG) as deployment:
        deployment.start_server()
        deployment.start_clients()
        deployment.finish()
        assert set(deployment.transitions()) == set(ON_THE_WAY) <= set(transitions())
        deployment.assert_equals_simulation()


@pytest.mark.full
@pytest.mark.parametrize("number", [1, 4])
def test_a_server_killed_early_and_late(fedge: Fedge, tmp_path: Path, number: int) -> None:
    """At the very first transition, and at those of a later exchange or a later round."""
    few = {"round gathering -> open", "round reducing -> committing", "round committing -> committed"}
    moments = [(name, 2 if number > 1 and name in few else number) for name in ON_THE_WAY]
    run_with_kills(fedge, tmp_path, changed(DYNAVG, rounds=8), moments)


@pytest.mark.full
@pytest.mark.parametrize("scene", sorted(SCENES.keys() - {"dynavg"}))
def test_a_server_killed_with_each_algorithm(fedge: Fedge, tmp_path: Path, scene: str) -> None:
    run_with_kills(fedge, tmp_path, changed(SCENES[scene], rounds=4), [(name, 2) for name in FOUR])


@pytest.mark.full
def test_restarted_server_waits_for_its_clients(fedge: Fedge, tmp_path: Path) -> None:
    """Otherwise the next cohort would consist of those that reconnect first, since a round needs only few clients."""
    go = tmp_path / "go"
    with Deployment(fedge, tmp_path, changed(FEDAVG, selection={"fraction": 0.67})) as deployment:
        deployment.start_server(die_at=("round committing -> committed", 1))
        deployment.start_clients(0, 1)
        deployment.start_client(2, hooks=(hook(process_hooks.client_reconnects_after, file=str(go)),))
        killed(deployment)
        deployment.start_server("--set", "net.min_clients=1")

        def is_waiting() -> bool:
            status = deployment.status()
            return status is not None and "connected before the restart: 0, 1, 2" in status.waiting_for

        wait_until(lambda: is_waiting() or len(deployment.records()) > 1)
        go.touch()
        deployment.finish()
        assert_each_round_once(deployment)
        deployment.assert_equals_simulation()


def test_a_server_killed_after_the_last_commit(fedge: Fedge, tmp_path: Path) -> None:
    """After a restart it tells the clients that the run is complete."""
    run_with_kills(fedge, tmp_path, FEDAVG, [("round committing -> committed", FEDAVG["rounds"])])


@pytest.mark.parametrize("number", [1, pytest.param(3, marks=pytest.mark.full)])
def test_a_server_killed_while_it_writes_a_commit(fedge: Fedge, tmp_path: Path, number: int) -> None:
    with Deployment(fedge, tmp_path, FEDAVG) as deployment:
        dying = hook(process_hooks.die_while_writing, name="state.safetensors", number=number)
        deployment.start_server(hooks=(dying,))
        deployment.start_clients()
        killed(deployment)
        assert len(list(deployment.run.glob("checkpoint/state.safetensors.part"))) == 1
        deployment.start_server()
        deployment.finish()
        assert_each_round_once(deployment)
        deployment.assert_equals_simulation()
