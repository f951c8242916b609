"""A server and clients for `benchmarks.net_load`, with TLS on loopback.

Load clients are sessions without a model: they join, fetch, and answer with prepared bytes. A few processes run all of
them. Real clients (`fedge client`) take part as well. Processes are forked before grpc is imported.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from tests.net.certificates import Authority

from fedge.config import parse
from fedge.core.message import Outgoing, WorkAnswer
from fedge.core.parts import noting_parts
from fedge.core.progress import Silent
from fedge.core.registered import RegisteredClients
from fedge.experiment.setup import Setup
from fedge.net.payloads import in_chunks
from fedge.net.plan import digests, plan_of
from fedge.net.protocol import (
    PROTOCOL,
    Accept,
    Beat,
    Done,
    Facts,
    Finished,
    Grant,
    Hello,
    Joined,
    Offer,
    Ready,
    Settled,
    Welcome,
    encode,
    read_server,
)
from fedge.net.task import Transition
from fedge.net.transport import Credentials, LinkError

NUM_PROCESSES = 2
PATIENCE_S = 900.0
_FORK = get_context("fork")
_MODEL = """
from torch import nn

def build(shape, num_outputs, width):
    return nn.Sequential(nn.Linear(shape[0], width, bias=False), nn.Linear(width, num_outputs))
