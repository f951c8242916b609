"""A whole server under load, with TLS on loopback: `python -m benchmarks.net_load [SCENE]...`.

Load clients are sessions without a model of their own: they join, fetch, and answer with bytes made beforehand. A few
processes have all of them. Beside them real clients (`fedge client`) take part. The scenes:

    payload   200 load clients and 5 real ones, 25 MB down and up: GB/s, and the server's memory
    idle      2,000 idle clients: share of one core
    large     three real clients with a model of 1 GB: peak memory of server and client
    churn     200 clients of which many come and go, for five minutes: slope of memory and descriptors

Processes are forked before anything imports grpc.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import pi, sin
from multiprocessing import get_context
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from tests.net.certificates import Authority

from benchmarks.net_transport import _peak, _processor_s
from fedge.config import parse
from fedge.core.message import Outgoing, WorkAnswer
from fedge.core.progress import Silent
from fedge.core.registered import RegisteredClients
from fedge.experiment.setup import Setup
from fedge.net.chunks import in_chunks
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
    Hold,
    Joined,
    Offer,
    Ready,
    Settled,
    Welcome,
    encode,
    read_server,
)
from fedge.net.transport import Credentials, LinkError

NUM_PROCESSES = 2
GOALS = {"down_gb_s": 0.5, "peak_beyond_mb": 300, "idle_core_share": 0.05}
_FORK = get_context("fork")
_PATIENCE_S = 900.0
_MODEL = """
from torch import nn

def build(shape, num_outputs, width):
    return nn.Sequential(nn.Linear(shape[0], width, bias=False), nn.Linear(width, num_outputs))
