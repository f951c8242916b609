"""A networked run: the server started by `fedge server`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np

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
from fedge.core.storage import write_atomic
from fedge.data.clients import ServerPart
from fedge.experiment.input_scaling import InputScaling
from fedge.experiment.networked_check import check_networked
from fedge.experiment.rounds import Surroundings, TrainingRun
from fedge.experiment.run_telemetry import RunTelemetry
from fedge.experiment.server_run import server_run_status
from fedge.experiment.setup import Setup
from fedge.experiment.start import create_run, one_thread
from fedge.net.address import read_address
from fedge.net.admission import Terms
from fedge.net.engine import NetEngine
from fedge.net.events import EventLog
from fedge.net.grpc_server import serve as listen_at
from fedge.net.hub import Hub
from fedge.net.identity import RenewedIdentity, TlsIdentity, load_server
from fedge.net.issued import RevocationList
from fedge.net.loop_thread import LoopThread
from fedge.net.plan import digests, encode_plan, plan_of
from fedge.net.planned_round import RoundPlan
from fedge.net.protocol import Facts
from fedge.net.registry import Registry
from fedge.net.spool import Spool
from fedge.net.task import Observer, unobserved
from fedge.net.views import ServerObserver
from fedge.net.world import MeasuredWorld
from fedge.runs import files
from fedge.runs.directory import RunDirectory
from fedge.runs.read import Run
from fedge.track.tracker import tracking

SPOOL, SECRET = "spool", "secret-seed"


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
    """Run an experiment with clients that connect to `listen`, in a directory below `runs`; resume it if it exists.

    Without `pki`, anybody on this machine may connect. `secret_seed` replaces the random seed of a new run.
    """
    check_networked(config)
    path = runs / config.name
    status = server_run_status(path, config)
    if status == "complete":
        progress.notice(f"{path}: is complete already")
        return path
    identity = None if pki is None else load_server(pki)  # checked before anything is written
    revoked = None if pki is None else RevocationList(pki)
    with one_thread(config.engine.matmul_precision):
        seed = config.first_seed
        with noting_parts(config) as sources:
            part = config.data.server_part(seed)
            setup = Setup.without_data(config, seed, _register(part, [], 1))
        setup = replace(setup, sources=sources)
        declared = setup.metrics.declarations
        made = create_run(path, config, sources, declared) if status == "new" else RunDirectory.open(path)
        with made as directory:
            trained = Run(path).last("round") or 0
            directory.change_code(sources, accept=False, round=trained)
            with _opening(path, config.net.max_clients) as opened:
                server = _Server(
                    setup, part, directory, opened, listen, pki, identity, revoked, observer, secret_seed, on_transition
                )
                with server.running(on_port):
                    directory.change(configuration.plain(config), paths_without_effect(config), declared)
                    with tracking(config.track, path, progress) as tracked:
                        server.train(tracked)
    return path


class _Opened(NamedTuple):
    """Resources that are closed at the end."""

    registry: Registry
    log: EventLog
    loop: LoopThread


@contextmanager
def _opening(path: Path, max_clients: int) -> Iterator[_Opened]:
    """Open the registry, the event log and a thread for the network; flush the registry at the end."""
    with ExitStack() as stack:
        registry = Registry.open(path / files.REGISTRY, max_clients)
        stack.callback(registry.close)
        log = EventLog(path / files.EVENTS)
        stack.callback(log.close)
        loop = LoopThread("network")
        try:
            yield _Opened(registry, log, loop)
        finally:
            loop.stop()
            with suppress(StorageError):  # telemetry must not hide the reason why the server ends
                registry.flush()


class _Server:
    """One server run and all its parts."""

    def __init__(
        self,
        setup: Setup,
        part: ServerPart,
        directory: RunDirectory,
        opened: _Opened,
        listen: str,
        pki: Path | None,
        identity: TlsIdentity | None,
        revoked: RevocationList | None,
        observer: ServerObserver | None,
        secret_seed: int | None,
        on_transition: Observer,
    ) -> None:
        config, path = setup.config, directory.path
        self._setup, self._part, self._directory = setup, part, directory
        self._address = read_address(listen, "net.listen", lowest_port=0)
        self._credentials = identity.credentials if identity else None
        self._renew = RenewedIdentity(pki) if pki else lambda: None
        self.notices = () if identity is None else identity.notices
        self._registry, log, self._loop = opened
        self._scaling = InputScaling(path, part)
        self._spool = spool = Spool(path / SPOOL)
        secret = _secret_seed(path / SECRET, secret_seed)
        run = Run(path).id
        assert run is not None
        self._telemetry = RunTelemetry(path, run, config.rounds, self._registry, log, observer, on_transition)
        self._hub = Hub(self._terms(run, revoked), config.net, self._registry, self._telemetry, spool)
        self._hub.expected.update(self._registry.names())  # clients from before a restart
        self._hub.scaled = self._scaling.found
        self._world = MeasuredWorld(
            config.selection, secret, config.net.over_selection, self._hub.connected, config.edge.joules
        )
        self._test = part.test if config.evaluate.at != "clients" else None
        self._normalise_test()
        self._server = setup.server_side(on_bad="reject")
        self._engine = NetEngine(
            self._server,
            self._hub,
            self._loop,
            self._world,
            config.net,
            RoundPlan(path),
            spool,
            None if self._test is None else self._measure_test,
            self._telemetry.note_transition,
            self._telemetry.record,
        )
        self._telemetry.watch(self._hub, self._engine)

    def _terms(self, run: str, revoked: RevocationList | None) -> Terms:
        setup, part, network = self._setup, self._part, self._setup.network
        plan = plan_of(setup.config, part.plan, setup.sources)
        return Terms(
            run,
            encode_plan(plan),
            Outgoing(NoMeta(), network.variables | nest("constant", network.constants.packed())),
            digests(plan, network, setup.algorithm),
            part.shape,
            part.num_outputs,
            part.task,
            part.num_clients,
            revoked.is_revoked if revoked else lambda fingerprint: False,
            self._scaling.problem,
        )

    @contextmanager
    def running(self, on_port: Callable[[int], None] | None) -> Iterator[None]:
        """Listen for clients inside this context."""
        running = self._loop.call(listen_at(self._hub, *self._address, self._credentials, renew=self._renew))
        if on_port:
            on_port(running.port)
        telemetry = self._telemetry
        beside = [self._loop.submit(work) for work in (self._hub.pulse(), telemetry.publish(), telemetry.flush())]
        try:
            yield
        finally:
            for work in beside:
                work.cancel()
            self._loop.call(running.stop())
            with suppress(StorageError):  # the next server clears it too
                self._spool.clear()

    def train(self, progress: Progress) -> None:
        """Run the rounds, and tell all clients when the run is complete."""
        import_module("torch._dynamo")  # arithmetic on the meta device needs it; the first round must not wait for it
        config = self._setup.config
        for notice in self.notices:
            progress.notice(notice)
        given = Surroundings(
            self._server,
            self._engine,
            self._world,
            self._setup.hierarchy(),
            lambda last: _EveryRound(self._engine, self._registry),
            self._test is not None,
            begin=self._begin,
            explain_silence=self._engine.explain_silence,
        )
        training = TrainingRun(config, self._setup.seed, given, self._directory, progress)
        self._registry.abandon_after(training.round)
        try:
            training.run()
        except VoidError as error:
            raise VoidError(f"{error}\nThe run is kept: the same command resumes it") from None
        self._engine.committed()
        final = Outgoing(NoMeta(), training.model())
        with self._engine.waiting("all clients to be told that the run is complete", config.net.linger_s):
            self._loop.call(self._hub.finish(final, self._world.named, config.net.linger_s))
        self._telemetry.complete = True
        self._loop.call(self._telemetry.write_status())

    def _begin(self, round: int) -> RegisteredClients:
        num_clients = self._engine.begin(round, self._population)
        if self._scaling.is_due(enough=not self._engine.machine.ended):  # a void round has already ended
            self._loop.call(self._hub.scale(self._scaling.find(self._hub.moments)))
            self._normalise_test()
        return _register(self._part, self._registry.population(), num_clients)

    def _population(self) -> int:
        """Return the number of clients: as defined by the data, otherwise those that have joined."""
        if self._registry.named and self._part.num_clients is not None:
            return self._part.num_clients
        return max(1, len(self._registry.population()))

    def _normalise_test(self) -> None:
        if self._test is not None:
            self._test = self._scaling.apply(self._test)

    def _measure_test(self, variables: Tree) -> Sums:
        assert self._test is not None
        return score(self._setup.network, variables, self._test, self._setup.metrics)


class _EveryRound:
    """A commit policy that saves every round."""

    def __init__(self, engine: NetEngine, registry: Registry) -> None:
        self._engine, self._registry = engine, registry

    def due(self, round: int, seconds_run: float, seconds_saving: float) -> bool:
        self._engine.committing()
        self._registry.flush()
        return True


def _register(part: ServerPart, facts: list[Facts | None], num_clients: int) -> RegisteredClients:
    """Return what is known of `num_clients` clients; a client that has not joined has no samples."""
    known = (facts + [None] * num_clients)[:num_clients]

    def sizes(name: str) -> np.ndarray:
        return np.array([getattr(each, name) if each else 0 for each in known], np.int64)

    noisy = np.array([number for number, each in enumerate(known) if each and each.noisy], np.int64)
    return RegisteredClients(
        part.shape, part.num_outputs, part.task, sizes("size"), noisy, sizes("test_size"), sizes("validation_size")
    )


def _secret_seed(file: Path, given: int | None) -> int:
    """Return the seed of client selection, which clients must not know. It stays the same across restarts."""
    found = files.read_bytes(file)
    if found is None:
        secret = secrets.randbits(62) if given is None else given
        write_atomic(file, f"{secret}\n".encode(), "start the server again", secret=True)
        return secret
    try:
        return int(found)
    except ValueError:
        raise RunError(f"{file} is damaged: expected a whole number; put back a copy of it") from None
