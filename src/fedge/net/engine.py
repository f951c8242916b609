"""The `net` engine: exchanges and evaluations with clients on a network."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf

import numpy as np

from fedge.core.algorithm import Costs, Exchange, Info, Late, Phases, Reply
from fedge.core.errors import ConfigError
from fedge.core.gate import read_evaluation
from fedge.core.layout import Tree
from fedge.core.message import EvaluationRequest, Outgoing
from fedge.core.net_options import NetOptions
from fedge.core.question import Question, Sums
from fedge.core.reduction import Reduction
from fedge.core.server_side import ServerSide
from fedge.core.state_version import Version
from fedge.net.assignment import Assignment, Conducted
from fedge.net.closing import Rules
from fedge.net.collection import AnswerCollection
from fedge.net.hub import Hub
from fedge.net.loop_thread import LoopThread
from fedge.net.planned_round import PlannedRound, RoundPlan
from fedge.net.round import RoundMachine, RoundState
from fedge.net.spool import Spool, Upload
from fedge.net.task import ClientTask, Observer, TaskState, unobserved
from fedge.net.world import MeasuredWorld

MAX_SUMS_BYTES = 1 << 16
"""Size limit of the answer to an evaluation, not counting vectors of metrics."""
_HEADER_BYTES = 1 << 20


class NetEngine:
    """Drives the hub from the thread that runs the rounds, and tracks the state of the round."""

    def __init__(
        self,
        server: ServerSide,
        hub: Hub,
        loop: LoopThread,
        world: MeasuredWorld,
        options: NetOptions,
        plan: RoundPlan,
        spool: Spool,
        test: Callable[[Tree], Sums] | None,
        observer: Observer = unobserved,
        record: Callable[[Assignment, Conducted], None] = lambda assignment, conducted: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server, self._hub, self._loop, self._world = server, hub, loop, world
        self._options, self._plan, self._spool, self._test = options, plan, spool, test
        self._observer, self._record, self._clock = observer, record, clock
        self.attempt, self._num_clients = 1, 0
        self.round_number = 0
        self.machine = RoundMachine(observer)
        self.waiting_for = ""  # what the server waits for, for display
        self._waiting_until = 0.0

    # The state of the round

    def begin(self, round: int, population: Callable[[], int]) -> int:
        """Wait until a round can start; return the number of clients to select from.

        After a restart, wait for the clients that were connected before: which clients are selected in this round, or
        answer the next evaluation, must not depend on who reconnects first. An interrupted round keeps its cohort.
        """
        options = self._options
        self.committed()
        self.round_number = round
        self.machine = RoundMachine(self._observer)
        resumed = self._plan.resumed(round)
        if resumed is not None:
            wanted = {*resumed.cohort, *resumed.connected}
            self._wait(wanted.issubset, f"the clients of the interrupted round {round}: {_listed(wanted)}")
            self.attempt, self._num_clients = resumed.attempt + 1, resumed.num_clients
            enough = True
        else:
            least, before = options.min_clients, self._world.awaited
            what = f"net.min_clients = {least} clients"
            if before:
                what += f", and for those connected before the restart: {_listed(before)}"
            complete = self._wait(lambda there: len(there) >= least and before.issubset(there), what)
            # A client that left meanwhile must not cost the round.
            if not (enough := complete or len(self._hub.connected()) >= least):
                reason = f"{len(self._hub.connected())} of {least} clients were connected after {options.wait_s:g} s"
                self.machine.advance(RoundState.VOID, time.monotonic(), reason)
            self.attempt, self._num_clients = 1, population()
        self._world.begin(self._num_clients, resumed, enough)
        return self._num_clients

    def committing(self) -> None:
        """Note that the round's results are complete and about to be committed."""
        if self.machine.state == RoundState.GATHERING:
            self.machine.advance(RoundState.VOID, time.monotonic(), "too few clients")
        elif self.machine.state == RoundState.REDUCING:
            self.machine.advance(RoundState.COMMITTING, time.monotonic())

    def committed(self) -> None:
        """Note that the round has been committed to disk."""
        if self.machine.state == RoundState.COMMITTING:
            self.machine.advance(RoundState.COMMITTED, time.monotonic())

    def explain_silence(self) -> str:
        """Return why rounds are void."""
        options = self._options
        return (
            f"{len(self._hub.connected())} clients are connected, and a round needs net.min_clients = "
            f"{options.min_clients} within net.wait_s = {options.wait_s:g}; see events.jsonl, or start more clients"
        )

    def _wait(self, enough: Callable[[Sequence[int]], bool], what: str) -> bool:
        with self.waiting(what, self._options.wait_s):
            return self._loop.call(self._hub.wait_until(enough, self._options.wait_s))

    @contextmanager
    def waiting(self, what: str, seconds: float) -> Iterator[None]:
        """Inside the block, show what the server waits for and for how long."""
        self._waiting_until, self.waiting_for = self._clock() + seconds, f"waiting for {what}"
        try:
            yield
        finally:
            self.waiting_for = ""

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the current wait ends or the current exchange closes; None if there is neither."""
        return max(0.0, self._waiting_until - self._clock()) if self.waiting_for else self._hub.seconds_left

    # Exchanges

    def run(self, exchanges: Sequence[Exchange], infos: Sequence[Info]) -> list[Reply]:
        return [self._run(exchange, info) for exchange, info in zip(exchanges, infos, strict=True)]

    def _run(self, exchange: Exchange, info: Info) -> Reply:
        server, number = self._server, self.machine.exchange
        request = server.send(exchange, info)
        reduction = Reduction(server, request)
        clients = server.present(exchange)
        if number == 0:
            cohort = tuple(sorted(info.cohort))
            there = tuple(self._hub.connected())
            self._plan.store(PlannedRound(info.round, self.attempt, self._num_clients, cohort, there))
        planned = self._world.planned(len(clients)) if len(clients) == len(info.cohort) else len(clients)
        answer_bytes = sum(each.nbytes for each in server.rehearse(exchange, info).upload.values())
        self._spool.check_space(answer_bytes * planned)
        payload = Outgoing(request.meta(), request.coded)
        assignment = Assignment(
            "work",
            info.round,
            number,
            self.attempt,
            payload,
            clients,
            planned,
            self._world.named,
            2 * answer_bytes + _HEADER_BYTES,
            partial(_examine, reduction),
        )
        conducted = self._loop.call(self._hub.conduct(assignment, self.machine.open_exchange, self._rules()))
        self._record(assignment, conducted)
        self.machine.advance(RoundState.REDUCING, time.monotonic())
        reply = self._reduce(reduction, conducted, payload.num_bytes)
        for client in reply.ids:
            if conducted.uploads[client].changed:
                self._world.count(client, Version(info.round, number, self.attempt))
        self._spool.clear()
        if not reply.ids and not exchange.optional:
            self.machine.advance(RoundState.VOID, time.monotonic(), conducted.reason)
        return reply

    def _rules(self) -> Rules:
        options = self._options
        return Rules(options.fraction, options.grace_s, options.deadline_s, options.lease_s)

    def _reduce(self, reduction: Reduction, conducted: Conducted, bytes_down: int) -> Reply:
        for client in sorted(conducted.uploads):
            reduction.receive(client, conducted.uploads[client].open())
        reply = reduction.reply()
        tasks = conducted.tasks

        def timed(ids: Sequence[int], costs: Costs) -> Costs:
            return costs._replace(measured=_phases([tasks[client] for client in ids]))

        late = tuple(sorted(client for client, task in tasks.items() if task.state == TaskState.LATE))
        sent = np.full(len(late), bytes_down, np.int64)
        rejected = reply.rejected
        return reply._replace(
            costs=timed(reply.ids, reply.costs),
            late=Late(late, timed(late, Costs.free(len(late))._replace(bytes_down=sent))) if late else None,
            rejected=rejected._replace(costs=timed(rejected.ids, rejected.costs)) if rejected else None,
            declined=tuple(sorted(client for client, task in tasks.items() if task.state == TaskState.DECLINED)),
        )

    # Evaluation

    def evaluate(self, question: Question, info: Info) -> Mapping[int, Sums | str]:
        coded = question.down if question.coded is None else question.coded
        payload = Outgoing(EvaluationRequest(question.measure, question.work, **info.told()), coded)
        there = set(self._hub.connected())
        clients = [client for client in sorted(question.clients) if client in there]
        assignment = Assignment(
            "question",
            info.round,
            self.machine.exchange,
            self.attempt,
            payload,
            clients,
            len(clients),
            self._world.named,
            MAX_SUMS_BYTES + 8 * sum(self._server.metrics.lengths.values()),
            _examine_sums,
        )
        rules = evaluation_rules(self._options)
        conducted = self._loop.call(self._hub.conduct(assignment, AnswerCollection, rules))
        self._record(assignment, conducted)
        uploads = sorted(conducted.uploads.items())
        found = {client: read_evaluation(client, bytes(upload.open())) for client, upload in uploads}
        self._spool.clear()
        return {client: sums for client, sums in found.items() if sums is not None}

    def test(self, variables: Tree) -> Sums:
        if self._test is None:
            raise ConfigError('evaluate.at: the server has no test set; set evaluate.at = "clients"')
        return self._test(variables)


def evaluation_rules(options: NetOptions) -> Rules:
    """Return the closing rules of an evaluation, which waits for all clients until its deadline."""
    return Rules(1.0, inf, options.evaluate_s, options.lease_s)


def _listed(clients: Iterable[int]) -> str:
    """Return the first ten client numbers as text, and how many more there are."""
    numbers = sorted(clients)
    more = f" and {len(numbers) - 10} more" if len(numbers) > 10 else ""
    return ", ".join(map(str, numbers[:10])) + more


def _phases(tasks: Sequence[ClientTask]) -> Phases:
    seconds = np.array([task.seconds() for task in tasks], np.float64).reshape(len(tasks), len(Phases._fields))
    return Phases(*seconds.T)


def _examine(reduction: Reduction, client: int, upload: Upload) -> str | None:
    return reduction.examine(client, upload.open())


def _examine_sums(client: int, upload: Upload) -> str | None:
    found = read_evaluation(client, bytes(upload.open()))
    return found if isinstance(found, str) else None