"""


class Scene(NamedTuple):
    """A run, and who takes part."""

    num_load: int
    num_real: int
    width: int  # of the model's hidden layer: six parameters each
    rounds: int = 1
    net: Mapping[str, Any] = MappingProxyType({})
    selection: Mapping[str, Any] = MappingProxyType({"fraction": 1.0})


SCENES = {
    "payload": Scene(200, 5, 25_000_000 // 4 // 6, rounds=1),
    "idle": Scene(2000, 0, 1000, net={"min_clients": 5000, "wait_s": 600.0}),
    "large": Scene(0, 3, 1_000_000_000 // 4 // 6, rounds=2),
    "churn": Scene(
        200,
        5,
        100_000,
        rounds=100_000,
        net={"min_clients": 20, "lease_s": 5.0, "fraction": 0.7, "grace_s": 0.5},
        selection={"count": 40},
    ),
}


class LoadClient:
    """One session that answers offers with bytes made beforehand."""

    def __init__(self, port: int, name: str, credentials: Credentials, given: Given) -> None:
        self._port, self._name, self._credentials, self._given = port, name, credentials, given

    async def live(self, dropout: float = 0.0) -> None:
        """Take part until the run ends, or the session breaks; with a chance, leave in the middle of a task."""
        from fedge.net.grpc_client import connect  # after the fork

        stream = await connect("localhost", self._port, self._credentials)
        try:
            await stream.send(encode(Hello(PROTOCOL, self._name)))
            welcome = read_server(await _next(stream))
            assert isinstance(welcome, Welcome), welcome
            await stream.send(encode(Ready(self._given.digests, self._given.facts)))
            assert isinstance(read_server(await _next(stream)), Joined)
            self._given.joined.value += 1
            beats = asyncio.create_task(self._beat(stream))
            try:
                await self._serve(stream, self._given.answers(welcome.number), dropout)
            finally:
                beats.cancel()
        finally:
            await stream.close()

    async def _serve(self, stream: Any, answer: Outgoing, dropout: float) -> None:
        while True:
            match read_server(await _next(stream)):
                case Offer() as offer:
                    await stream.send(encode(Accept(offer.task)))
                    async for _ in stream.fetch(offer.task):
                        pass
                    with self._given.fetched.get_lock():
                        self._given.fetched.value += 1
                    if random.random() < dropout:
                        return
                    await self._given.wait()
                    await stream.send(encode(Finished(offer.task, answer.num_bytes)))
                case Grant() as grant:
                    settled = read_server(await stream.upload(grant.task, _stream(answer)))
                    assert isinstance(settled, Settled), settled
                    if settled.verdict == "again":
                        await stream.send(encode(Finished(grant.task, answer.num_bytes)))
                    with self._given.sent.get_lock():
                        self._given.sent.value += settled.verdict == "received"
                case Done():
                    return
                case Hold() | _:
                    pass

    async def _beat(self, stream: Any) -> None:
        with suppress(LinkError):
            while True:
                await asyncio.sleep(30.0)
                await stream.send(encode(Beat()))


class Given(NamedTuple):
    """What load clients have: made before the fork."""

    digests: dict[str, str]
    facts: Facts
    upload: dict[str, torch.Tensor]
    num_together: int  # uploads begin once so many have fetched, in order to tell the two ways apart
    joined: Synchronized[int]
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


async def _stream(answer: Outgoing) -> AsyncIterator[bytes]:
    for chunk in in_chunks(answer):
        yield chunk


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
        part = self.config.data.server_part(1)
        registered = RegisteredClients((4,), 2, "classes", np.array([4]), np.zeros(0, np.int64))
        from fedge.core.userfile import noting_sources
        from fedge.runs.code import hash_code

        with noting_sources() as sources:
            setup = Setup.without_data(self.config, 1, registered)
        variables = setup.network.variables
        self.model_mb = sum(value.nbytes for value in variables.values()) / 1e6
        self.given = Given(
            digests(plan_of(self.config, part.plan, hash_code(sources)), setup.network, setup.algorithm),
            Facts((4,), 2, "classes", 4),
            {"y": variables["x"], "stats": variables["stats"]},
            scene.num_load if scene.rounds == 1 else 0,
            *(_FORK.Value("q", 0) for _ in range(3)),
        )
        self._processes: list[Any] = []
        near, far = _FORK.Pipe()
        self.server = _FORK.Process(target=self._run_server, args=(far,), daemon=True)
        self.server.start()
        self.port: int = near.recv()
        assert self.server.pid is not None
        self.pid = self.server.pid

    def start_load(self, work: Callable[[int, list[LoadClient]], Any]) -> None:
        """Start the processes of the load clients; `work` makes the coroutine of one process."""
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
        found = []
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
            found.append(subprocess.Popen(command))
        return found

    def wait(self, value: Synchronized[int], number: int) -> float:
        """Wait until a counter has reached a number; return the time."""
        end = time.perf_counter() + _PATIENCE_S
        while value.value < number:
            assert time.perf_counter() < end, f"{value.value} of {number}"
            assert self.server.is_alive(), "the server has ended"
            time.sleep(0.01)
        return time.perf_counter()

    def close(self) -> None:
        for process in (*self._processes, self.server):
            process.kill()
            process.join()

    def _make_pki(self) -> None:
        self.pki.mkdir(mode=0o700)
        server = self.authority.server()
        (self.pki / "ca.crt").write_bytes(self.authority.pem)
        (self.pki / "server.crt").write_bytes(server.certificate)
        (self.pki / "server.key").write_bytes(server.key)
        (self.pki / "issued.jsonl").write_text("")

    def _run_server(self, pipe: Any) -> None:
        from fedge.experiment.serving import serve  # after the fork

        serve(
            self.config,
            runs=self.folder / "runs",
            listen="127.0.0.1:0",
            pki=self.pki,
            progress=Silent(),
            on_port=pipe.send,
        )


def _run(work: Callable[[int, list[LoadClient]], Any], number: int, clients: list[LoadClient]) -> None:
    asyncio.run(work(number, clients))


@contextmanager
def _stage(name: str, **changes: Any) -> Iterator[Stage]:
    folder = Path(tempfile.mkdtemp(prefix="fedge-load-"))
    stage = Stage(SCENES[name]._replace(**changes), folder)
    try:
        yield stage
    finally:
        stage.close()
        shutil.rmtree(folder, ignore_errors=True)


async def _all(number: int, clients: list[LoadClient]) -> None:
    await asyncio.gather(*(client.live() for client in clients))


def payload(**changes: Any) -> dict[str, Any]:
    """GB/s down and up of all load clients, and the server's memory beyond what it had before the round."""
    with _stage("payload", **changes) as stage:
        given, num_load = stage.given, stage.scene.num_load
        real = stage.start_real()
        before = _memory_mb(stage.pid)
        with _peak(stage.pid) as peak:
            stage.start_load(_all)
            began = stage.wait(given.fetched, 1)
            fetched = stage.wait(given.fetched, num_load)
            sent = stage.wait(given.sent, num_load)
            codes = [process.wait(_PATIENCE_S) for process in real]
        total = num_load * stage.model_mb / 1000
        state = 3 * stage.model_mb  # the new state, and a running mean in float64
        return {
            "model_mb": stage.model_mb,
            "load_clients": num_load,
            "real_clients_done": codes.count(0),
            "down_gb_s": total / (fetched - began),
            "up_gb_s": total / (sent - fetched),
            "peak_pss_mb": peak["pss"] / 1e6,
            "peak_beyond_start_mb": peak["pss"] / 1e6 - before,
            "peak_beyond_mb": peak["pss"] / 1e6 - before - state,
        }


