"""Full disks at the server and at a client: committed rounds are kept, and the run resumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from e2e.command import Fedge
from e2e.experiments import changed
from fedge.runs.read import Run
from net import process_hooks
from net.deployment import Deployment, hook
from net.scenes import FEDAVG, SCAFFOLD

pytestmark = pytest.mark.full  # they mount a small disk


def run_until_full(fedge: Fedge, folder: Path, disk: Path, file: str, **moment: Any) -> None:
    """The first round is kept; once there is space, the same command resumes with the same clients."""
    with Deployment(fedge, folder, FEDAVG, disk=disk) as deployment:
        deployment.start_server(**moment)
        deployment.start_clients()
        ended = deployment.server.wait()
        assert ended.code == 7, ended.err
        assert f"cannot write {deployment.run}/{file}" in ended.err
        assert "No space left on device; free space on that disk" in ended.err
        assert "Traceback" not in ended.err
        (disk / "ballast").unlink()
        assert Run(deployment.run).status != "complete"
        deployment.start_server()
        deployment.finish()
        deployment.assert_equals_simulation()


def test_full_disk_during_the_commit(fedge: Fedge, tmp_path: Path, small_disk: Path) -> None:
    full = hook(process_hooks.disk_fills_before_writing, name="state.safetensors", number=2, folder=str(small_disk))
    run_until_full(fedge, tmp_path, small_disk, "checkpoint/state.safetensors", hooks=(full,))


def test_full_disk_during_an_upload(fedge: Fedge, tmp_path: Path, small_disk: Path) -> None:
    moment = ("task waiting -> uploading", 4, str(small_disk))
    run_until_full(fedge, tmp_path, small_disk, "spool/", fill_at=moment)


def test_full_disk_from_the_start(fedge: Fedge, tmp_path: Path, small_disk: Path) -> None:
    process_hooks.fill_disk(str(small_disk))
    with Deployment(fedge, tmp_path, FEDAVG, disk=small_disk) as deployment:
        ended = fedge(
            "server", deployment.file, "--insecure", "--listen", "127.0.0.1:0", "--runs", deployment.run.parent
        )
        assert ended.code == 7, ended.err
        assert "No space left on device; free space on that disk, then start again" in ended.err
        (small_disk / "ballast").unlink()
        deployment.start_server()
        deployment.start_clients()
        deployment.finish()


def test_full_disk_of_a_client(fedge: Fedge, tmp_path: Path, small_disk: Path) -> None:
    """The task fails with the reason, rounds continue without the client, and it rejoins once there is space."""
    settings = changed(
        SCAFFOLD, rounds=6, selection={"fraction": 1.0}, evaluate={"every": 6}, net={"min_clients": 3, "lease_s": 20.0}
    )
    go_on = tmp_path / "go on"
    with Deployment(fedge, tmp_path, settings) as deployment:
        (tmp_path / "state-1").symlink_to(small_disk)
        deployment.start_server()
        full = hook(process_hooks.disk_fills_before_writing, name="2-0-1.fdg", number=1, folder=str(small_disk))
        deployment.start_client(1, hooks=(full,))
        deployment.start_client(0, hooks=(hook(process_hooks.client_works_after, file=str(go_on), number=4),))
        deployment.start_client(2)
        deployment.wait_for_event("fail", client=1, round=3)
        for event in deployment.events("fail"):
            assert "No space left on device" in event["reason"]
        (small_disk / "ballast").unlink()
        go_on.touch()
        deployment.finish()
        reported = [record["reported"] for record in deployment.records()]
        assert reported[:3] == [3, 2, 2]
        assert reported[4:] == [3, 3]
        assert deployment.versions(1) == [deployment.committed_versions()[1]]
