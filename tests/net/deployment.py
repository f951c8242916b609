"""A server and its clients as real processes on this machine, and the files that they write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import torch

from e2e.command import Ended, Fedge, Process, wait_until
from e2e.experiments import Settings, write
from fedge.client.state_directory import StateDirectory
from fedge.config import load
from fedge.core.layout import Tree, pick
from fedge.core.state_version import Version
from fedge.experiment.setup import Setup
from fedge.net import pki
from fedge.net.identity import request_certificate
from fedge.net.status import PublishedStatus, read_status
from fedge.runs.checkpoint import load as load_checkpoint
from fedge.runs.directory import RunDirectory
from net import process_hooks
from net.records import read_events

Hook = tuple[str, str, dict[str, Any]]
MEASURED = ("seconds", "clock", "energy_j")
"""Fields of records that differ between real and simulated runs, besides those that start with sim_."""
_PAUSE_S = 0.02  # between two checks of a file, to leave the processor to the writers


def hook(function: Callable[..., None], **arguments: Any) -> Hook:
    """Return the hook that makes a process call a function of `process_hooks` first."""
    return function.__module__, function.__name__, arguments


class Deployment:
    """One experiment with a server and clients; the context ends all processes."""

    def __init__(
        self, fedge: Fedge, folder: Path, settings: Settings, disk: Path | None = None, secure: bool = False
    ) -> None:
        """Put the server's runs on `disk` if one is given; create certificates if secure."""
        self.folder, self.settings = folder, settings
        self.file = write(folder, settings)
        self.run = (disk or folder) / "served" / settings["name"]
        self.pki = folder / "pki" if secure else None
        if self.pki:
            pki.init(self.pki)
        self.clients: dict[int, Process] = {}
        self.server: Process
        self.port = 0
        self._fedge, self._stack = fedge, ExitStack()

    def start_server(
        self,
        *args: object,
        die_at: tuple[str, int] | None = None,
        fill_at: tuple[str, int, str] | None = None,
        hooks: tuple[Hook, ...] = (),
        **options: Any,
    ) -> Process:
        """Start the server on its previous port, if any, and wait until it listens; see `process_hooks.server`."""
        port_file = self.folder / "port"
        port_file.unlink(missing_ok=True)
        serving = hook(
            process_hooks.server,
            secret_seed=self.settings["seed"],
            port_file=str(port_file),
            transitions_file=str(self.folder / "transitions"),
            die_at=die_at,
            fill_at=fill_at,
        )
        command = ["server", self.file, "--listen", f"127.0.0.1:{self.port}", "--runs", self.run.parent]
        security = ["--pki", self.pki] if self.pki else ["--insecure"]
        self.server = self._stack.enter_context(
            self._fedge.start(*command, *security, *args, hooks=(serving, *hooks), **options)
        )
        wait_until(lambda: port_file.exists() or self.server.ended)
        assert port_file.exists(), self.server.wait().err
        self.port = int(port_file.read_text())
        return self.server

    def start_client(
        self, number: int, *args: object, port: int | None = None, hooks: tuple[Hook, ...] = (), **options: Any
    ) -> Process:
        """Start or restart a client with the data of this number."""
        command = ["client", "--server", f"127.0.0.1:{port or self.port}", *self._identity(number)]
        data = ["--data", f"{self.file}#{number}", "--state", self.state(number), "--threads", 1]
        self.clients[number] = self.start(*command, *data, *args, hooks=hooks, **options)
        return self.clients[number]

    def start(self, *args: object, **options: Any) -> Process:
        """Start any other command."""
        return self._stack.enter_context(self._fedge.start(*args, **options))

    def _identity(self, number: int) -> list[object]:
        if self.pki is None:
            return ["--insecure", "--name", f"c{number}"]
        folder = self.folder / f"cert-{number}"
        if not folder.exists():
            pki.sign(self.pki, request_certificate(folder, f"c{number}").request)
        return ["--cert", folder]

    def start_clients(self, *numbers: int) -> None:
        for number in numbers or range(self.num_clients):
            self.start_client(number)

    def finish(self) -> Ended:
        """Wait until the server and all clients have exited with code 0."""
        ended = self.server.wait()
        assert ended.code == 0, ended.err
        for number, client in self.clients.items():
            left = client.wait()
            assert left.code == 0, f"client {number}: {left.err}"
        return ended

    @property
    def num_clients(self) -> int:
        clients: int = self.settings["data"]["clients"]
        return clients

    def state(self, number: int) -> Path:
        return self.folder / f"state-{number}"

    def events(self, *names: str) -> list[dict[str, Any]]:
        """Return the logged events, all or only those with these names."""
        return [event for event in read_events(self.run / "events.jsonl") if not names or event["event"] in names]

    def wait_for_event(self, name: str, **fields: Any) -> None:
        """Wait until an event with this name and these fields is logged."""
        wait_until(lambda: any(fields.items() <= event.items() for event in self.events(name)), _PAUSE_S)

    def wait_for_joins(self, client: int, number: int = 1) -> None:
        """Wait until a client joins for the n-th time."""
        wait_until(lambda: sum(event["client"] == client for event in self.events("join")) >= number, _PAUSE_S)

    def wait_for_rounds(self, number: int) -> None:
        """Wait until this number of rounds is recorded."""
        wait_until(lambda: len(self.records()) >= number, _PAUSE_S)

    def status(self) -> PublishedStatus | None:
        return read_status(self.run / "status.json")

    def records(self) -> list[dict[str, Any]]:
        return unmeasured_records(self.run)

    def transitions(self) -> list[str]:
        return (self.folder / "transitions").read_text().splitlines()

    def assert_equals_simulation(self) -> None:
        """Check that unmeasured records, the server's state and clients' private state equal those of `loop`."""
        simulated = self.folder / "simulated"
        ended = self._fedge("run", self.file, "--runs", simulated, "--quiet")
        assert ended.code == 0, ended.err
        undisturbed = simulated / self.settings["name"]
        assert self.records() == unmeasured_records(undisturbed)
        assert_same(server_state(self.run), server_state(undisturbed))
        setup = Setup.of(load(self.file), self.settings["seed"])
        expected = private_state(undisturbed, setup, self.num_clients)
        for number in range(self.num_clients):
            assert_same(self.private_state(number, setup), expected[number])

    def private_state(self, number: int, setup: Setup) -> Tree:
        """Return a client's private state at the end of a run; the initial one if it never changed."""
        versions = self.versions(number)
        assert len(versions) <= 1, versions
        with StateDirectory(self.state(number), f"c{number}") as state:
            found = state.read(versions[0]) if versions else None
        return setup.algorithm.keep(setup.network.variables) if found is None else found

    def versions(self, number: int) -> list[Version]:
        """Return the versions of private state that a client has stored, once it has exited."""
        with StateDirectory(self.state(number), f"c{number}") as state:
            return state.versions()

    def committed_versions(self) -> list[Version]:
        """Return the versions of clients' private state that the last checkpoint refers to."""
        return [Version(*row) for row in _checkpoint(self.run)["world.versions"].tolist()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def unmeasured_records(run: Path) -> list[dict[str, Any]]:
    """Return the records of a run without measured fields."""
    file = run / "rounds.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return [dict(_unmeasured(json.loads(line))) for line in lines]


def server_state(run: Path) -> Tree:
    """Return the server's tensors in the last checkpoint."""
    return pick("server", _checkpoint(run))


def private_state(run: Path, setup: Setup, num_clients: int) -> list[Tree]:
    """Return the private state of each client of a simulated run."""
    with RunDirectory.open(run) as directory:
        store = directory.kept_store(setup.algorithm.keep(setup.network.variables))
        directory.restore()
        return [store.read(client) for client in range(num_clients)]


def assert_same(found: Tree, expected: Tree) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


def _checkpoint(run: Path) -> Tree:
    checkpoint = load_checkpoint(run / "checkpoint" / "state.safetensors")
    assert checkpoint is not None
    return checkpoint.state


def _unmeasured(record: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if name not in MEASURED and not name.startswith("sim_"):
            yield name, value
