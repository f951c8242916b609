"""A run whose clients are elsewhere: the server that `fedge server` starts."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import torch

from fedge import config as configuration
from fedge.client.evaluate import score
from fedge.config import Config
from fedge.core.effect import paths_without_effect
from fedge.core.errors import RunError, StorageError, VoidError
from fedge.core.layout import Tree, nest
from fedge.core.message import NoMeta, Outgoing
from fedge.core.parts import noting_parts
from fedge.core.progress import Progress
from fedge.core.question import Sums
from fedge.core.registered import RegisteredClients
from fedge.core.storage import write_atomic, writing
from fedge.data.clients import Samples, ServerPart
from fedge.data.normalise import Scaling, combine, normaliser_of, problem_of_moments
from fedge.experiment.networked_check import check_networked
from fedge.experiment.rounds import Surroundings, TrainingRun
from fedge.experiment.server_run import server_run_status
from fedge.experiment.setup import Setup
from fedge.experiment.start import create_run, one_thread
from fedge.net.address import read_address
from fedge.net.engine import NetEngine
from fedge.net.events import EventLog
from fedge.net.grpc_server import serve as listen_at
from fedge.net.hub import Assignment, Conducted, Hub, Terms
from fedge.net.identity import TlsIdentity, load_server
from fedge.net.issued import RevocationList
from fedge.net.loop_thread import LoopThread
from fedge.net.plan import digests, encode_plan, plan_of
from fedge.net.planned_round import RoundPlan
from fedge.net.protocol import Facts, InputMoments, Scaled
from fedge.net.registry import Registry, TaskRow
from fedge.net.spool import Spool
from fedge.net.status import DONE, ServerStatus, StatusFile
from fedge.net.task import Observer, Transition, unobserved
from fedge.net.transport import Credentials
from fedge.net.views import ServerObserver, Value
from fedge.net.world import MeasuredWorld
from fedge.runs import files
from fedge.runs.directory import RunDirectory
from fedge.runs.read import Run

EVENTS, SPOOL, SECRET = "events.jsonl", "spool", "secret-seed"
SCALED = "checkpoint/scaled.json"
_FLUSH_S = 2.0
_EVENT_OF = {
    "accepted": "accept",
    "declined": "decline",
    "fetching": "fetch",
    "uploading": "upload",
    "settled": "receive",
    "rejected": "reject",
    "late": "late",
    "lost": "drop",
    "withdrawn": "withdraw",
    "failed": "fail",
    "committed": "commit",
    "void": "void",
}
"""Transitions that the event log has, by the state that they lead to."""


def serve(
    config: Config,
    *,
    runs: Path,
    listen: str,
    pki: Path | None,
    progress: Progress,
    observer: ServerObserver | None = None,
    secret_seed: int | None = None,
    on_transition: Observer = unobserved,
    on_port: Callable[[int], None] | None = None,
) -> Path:
    """Run an experiment with clients that connect to `listen`, in a directory below `runs`; resume it if it is there.

    Without `pki`, anybody on this machine may connect. `secret_seed` is that of a new run, instead of a random one.
    """
    check_networked(config)
    path = runs / config.name
    status = server_run_status(path, config)
    if status == "complete":
        progress.notice(f"{path}: is complete already")
        return path
    identity = None if pki is None else load_server(pki)  # before anything is written
    revoked = None if pki is None else RevocationList(pki)
    with one_thread(config.engine.matmul_precision):
        seed = config.seed or 0
        with noting_parts(config) as sources:
            part = config.data.server_part(seed)
            setup = Setup.without_data(config, seed, _register(part, [], 1))
        setup = replace(setup, sources=sources)
        opened = create_run(path, config, sources) if status == "new" else RunDirectory.open(path)
        with opened as directory:
            trained = Run(path).last("round") or 0
            directory.change_code(sources, accept=False, round=trained)
            server = _Server(setup, part, directory, listen, identity, revoked, observer, secret_seed, on_transition)
            with server.running(on_port):
                directory.change(configuration.plain(config), paths_without_effect(config))
                server.train(progress)
    return path


class _Server:
    """All that one server run consists of."""

    def __init__(
        self,
        setup: Setup,
        part: ServerPart,
        directory: RunDirectory,
        listen: str,
        identity: TlsIdentity | None,
        revoked: RevocationList | None,
        observer: ServerObserver | None,
        secret_seed: int | None,
        on_transition: Observer,
    ) -> None:
        config, path = setup.config, directory.path
        self._setup, self._part, self._directory = setup, part, directory
        self._address = read_address(listen, "net.listen", lowest_port=0)
        self._credentials = None if identity is None else Credentials(identity.key, identity.certificate, identity.ca)
        self.notices = () if identity is None else identity.notices
        self._observer, self._on_transition = observer, on_transition
        self._disk_problem = ""  # the last one
        self._told = False  # whether clients know that the run is complete
        self._status_file, self._writing_status = StatusFile(path / files.STATUS), asyncio.Lock()
        self._registry = Registry.open(path / files.REGISTRY, config.net.max_clients)
        self._log = EventLog(path / EVENTS)
        spool = Spool(path / SPOOL)
        secret = _secret_seed(path / SECRET, secret_seed)
        network, server = setup.network, setup.server_side(on_bad="reject")
        plan = plan_of(config, part.plan, setup.sources)
        run = Run(path).id
        assert run is not None
        self._run_id = run
        terms = Terms(
            run,
            encode_plan(plan),
            Outgoing(NoMeta(), network.variables | nest("constant", network.constants.packed())),
            digests(plan, network, setup.algorithm),
            part.shape,
            part.num_outputs,
            part.task,
            part.num_clients,
            revoked.is_revoked if revoked else lambda fingerprint: False,
            self._problem_of_moments,
        )
        self._hub = Hub(terms, config.net, self._registry, self, spool)
        self._hub.expected.update(self._registry.names())  # those of the server before a restart
        self._loop = LoopThread("network")
        self._world = MeasuredWorld(
            config.selection, secret, config.net.over_selection, self._hub.connected, config.edge.joules
        )
        self._test = part.test if config.evaluate.at != "clients" else None
        if (known := files.read_bytes(path / SCALED)) is not None:
            self._scale(msgspec.json.decode(known, type=Scaled))
        self._engine = NetEngine(
            server,
            self._hub,
            self._loop,
            self._world,
            config.net,
            RoundPlan(path),
            spool,
            None if self._test is None else self._measure_test,
            self._note_transition,
            self._record,
        )
        self._given = Surroundings(
            server,
            self._engine,
            self._world,
            setup.hierarchy(),
            lambda last: _EveryRound(self._engine, self._registry),
            self._test is not None,
            begin=self._begin,
            explain_silence=self._engine.explain_silence,
        )

    @contextmanager
    def running(self, on_port: Callable[[int], None] | None) -> Iterator[None]:
        """Listen for clients meanwhile."""
        try:
            running = self._loop.call(listen_at(self._hub, *self._address, self._credentials))
            if on_port:
                on_port(running.port)
            beside = [self._loop.submit(work) for work in (self._hub.pulse(), self._publish(), self._flush())]
            try:
                yield
            finally:
                for work in beside:
                    work.cancel()
                self._loop.call(running.stop())
        finally:
            self._loop.stop()
            with suppress(StorageError):  # telemetry must not hide why the server ends
                self._registry.flush()
            self._registry.close()
            self._log.close()

    def train(self, progress: Progress) -> None:
        """Run the rounds, and tell all clients when they are over."""
        config = self._setup.config
        for notice in self.notices:
            progress.notice(notice)
        training = TrainingRun(config, self._setup.seed, self._given, self._directory, progress)
        self._registry.abandon_after(training.round)
        try:
            training.run()
        except VoidError as error:
            raise VoidError(f"{error}\nThe run is kept: the same command resumes it") from None
        self._engine.committed()
        final = Outgoing(NoMeta(), training.model())
        self._engine.waiting_for = f"waits up to {config.net.linger_s:g} s for all clients to hear that it is complete"
        self._loop.call(self._hub.finish(final, self._world.named, config.net.linger_s))
        self._told = True
        self._loop.call(self._write_status())

    def _begin(self, round: int) -> RegisteredClients:
        num_clients = self._engine.begin(round, self._population)
        if self._part.plan.sums and self._hub.scaled is None and self._hub.moments:
            self._scale(self._find_scaling())
        return _register(self._part, self._registry.population(), num_clients)

    def _population(self) -> int:
        """Return how many clients there are: as data names them, or as many as have joined."""
        if self._registry.named and self._part.num_clients is not None:
            return self._part.num_clients
        return max(1, len(self._registry.population()))

    # Normalisation by the sums of the clients that are there when the first round begins

    def _problem_of_moments(self, moments: InputMoments | None, facts: Facts) -> str | None:
        if not self._part.plan.sums:
            return None
        if moments is None:
            return "there are none"
        return problem_of_moments(_tree(moments), self._part.shape, facts.size)

    def _find_scaling(self) -> Scaled:
        """Return mean and deviation over all clients, durably: a restarted server must not find others."""
        known = sorted(self._hub.moments.items())
        found = normaliser_of(combine(_tree(moments) for _, moments in known), self._part.shape).scaling()
        assert isinstance(found.mean, list)
        assert isinstance(found.std, list)
        scaled = Scaled(found.mean, found.std)
        with writing(self._directory.path / SCALED, "start the server again"):
            write_atomic(self._directory.path / SCALED, files.encode_pretty(scaled))
        return scaled

    def _scale(self, scaled: Scaled) -> None:
        self._loop.call(self._hub.scale(scaled))
        if self._test is not None:
            normalise = Scaling(mean=scaled.mean, std=scaled.std).normaliser(self._part.shape)
            self._test = Samples(normalise(self._test.x), self._test.y)

    def _measure_test(self, variables: Tree) -> Sums:
        assert self._test is not None
        return score(self._setup.network, variables, self._test)

    # What is told about it

    def append(self, event: str, **fields: Value) -> None:
        """Log an event, and tell the observer of it."""
        engine = self._engine
        told = {"round": engine.round_number or None, **fields}
        self._log.append(event, **told)
        if self._observer:
            self._observer.event(event, **told)

    def _note_transition(self, transition: Transition) -> None:
        event = _EVENT_OF.get(transition.after)
        if event is not None:
            exchange = self._engine.machine.exchange - 1
            reason = transition.reason or None
            self.append(event, client=transition.client, exchange=max(exchange, 0), reason=reason)
        self._on_transition(transition)

    def _record(self, assignment: Assignment, conducted: Conducted) -> None:
        for client, task in conducted.tasks.items():
            seconds, upload = task.seconds(), conducted.uploads.get(client)
            row = TaskRow(
                task.token,
                client,
                assignment.round,
                assignment.exchange,
                assignment.attempt,
                assignment.kind,
                str(task.state),
                time.time(),
                task.reason,
                assignment.payload.num_bytes if seconds.down else 0,
                upload.num_bytes if upload else 0,
                seconds.down,
                seconds.compute,
                seconds.up,
            )
            self._registry.record(row)

    def _status(self) -> ServerStatus:
        hub, engine = self._hub, self._engine
        state = "waiting" if engine.waiting_for else str(engine.machine.state)
        asked, accepted, received = hub.progress
        return ServerStatus(
            run=self._run_id,
            state=DONE if self._told else state,
            round=engine.round_number,
            num_rounds=self._setup.config.rounds,
            exchange=max(0, engine.machine.exchange - 1),
            attempt=engine.attempt,
            waiting_for=engine.waiting_for,
            deadline_s=hub.seconds_left,
            clients=dict(hub.counts()),
            asked=asked,
            accepted=accepted,
            received=received,
            bytes_down=hub.bytes_down,
            bytes_up=hub.bytes_up,
        )

    async def _publish(self) -> None:
        while True:
            await self._write_status()
            await asyncio.sleep(1.0)

    async def _write_status(self) -> None:
        async with self._writing_status:
            status = self._status()
            if self._observer:
                self._observer.status(status)
            await self._try_to_write(partial(self._status_file.write, status))

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_S)
            await self._try_to_write(self._registry.flush)

    async def _try_to_write(self, write: Callable[[], None]) -> None:
        """Write what can wait: of a full disk, the rounds find out as well."""
        try:
            await asyncio.to_thread(write)
            self._disk_problem = ""
        except StorageError as error:
            if str(error) != self._disk_problem:
                self.append("disk", reason=str(error))
            self._disk_problem = str(error)


class _EveryRound:
    """Commits every round."""

    def __init__(self, engine: NetEngine, registry: Registry) -> None:
        self._engine, self._registry = engine, registry

    def due(self, round: int, seconds_run: float, seconds_saving: float) -> bool:
        self._engine.committing()
        self._registry.flush()
        return True


def _register(part: ServerPart, facts: list[Facts | None], num_clients: int) -> RegisteredClients:
    """Return what is known of so many clients; one that has not joined has no samples."""
    known = (facts + [None] * num_clients)[:num_clients]

    def sizes(name: str) -> np.ndarray:
        return np.array([getattr(each, name) if each else 0 for each in known], np.int64)

    noisy = np.array([number for number, each in enumerate(known) if each and each.noisy], np.int64)
    return RegisteredClients(
        part.shape,
        part.num_outputs,
        part.task,
        sizes("size"),
        noisy,
        sizes("test_size"),
        sizes("validation_size"),
    )


def _tree(moments: InputMoments) -> Tree:
    values = {"count": moments.count, "sum": moments.sum, "square": moments.square}
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}


def _secret_seed(file: Path, given: int | None) -> int:
    """Return the seed that decides who is selected: clients must not know it. It stays the same across restarts."""
    found = files.read_bytes(file)
    if found is None:
        secret = secrets.randbits(62) if given is None else given
        with writing(file, "start the server again"):
            write_atomic(file, f"{secret}\n".encode(), secret=True)
        return secret
    try:
        return int(found)
    except ValueError:
        raise RunError(f"{file} is damaged: expected a whole number; put back a copy of it") from None
