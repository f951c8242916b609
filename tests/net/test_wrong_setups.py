"""Wrong setups: two servers, other data, another state directory, too few clients, old backups."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from e2e.command import Fedge, Process, wait_until
from e2e.experiments import changed, snapshot, write
from fedge.net import pki
from fedge.net.status import ServerStatus
from fedge.runs.read import Run
from net import process_hooks
from net.deployment import Deployment, hook
from net.scenes import FEDAVG, SCAFFOLD
from net.test_network_faults import proxied


def refused(process: Process, code: int) -> str:
    """Check that the command exits with this code and without a traceback; return its stderr."""
    ended = process.wait()
    assert ended.code == code, ended.err
    assert "Traceback" not in ended.err
    return ended.err


PHASES = ["offer", "accept", "fetch", "work", "finish", "upload", "receive"]


def assert_events_are_complete(deployment: Deployment) -> None:
    """Every phase of every task is logged in order, and the logged bytes equal those that clients transferred."""
    for record in Run(deployment.run).rounds:
        mine = [event for event in deployment.events(*PHASES) if event["round"] == record["round"]]
        for client in range(deployment.num_clients):
            assert [event["event"] for event in mine if event["client"] == client] == PHASES
        received = [event for event in mine if event["event"] == "receive"]
        assert sum(event["bytes"] for event in received) == record["bytes_up"]
        assert sum(event["bytes"] for event in mine if event["event"] == "offer") == record["bytes_down"]
        assert all(event[phase] >= 0 for event in received for phase in ("down_s", "compute_s", "up_s"))
    totals = {event: sum(each["bytes"] for each in deployment.events(event)) for event in ("offer", "receive")}
    status = deployment.status()
    assert status is not None
    assert totals["receive"] == status.bytes_up
    assert 0 < totals["offer"] < status.bytes_down  # which includes the initial and the final model
    assert status.waiting_for == ""


@pytest.mark.full
def test_refusals_while_a_server_waits(fedge: Fedge, tmp_path: Path) -> None:
    with Deployment(fedge, tmp_path, FEDAVG) as deployment:
        server = deployment.start_server()
        here = f"127.0.0.1:{deployment.port}"
        serve = ["server", deployment.file, "--insecure", "--runs", deployment.run.parent]
        said = refused(deployment.start(*serve, "--listen", "127.0.0.1:0"), 6)
        assert f"{deployment.run} is in use by process {server.pid}" in said
        said = refused(deployment.start(*serve, "--listen", here, "--set", "name=other"), 9)
        assert f"cannot listen on {here}: Address already in use; choose another with --listen HOST:PORT" in said

        first = deployment.start_client(0)
        deployment.wait_for_joins(0)
        wait_until(lambda: (deployment.status() or ServerStatus(run="", state="")).state == "waiting")
        status = deployment.status()
        assert status is not None
        assert status.waiting_for == "waiting for net.min_clients = 3 clients"
        assert status.deadline_s is not None
        assert 0 <= status.deadline_s <= 100

        def join(name: str, data: object, state: object) -> Process:
            who = ["--insecure", "--name", name, "--threads", 1]
            return deployment.start("client", "--server", here, *who, "--data", data, "--state", state)

        own = f"{deployment.file}#0"
        said = refused(join("c0", own, deployment.state(0)), 6)
        assert f"{deployment.state(0)} is in use by process {first.pid}" in said
        said = refused(join("c7", own, tmp_path / "state-7"), 9)
        assert "names the number 0, which belongs to client 'c0'" in said
        said = refused(join("c0", f"{deployment.file}#1", tmp_path / "state-8"), 9)
        assert "client 'c0' has the number 0 in this run, but its data names 1" in said
        other = write(tmp_path / "other", changed(FEDAVG, data={"name": "synthetic", "clients": 3}))
        said = refused(join("c1", f"{other}#1", tmp_path / "state-9"), 3)
        assert f"data.name: the server has 'digits', {other} has 'synthetic'" in said

        deployment.start_clients(1, 2)
        deployment.finish()
        said = refused(join("c9", own, deployment.state(0)), 6)
        assert f"{deployment.state(0)} is the state directory of client 'c0', but this client is 'c9'" in said
        deployment.assert_equals_simulation()
        assert_events_are_complete(deployment)

        before = snapshot(deployment.run)
        again = fedge(*serve, "--listen", here)
        assert again.code == 0
        assert f"{deployment.run}: is complete already" in again.err
        said = refused(deployment.start(*serve, "--listen", here, "--set", "data.clients=4"), 2)
        assert "data: cannot change when a run is resumed; start a new run instead" in said
        assert snapshot(deployment.run) == before


@pytest.mark.full
def test_too_few_clients(fedge: Fedge, tmp_path: Path) -> None:
    """The wait is bounded and explained; rounds without clients are void, and too many of these end the run."""
    settings = changed(FEDAVG, net={"wait_s": 1.5, "min_clients": 2}, edge={"max_void_rounds": 3})
    with Deployment(fedge, tmp_path, settings) as deployment:
        deployment.start_server()
        deployment.start_client(0)
        wait_until(lambda: "net.min_clients = 2" in getattr(deployment.status(), "waiting_for", ""))
        ended = deployment.server.wait()
        assert ended.code == 5, ended.err
        assert "waiting for net.min_clients = 2 clients, 0:0" in ended.err
        assert "no client answered in 3 consecutive rounds, the limit of edge.max_void_rounds" in ended.err
        assert " clients are connected, and a round needs net.min_clients = 2 within net.wait_s = 1.5" in ended.err
        assert [bool(record.get("void")) for record in deployment.records()] == [True] * 3
        assert len(deployment.events("void")) == 3
        assert not (deployment.run / "summary.json").exists()
        assert Run(deployment.run).status != "complete"

        # The connected client still runs, and may take some time to reconnect
        deployment.start_server("--set", "rounds=5", "--set", "net.wait_s=100")
        deployment.start_client(1)
        deployment.finish()
        assert [bool(record.get("void")) for record in deployment.records()] == [True] * 3 + [False] * 2


def test_run_without_a_valid_round_is_not_complete(fedge: Fedge, tmp_path: Path) -> None:
    settings = changed(FEDAVG, rounds=2, net={"wait_s": 0.2, "min_clients": 2}, edge={"max_void_rounds": 10})
    with Deployment(fedge, tmp_path, settings) as deployment:
        deployment.start_server()
        ended = deployment.server.wait()
        assert ended.code == 5, ended.err
        assert "no client answered in any of the 2 rounds" in ended.err
        assert Run(deployment.run).status != "complete"


@pytest.mark.full
def test_deleted_run_starts_again(fedge: Fedge, tmp_path: Path) -> None:
    """Clients that wait take part in the new run, with fresh private state."""
    with Deployment(fedge, tmp_path, SCAFFOLD) as deployment:
        deployment.start_server(die_at=("round committing -> committed", 2))
        deployment.start_clients()
        deployment.server.wait()
        before = Run(deployment.run).id
        shutil.rmtree(deployment.run)
        deployment.start_server()
        deployment.finish()
        assert Run(deployment.run).id != before
        mark = json.loads((deployment.state(0) / "client.json").read_text())
        assert mark["run"] == Run(deployment.run).id
        deployment.assert_equals_simulation()


@pytest.mark.full
def test_private_state_from_an_old_backup(fedge: Fedge, tmp_path: Path) -> None:
    """The client reports what is missing, rounds continue without it, and --reset-state lets it start over."""
    settings = changed(SCAFFOLD, rounds=8, selection={"fraction": 1.0}, evaluate={"every": 8}, net={"lease_s": 100.0})
    go_on, back_up = tmp_path / "go on", tmp_path / "back-up"

    def killed(number: int) -> None:
        dying = hook(process_hooks.client_dies_at, activity="working", number=number)
        assert deployment.start_client(1, hooks=(dying,)).wait().code == -signal.SIGKILL

    with Deployment(fedge, tmp_path, settings) as deployment:
        deployment.start_server()
        deployment.start_client(0, hooks=(hook(process_hooks.client_works_after, file=str(go_on), number=5),))
        deployment.start_client(2)
        killed(2)  # in round 2
        shutil.copytree(deployment.state(1), back_up)
        killed(3)  # in round 4
        shutil.rmtree(deployment.state(1))
        shutil.copytree(back_up, deployment.state(1))
        old = deployment.start_client(1)
        deployment.wait_for_event("fail", client=1, round=5)
        reason = deployment.events("fail")[0]["reason"]
        assert "the server asks for version 3-0-1 of this client's private state" in reason
        assert " has 1-0-1; put back a newer copy" in reason
        assert "--reset-state" in reason
        assert "--reset-state" in old.err
        old.send(signal.SIGTERM)
        assert old.wait().code == 143
        deployment.start_client(1, "--reset-state")
        deployment.wait_for_joins(1, 4)
        go_on.touch()
        deployment.finish()
        assert [record["reported"] for record in deployment.records()] == [3, 3, 3, 2, 2, 3, 3, 3]
        assert deployment.versions(1) == [deployment.committed_versions()[1]]


def test_an_unreachable_server_is_reported_once(fedge: Fedge, tmp_path: Path) -> None:
    with Deployment(fedge, tmp_path, changed(FEDAVG, rounds=1)) as deployment:
        deployment.start_server()
        with proxied(deployment.port) as proxy:
            proxy.refuse(True)  # type: ignore[attr-defined]
            deployment.start_client(0, port=proxy.port)
            wait_until(lambda: proxy.num_connections >= 4)
            assert deployment.clients[0].err.count("retrying") == 1
            proxy.refuse(False)  # type: ignore[attr-defined]
            deployment.start_clients(1, 2)
            deployment.finish()


@pytest.mark.full
def test_client_revoked_during_the_run(fedge: Fedge, tmp_path: Path) -> None:
    """It is refused at the next offer, and rounds continue without it."""
    settings = changed(FEDAVG, rounds=5, net={"min_clients": 2})
    go_on = tmp_path / "go on"
    with Deployment(fedge, tmp_path, settings, secure=True) as deployment:
        deployment.start_server()
        deployment.start_client(1)
        deployment.wait_for_joins(1)
        deployment.start_client(0, hooks=(hook(process_hooks.client_works_after, file=str(go_on), number=3),))
        deployment.start_client(2)
        deployment.wait_for_joins(2)
        deployment.wait_for_event("fetch", client=1, round=3)
        assert deployment.pki is not None
        pki.revoke(deployment.pki, "c1")
        go_on.touch()
        said = refused(deployment.clients.pop(1), 9)
        assert "the certificate of 'c1' is revoked; ask the server's operator for a new one" in said
        deployment.finish()
        assert [record["reported"] for record in deployment.records()][3:] == [2, 2]