"""


class Scene(NamedTuple):
    """A run and its participants."""

    num_load: int
    num_real: int
    width: int  # of the model's hidden layer; six parameters per unit
    rounds: int = 1
    apart: bool = False  # load clients upload once all of them have fetched
    net: Mapping[str, Any] = MappingProxyType({})
    selection: Mapping[str, Any] = MappingProxyType({"fraction": 1.0})


class Habits(NamedTuple):
    """Behaviour of a load client besides answering."""

    dropout: float = 0.0  # probability of abandoning a task
    answers: bool = True  # otherwise it never finishes
    bytes_s: float | None = None  # upload rate; None: unlimited


_ORDINARY = Habits()


class LoadClient:
    """One session that answers offers with prepared bytes."""

    def __init__(self, port: int, name: str, credentials: Credentials, given: Given) -> None:
        self._port, self._name, self._credentials, self._given = port, name, credentials, given

    async def live(self, habits: Habits = _ORDINARY, turn: asyncio.Semaphore | None = None) -> None:
        """Take part until the run ends or the session breaks; a semaphore limits simultaneous joins."""
        from fedge.net.grpc_client import connect  # after the fork

        async with turn or asyncio.Semaphore():
            stream = await connect("localhost", self._port, self._credentials)
            try:
                answer = await self._join(stream)
            except BaseException:
                await stream.close()
                raise
        beats = asyncio.create_task(self._beat(stream))
        try:
            await self._serve(stream, answer, habits)
        finally:
            beats.cancel()
            await stream.close()

    async def _join(self, stream: Any) -> Outgoing:
        await stream.send(encode(Hello(PROTOCOL, self._name)))
        welcome = read_server(await _next(stream))
        assert isinstance(welcome, Welcome), welcome
        await stream.send(encode(Ready(self._given.digests, self._given.facts)))
        assert isinstance(read_server(await _next(stream)), Joined)
        _count(self._given.joined)
        return self._given.answers(welcome.number)

    async def _serve(self, stream: Any, answer: Outgoing, habits: Habits) -> None:
        while True:
            match read_server(await _next(stream)):
                case Offer() as offer:
                    _count(self._given.begun)
                    await stream.send(encode(Accept(offer.task)))
                    async for _ in stream.fetch(offer.task):
                        pass
                    _count(self._given.fetched)
                    if random.random() < habits.dropout:
                        return
                    if habits.answers:
                        await self._given.wait()
                        await stream.send(encode(Finished(offer.task, answer.num_bytes)))
                case Grant() as grant:
                    settled = read_server(await stream.upload(grant.task, _stream(answer, habits.bytes_s)))
                    assert isinstance(settled, Settled), settled
                    if settled.verdict == "again":
                        await stream.send(encode(Finished(grant.task, answer.num_bytes)))
                    elif settled.verdict == "received":
                        _count(self._given.sent)
                case Done():
                    return

    async def _beat(self, stream: Any) -> None:
        with suppress(LinkError):
            while True:
                await asyncio.sleep(30.0)
                await stream.send(encode(Beat()))


class Given(NamedTuple):
    """Shared state of load clients, created before the fork."""

    digests: dict[str, str]
    facts: Facts
    upload: dict[str, torch.Tensor]
    num_together: int  # uploads begin after this number of fetches, so that the two directions are timed separately
    joined: Synchronized[int]
    begun: Synchronized[int]  # fetches
    fetched: Synchronized[int]
    sent: Synchronized[int]

    def answers(self, number: int) -> Outgoing:
        return Outgoing(WorkAnswer(number, self.facts.size, 1, 1, 2, 1.0), self.upload)

    async def wait(self) -> None:
        while self.fetched.value < self.num_together:
            await asyncio.sleep(0.02)


async def _next(stream: Any) -> bytes:
    data = await stream.receive()
    if data is None:
        raise LinkError("the server has ended the session")
    return data  # type: ignore[no-any-return]


async def _stream(answer: Outgoing, bytes_s: float | None) -> AsyncIterator[bytes]:
    for chunk in in_chunks(answer):
        if bytes_s:
            await asyncio.sleep(len(chunk) / bytes_s)
        yield chunk


def _count(counter: Synchronized[int]) -> None:
    with counter.get_lock():
        counter.value += 1


class Stage:
    """A server and its clients, in a folder that is deleted at the end."""

    def __init__(self, scene: Scene, folder: Path) -> None:
        self.scene, self.folder = scene, folder
        self.authority = Authority()
        self.pki = folder / "pki"
        self._make_pki()
        (folder / "wide.py").write_text(_MODEL)
        raw = {
            "name": "load",
            "rounds": scene.rounds,
            "data": {"name": "remote", "shape": [4], "outputs": 2, "test_fraction": 0.0},
            "model": {"name": f"{folder}/wide.py:build", "options": {"width": scene.width}},
            "algorithm": {"name": "fedavg", "local_steps": 1, "batch_size": 2},
            "selection": dict(scene.selection),
            "evaluate": {"every": 10**6, "at": "clients"},
            "net": {"min_clients": scene.num_load + scene.num_real, "linger_s": 30.0, **scene.net},
        }
        self.config = parse(raw)
        near, far = _FORK.Pipe()
        self.seconds_open = _FORK.Queue()  # of each closed exchange
        self.server = _FORK.Process(target=self._run_server, args=(far,), daemon=True)
        self.server.start()  # before this process allocates a model
        part = self.config.data.server_part(1)
        registered = RegisteredClients((4,), 2, "classes", np.array([4]), np.zeros(0, np.int64))
        with noting_parts(self.config) as sources:
            setup = Setup.without_data(self.config, 1, registered)
        variables = setup.network.variables
        self.model_mb = sum(value.nbytes for value in variables.values()) / 1e6
        self.given = Given(
            digests(plan_of(self.config, part.plan, sources), setup.network, setup.algorithm),
            Facts((4,), 2, "classes", 4),
            {"y": variables["x"], "stats": variables["stats"]} if scene.num_load else {},
            scene.num_load if scene.apart else 0,
            *(_FORK.Value("q", 0) for _ in range(4)),
        )
        self._processes: list[Any] = []
        self._real: list[subprocess.Popen[bytes]] = []
        self.port: int = near.recv()
        assert self.server.pid is not None
        self.pid = self.server.pid
        self._wait_for_server()

    def start_load(self, work: Callable[[int, list[LoadClient]], Any]) -> None:
        """Start the processes of the load clients; `work` returns the coroutine of one process."""
        names = [f"load{number}" for number in range(self.scene.num_load)]
        clients = [LoadClient(self.port, name, self.authority.issue(name), self.given) for name in names]
        for number in range(NUM_PROCESSES if clients else 0):
            own = clients[number::NUM_PROCESSES]
            process = _FORK.Process(target=_run, args=(work, number, own), daemon=True)
            process.start()
            self._processes.append(process)

    def start_real(self) -> list[subprocess.Popen[bytes]]:
        """Start `fedge client` for each real client."""
        np.savez(
            self.folder / "own.npz",
            x_train=np.ones((4, 4), np.float32),
            y_train=np.array([0, 1, 0, 1]),
        )
        for number in range(self.scene.num_real):
            name, cert = f"real{number}", self.folder / f"cert{number}"
            cert.mkdir()
            credentials = self.authority.issue(name)
            (cert / f"{name}.key").write_bytes(credentials.key)
            (cert / f"{name}.crt").write_bytes(credentials.certificate + self.authority.pem)
            command = [sys.executable, "-c", "from fedge.cli import main; main()", "client", "--quiet"]
            command += ["--server", f"localhost:{self.port}", "--cert", str(cert), "--threads", "1"]
            command += ["--data", str(self.folder / "own.npz"), "--state", str(self.folder / f"state{number}")]
            command += ["--allow", str(self.folder / "wide.py")]
            self._real.append(subprocess.Popen(command))
        return self._real

    def wait(self, value: Synchronized[int], number: int) -> float:
        """Wait until a counter reaches a number, and return the time."""
        end = time.perf_counter() + PATIENCE_S
        while value.value < number:
            assert time.perf_counter() < end, f"{value.value} of {number}"
            assert self.server.is_alive(), "the server has ended"
            time.sleep(0.01)
        return time.perf_counter()

    def status(self) -> dict[str, Any]:
        """Return the server's status."""
        return json.loads((self.folder / "runs/load/status.json").read_text())  # type: ignore[no-any-return]

    def close(self) -> None:
        for process in (*self._processes, self.server):
            process.kill()
            process.join()
        for client in self._real:
            client.kill()
            client.wait()

    def _wait_for_server(self) -> None:
        """Wait until the server is ready for clients."""
        end = time.perf_counter() + PATIENCE_S
        while time.perf_counter() < end:
            with suppress(FileNotFoundError):
                if self.status()["state"] == "waiting":
                    return
            time.sleep(0.1)
        raise AssertionError("the server does not wait for clients")

    def _make_pki(self) -> None:
        self.pki.mkdir(mode=0o700)
        server = self.authority.server()
        (self.pki / "ca.crt").write_bytes(self.authority.pem)
        (self.pki / "server.crt").write_bytes(server.certificate)
        (self.pki / "server.key").write_bytes(server.key)
        (self.pki / "issued.jsonl").write_text("")

    def _run_server(self, pipe: Any) -> None:
        from fedge.experiment.networked_server import serve  # after the fork

        opened = 0.0

        def observe(transition: Transition) -> None:
            nonlocal opened
            if transition.machine == "round" and transition.after == "open":
                opened = time.perf_counter()
            elif transition.machine == "round" and transition.after == "closing":
                self.seconds_open.put(time.perf_counter() - opened)

        serve(
            self.config,
            runs=self.folder / "runs",
            listen="127.0.0.1:0",
            pki=self.pki,
            progress=Silent(),
            on_port=pipe.send,
            on_transition=observe,
        )


def _run(work: Callable[[int, list[LoadClient]], Any], number: int, clients: list[LoadClient]) -> None:
    asyncio.run(work(number, clients))


@contextmanager
def staged(scene: Scene) -> Iterator[Stage]:
    """Start the server of a scene, and stop all processes at the end."""
    folder = Path(tempfile.mkdtemp(prefix="fedge-load-"))
    stage = Stage(scene, folder)
    try:
        yield stage
    finally:
        stage.close()
        shutil.rmtree(folder, ignore_errors=True)
