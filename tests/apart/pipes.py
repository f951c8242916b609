"""Clients in separate processes, each with its data and private state, and a server that has neither."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch

from fedge.client.serve import serve
from fedge.config import Config
from fedge.core import message
from fedge.core.algorithm import Exchange, Info, Reply
from fedge.core.layout import Tree
from fedge.core.progress import Silent
from fedge.core.question import Question, Sums, read_sums
from fedge.core.reduction import Reduction
from fedge.core.registered import RegisteredClients
from fedge.core.server_side import ServerSide
from fedge.experiment.rounds import Surroundings, TrainingRun
from fedge.experiment.setup import Setup
from fedge.experiment.start import create_run
from fedge.runs.kept import KeptStore
from fedge.runs.pace import Pace

FORK = get_context("fork")
PATIENCE_S = 120.0  # deadline for any answer
Spoil = Callable[[bytes], bytes]
"""Changes the answers of a hostile client."""


class Facts(msgspec.Struct):
    """The facts that a client registers, without any sample."""

    shape: tuple[int, ...]
    num_outputs: int
    task: str
    size: int
    noisy: bool
    test_size: int


class Remote(NamedTuple):
    """A client as seen by the server: the other end of a pipe."""

    pipe: Connection

    def ask(self, kind: str, data: bytes = b"") -> bytes:
        self.pipe.send_bytes(kind.encode().ljust(8) + data)
        assert self.pipe.poll(PATIENCE_S), f"no answer to {kind}"
        return self.pipe.recv_bytes()


@contextmanager
def clients_apart(config: Config, seed: int, num_clients: int, spoil: dict[int, Spoil]) -> Iterator[list[Remote]]:
    """Start a process for each client, and stop them at the end."""
    started = []
    try:
        for client in range(num_clients):
            ours, theirs = FORK.Pipe()
            inherited = [ours, *(remote.pipe for _, remote in started)]
            process = FORK.Process(
                target=_live, args=(theirs, inherited, config, seed, client, spoil.get(client)), daemon=True
            )
            process.start()
            theirs.close()
            started.append((process, Remote(ours)))
        yield [remote for _, remote in started]
    finally:
        for process, remote in started:
            remote.pipe.close()
            process.join(PATIENCE_S)
            assert process.exitcode == 0


def _live(
    pipe: Connection, inherited: Sequence[Connection], config: Config, seed: int, client: int, spoil: Spoil | None
) -> None:
    """Run one client until its server is gone: build data, answer requests, and keep state that the server accepted."""
    for other in inherited:
        other.close()
    torch.set_num_threads(1)
    setup = Setup.of(config, seed)
    data = setup.clients
    kept = KeptStore(setup.algorithm.keep(setup.network.variables), None)
    side = setup.client_side(kept)
    new: Tree | None = None
    while True:
        try:
            told = pipe.recv_bytes()
        except EOFError:
            os._exit(0)
        kind, body = told[:8].strip().decode(), told[8:]
        answer = b""
        if kind == "register":
            facts = Facts(
                data.shape,
                data.num_outputs,
                data.task,
                int(data.sizes[client]),
                client in data.noisy,
                len(data.test(client, 1)),
            )
            answer = msgspec.json.encode(facts)
        elif kind == "ask":
            served = serve(side, client, body)
            new = served.kept
            answer = served.data if spoil is None else spoil(served.data)
        elif kind == "question":
            answer = serve(side, client, body).data
        elif kind == "settle":
            if body == b"counted" and new is not None:
                kept.write(client, new)
            new = None
        elif kind == "state":
            answer = message.pack(message.NoMeta(), kept.read(client))
        pipe.send_bytes(answer)


class Pipes:
    """An engine whose clients are at the other ends of pipes."""

    def __init__(self, server: ServerSide, remotes: Sequence[Remote]) -> None:
        self._server, self._remotes = server, remotes
        self.reasons: list[str] = []

    def run(self, exchanges: Sequence[Exchange], infos: Sequence[Info]) -> list[Reply]:
        return [self._run(exchange, info) for exchange, info in zip(exchanges, infos, strict=True)]

    def _run(self, exchange: Exchange, info: Info) -> Reply:
        request = self._server.send(exchange, info)
        reduction = Reduction(self._server, request)
        asked = self._server.present(exchange)
        data = message.pack(request.meta(), request.coded)
        for client in asked:
            reduction.receive(client, self._remotes[client].ask("ask", data))
        reply = reduction.reply()
        for client in asked:
            self._remotes[client].ask("settle", b"counted" if client in reply.ids else b"dropped")
        if reply.rejected:
            self.reasons += reply.rejected.reasons
        return reply

    def evaluate(self, question: Question, info: Info) -> dict[int, Sums]:
        coded = question.down if question.coded is None else question.coded
        meta = message.EvaluationRequest(question.measure, question.work, **info.told())
        data, found = message.pack(meta, coded), {}
        for client in question.clients:
            answer = self._remotes[client].ask("question", data)
            found[client] = read_sums(message.unpack(answer, message.EvaluationAnswer)[1])
        return {client: sums for client, sums in found.items() if sums is not None}

    def test(self, variables: Tree) -> Sums:
        raise AssertionError("this server has no test set")


class Served(NamedTuple):
    """The results that a server without data has."""

    reasons: list[str]
    kept: dict[int, Tree]


def run_apart(config: Config, path: Path, num_clients: int, spoil: dict[int, Spoil] | None = None) -> Served:
    """Run an experiment in a server process that cannot build data, with a process for each client."""
    seed = config.seed or 0
    with clients_apart(config, seed, num_clients, spoil or {}) as remotes:
        ours, theirs = FORK.Pipe()
        server = FORK.Process(target=_serve, args=(theirs, config, seed, path, remotes), daemon=True)
        server.start()
        theirs.close()
        assert ours.poll(PATIENCE_S), "the server has not finished"
        outcome = ours.recv()
        server.join(PATIENCE_S)
        if isinstance(outcome, BaseException):
            raise outcome
        kept = {client: message.unpack(remote.ask("state"), message.NoMeta)[1] for client, remote in enumerate(remotes)}
        return Served(outcome, kept)


def _serve(result: Connection, config: Config, seed: int, path: Path, remotes: Sequence[Remote]) -> None:
    try:
        result.send(_train(config, seed, path, remotes))
    except BaseException as error:
        result.send(error)
    os._exit(0)


def _train(config: Config, seed: int, path: Path, remotes: Sequence[Remote]) -> list[str]:
    torch.set_num_threads(1)

    def refuse(self: Any, seed: int) -> None:
        raise AssertionError("a server builds no data of its clients")

    type(config.data).build = refuse  # type: ignore[method-assign]
    facts = [msgspec.json.decode(remote.ask("register"), type=Facts) for remote in remotes]
    registered = RegisteredClients(
        facts[0].shape,
        facts[0].num_outputs,
        facts[0].task,  # type: ignore[arg-type]
        np.array([each.size for each in facts]),
        np.array([client for client, each in enumerate(facts) if each.noisy], np.int64),
        np.array([each.test_size for each in facts]),
    )
    setup = Setup.without_data(config, seed, registered)
    side = setup.server_side()
    engine = Pipes(side, remotes)
    given = Surroundings(
        side, engine, setup.world(), setup.hierarchy(), lambda last: Pace(1, last=last), has_test=False
    )
    with create_run(path, config) as directory:
        TrainingRun(config, seed, given, directory, Silent()).run()
    return engine.reasons
