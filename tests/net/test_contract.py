"""`net` equals `loop` bit for bit, for every algorithm and wrapper: three clients over loopback with TLS."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
import torch
from msgspec import Raw

import fedge
from federation import BUILDS, Federation, mixed
from fedge.client.state_directory import StateDirectory
from fedge.core.algorithm import Costs, Reply
from fedge.core.drive import Outcome, drive
from fedge.core.layout import Tree
from fedge.core.message import NoMeta, Outgoing
from fedge.core.net_options import NetOptions
from fedge.core.registered import RegisteredClients
from fedge.edge.selection import Uniform
from fedge.net.admission import Terms
from fedge.net.engine import NetEngine
from fedge.net.events import EventLog
from fedge.net.grpc_server import serve
from fedge.net.hub import Hub
from fedge.net.loop_thread import LoopThread
from fedge.net.planned_round import RoundPlan
from fedge.net.registry import Registry
from fedge.net.spool import Spool
from fedge.net.world import MeasuredWorld
from net.certificates import Authority
from net.contract_client import SIZES

ROUNDS = 3
PATIENCE_S = 120.0  # deadline of every wait
DEFAULT = ("scaffold", "mtfl(fedavg_adam, bn)", "dynavg(0.02)", "ce_fedavg(0.9)", "codec(fedavg, sparse)")
"""Builds for the default tests: private state, several exchanges, streams, error feedback."""
OPTIONS = NetOptions(min_clients=len(SIZES), wait_s=PATIENCE_S, linger_s=PATIENCE_S, lease_s=PATIENCE_S)


class Clients:
    """A process per client, which takes part in one run after another."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority()
        self._folder = folder
        places = [str(Path(__file__).parents[1]), str(Path(fedge.__file__).parents[1])]
        command = [sys.executable, "-m", "net.contract_client"]
        environment = {"PYTHONPATH": ":".join(places), "PATH": "/usr/bin:/bin"}
        self._processes = [
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment
            )
            for _ in SIZES
        ]
        for number, process in enumerate(self._processes):
            assert _stream(process.stdout).readline() == '"ready"\n'
            certificate = self._certificate(number)
            certificate.mkdir()
            for part, data in self.authority.issue(f"c{number}")._asdict().items():
                (certificate / f"{part}.pem").write_bytes(data)

    def start(self, build: str, port: int, states: Path) -> None:
        """Let all clients take part in a run."""
        for number, process in enumerate(self._processes):
            wanted = {"build": build, "number": number, "port": port, "certificate": str(self._certificate(number))}
            _stream(process.stdin).write(json.dumps({**wanted, "state": str(states / f"c{number}")}) + "\n")

    def wait(self) -> list[str]:
        """Return each client's result line."""
        return [json.loads(_stream(process.stdout).readline()) for process in self._processes]

    def close(self) -> None:
        for process in self._processes:
            _stream(process.stdin).close()
            process.wait(PATIENCE_S)

    def _certificate(self, number: int) -> Path:
        return self._folder / f"certificate-{number}"


def _stream(file: IO[str] | None) -> IO[str]:
    assert file is not None
    return file


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    found = Clients(tmp_path_factory.mktemp("certificates"))
    yield found
    found.close()


class Networked(Federation):
    """A federation whose clients are separate processes."""

    def __init__(self, name: str, clients: Clients, folder: Path) -> None:
        super().__init__(BUILDS[name], mixed(SIZES))
        server = self.sides.server
        network = self.sides.clients.network
        self._registry, self._log = Registry.open(folder / "registry.sqlite"), EventLog(folder / "events.jsonl")
        spool = Spool(folder / "spool")
        given = self.sides.clients.data
        sizes = np.array(SIZES)
        server.clients = RegisteredClients(
            given.shape, given.num_outputs, given.task, sizes, np.zeros(0, np.int64), sizes
        )
        terms = Terms(
            "contract",
            Raw(b"\xc0"),
            Outgoing(NoMeta(), network.variables),
            {},
            given.shape,
            given.num_outputs,
            given.task,
            len(SIZES),
            lambda fingerprint: False,
        )
        self.hub = Hub(terms, OPTIONS, self._registry, self._log, spool)
        self.loop = LoopThread("network")
        self.world = MeasuredWorld(Uniform(fraction=1.0), 7, 1.0, self.hub.connected, lambda phases: phases.up)
        (folder / "checkpoint").mkdir()
        self.engine = NetEngine(server, self.hub, self.loop, self.world, OPTIONS, RoundPlan(folder), spool, None)
        self.running = self.loop.call(serve(self.hub, "127.0.0.1", 0, clients.authority.server()))

    def round(self, cohort: Any = None) -> Outcome:
        self.info = self.info._replace(round=self.info.round + 1)
        assert self.engine.begin(self.info.round, lambda: len(SIZES)) == len(SIZES)
        (outcome,) = drive(self.engine, self.clients.algorithm, [self.state], [self.info])
        self.state = outcome.state
        self.engine.committing()
        return outcome

    def finish(self) -> None:
        self.loop.call(self.hub.finish(Outgoing(NoMeta(), {}), self.world.named, OPTIONS.linger_s))

    def close(self) -> None:
        self.loop.call(self.running.stop())
        self.loop.stop()
        self._log.close()
        self._registry.close()


@contextmanager
def networked(name: str, clients: Clients, folder: Path) -> Iterator[Networked]:
    found = Networked(name, clients, folder)
    try:
        clients.start(name, found.running.port, folder / "states")
        yield found
    finally:
        found.close()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in DEFAULT else [pytest.mark.full]) for name in BUILDS]
)
def test_net_equals_loop(name: str, clients: Clients, tmp_path: Path) -> None:
    assert set(DEFAULT) <= BUILDS.keys()
    loop = Federation(BUILDS[name], mixed(SIZES))
    with networked(name, clients, tmp_path) as net:
        for _ in range(ROUNDS):
            expected, found = loop.round(), net.round()
            assert found.void == expected.void
            for one, other in zip(found.replies, expected.replies, strict=True):
                _assert_same_reply(one, other)
        _assert_same(net.state, loop.state)
        net.finish()
        assert clients.wait() == ["done"] * len(SIZES)
    for number in range(len(SIZES)):
        _assert_same(_private_state(tmp_path / "states" / f"c{number}", loop, number), loop.clients.kept.read(number))


def _private_state(folder: Path, loop: Federation, number: int) -> Tree:
    """Return a client's private state on disk at the end: one version, or the run's initial state."""
    with StateDirectory(folder, f"c{number}") as state:
        state.begin("contract", number)
        versions = state.versions()
        assert len(versions) <= 1
        found = state.read(versions[0]) if versions else None
    return loop.clients.algorithm.keep(loop.clients.network.variables) if found is None else found


def _assert_same_reply(one: Reply, other: Reply) -> None:
    assert (one.ids, one.missing, one.communicated) == (other.ids, other.missing, other.communicated)
    assert one.cosine_distance == other.cosine_distance
    np.testing.assert_array_equal(one.samples, other.samples)
    np.testing.assert_array_equal(one.losses, other.losses)
    for field in Costs._fields[:-1]:
        np.testing.assert_array_equal(getattr(one.costs, field), getattr(other.costs, field), field)
    assert one.costs.measured is not None
    assert one.costs.measured.finish.shape == (len(one.ids),)


def _assert_same(one: Tree, other: Tree) -> None:
    assert one.keys() == other.keys()
    for key, value in other.items():
        assert torch.equal(one[key], value), key