def idle(seconds: float = 60.0, **changes: Any) -> dict[str, Any]:
    """The server's share of one core while nothing happens."""
    with _stage("idle", **changes) as stage:
        stage.start_load(_all)
        stage.wait(stage.given.joined, stage.scene.num_load)
        before = _processor_s(stage.pid)
        time.sleep(seconds)
        share = (_processor_s(stage.pid) - before) / seconds
        return {"clients": stage.scene.num_load, "idle_core_share": share, "pss_mb": _memory_mb(stage.pid)}


def large(**changes: Any) -> dict[str, Any]:
    """Peak memory of the server and of a client, and seconds of two rounds."""
    with _stage("large", **changes) as stage:
        real = stage.start_real()
        before, began = _memory_mb(stage.pid), time.perf_counter()
        with _peak(stage.pid) as server, _peak(real[0].pid) as client:
            codes = [process.wait(_PATIENCE_S) for process in real]
        return {
            "model_mb": stage.model_mb,
            "clients_done": codes.count(0),
            "seconds": time.perf_counter() - began,
            "server_before_mb": before,
            "server_peak_mb": server["pss"] / 1e6,
            "client_peak_mb": client["pss"] / 1e6,
        }


def churn(seconds: float = 300.0, **changes: Any) -> dict[str, Any]:
    """Slope of the server's memory and descriptors while clients come and go: MB and descriptors a minute.

    One task in ten is left in the middle, and four times as many clients are there at the top of a swing of two minutes
    as at its bottom.
    """
    with _stage("churn", **changes) as stage:
        began = time.monotonic()

        async def come_and_go(client: LoadClient, place: float) -> None:
            while True:
                swing = 0.625 + 0.375 * sin(2 * pi * (time.monotonic() - began) / 120)  # 0.25 to 1
                if place <= swing:
                    with suppress(LinkError, asyncio.TimeoutError):
                        await asyncio.wait_for(client.live(dropout=0.1), random.uniform(5, 40))
                await asyncio.sleep(random.uniform(0.1, 2.0))

        async def work(number: int, clients: list[LoadClient]) -> None:
            await asyncio.gather(*(come_and_go(client, i / len(clients)) for i, client in enumerate(clients)))

        stage.start_real()
        stage.start_load(work)
        stage.wait(stage.given.sent, 200)
        samples = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(2.0)
            samples.append((time.monotonic(), _memory_mb(stage.pid), len(os.listdir(f"/proc/{stage.pid}/fd"))))
        minutes, memory, descriptors = (np.array(column) for column in zip(*samples, strict=True))
        minutes = (minutes - minutes[0]) / 60
        rounds = (stage.folder / "runs/load/rounds.jsonl").read_text().splitlines()
        return {
            "seconds": seconds,
            "rounds": len(rounds),
            "void_rounds": sum('"void":true' in line for line in rounds),
            "answers": stage.given.sent.value,
            "memory_mb": [memory[0], memory.max(), memory[-1]],
            "memory_mb_per_minute": float(np.polyfit(minutes, memory, 1)[0]),
            "descriptors": [int(descriptors[0]), int(descriptors.max()), int(descriptors[-1])],
            "descriptors_per_minute": float(np.polyfit(minutes, descriptors, 1)[0]),
        }


def _memory_mb(pid: int) -> float:
    with _peak(pid) as found:
        pass
    return found["pss"] / 1e6


RUNS: dict[str, Callable[..., dict[str, Any]]] = {"payload": payload, "idle": idle, "large": large, "churn": churn}


def run(names: list[str]) -> dict[str, Any]:
    """All scenes, or those that are named."""
    return {"goals": GOALS} | {name: RUNS[name]() for name in names or RUNS}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1:]), indent=2))
