"""Blocks on worker processes: bit-identical to `block`, whatever happens to the workers."""

import gc
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from multiprocessing import active_children, get_context
from multiprocessing.connection import wait
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from federation import BUILDS, Federation, Handmade, batched_of, make_sides, mixed
from fedge.core.algorithm import Build, Exchange, Info, Reply
from fedge.core.answer import Answer, Request
from fedge.core.drive import drive
from fedge.core.effort import Effort
from fedge.core.errors import ConfigError, DataError, FedgeError, StorageError, TrainingError
from fedge.core.layout import Tree
from fedge.core.placement import Placements
from fedge.core.reduction import Bad, PartialReply
from fedge.data.clients import Samples
from fedge.engines import pool as pools
from fedge.engines import tasks
from fedge.engines.arena import Arena
from fedge.engines.block import Block
from fedge.engines.blocks import disjoint
from fedge.engines.both_sides import BothSides
from fedge.engines.kernels.assemble import Batched
from fedge.engines.pool import Pool
from mutations import watched

SIZES = (6, 9, 9, 1, 5, 7, 12)
NUM_ROWS = 2
SAMPLE = (
    "fedavg",
    "scaffold",
    "mtfl(fedavg_adam, bn)",
    "dynavg(0.02)",
    "dynavg_loss",
    "krum(fedavg)",
    "codec(scaffold, sparse)",
)
LONG_S = 60.0  # nothing takes this long unless something is wrong


def federation(build: Build, clients: Handmade | None = None, **options: object) -> Federation:
    """Return a federation that runs in blocks."""
    return Federation(build, clients or mixed(SIZES), "block", **options)  # type: ignore[arg-type]


@pytest.fixture
def pooled() -> Iterator[Callable[..., Federation]]:
    """Makes federations that run in a pool, and closes them."""
    opened: list[Pool] = []

    def make(
        build: Build,
        clients: Handmade | None = None,
        num_workers: int = 2,
        notice: Callable[[str], None] = lambda text: None,
        stall_s: float = LONG_S,
        **options: object,
    ) -> Federation:
        made = federation(build, clients, **options)
        made.engine = Pool(made.sides, batched_of(made.sides), NUM_ROWS, num_workers, notice, stall_s)
        opened.append(made.engine)
        return made

    yield make
    for pool in opened:
        pool.close()
    assert active_children() == []


@pytest.fixture
def make_pool(pooled: Callable[..., Federation]) -> Callable[..., Pool]:
    def make(num_workers: int = 2, notice: Callable[[str], None] = lambda text: None) -> Pool:
        engine = pooled(BUILDS["scaffold"], num_workers=num_workers, notice=notice).engine
        assert isinstance(engine, Pool)
        return engine

    return make


def assert_same(found: Tree, expected: Tree) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


def assert_same_replies(found: Sequence[Reply], expected: Sequence[Reply]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert_same(one.value, other.value)
        assert one.ids == other.ids
        assert one.missing == other.missing
        assert (one.communicated, one.cosine_distance) == (other.communicated, other.cosine_distance)
        for a, b in zip(
            (one.samples, one.losses, *one.costs), (other.samples, other.losses, *other.costs), strict=True
        ):
            np.testing.assert_array_equal(a, b)


# Bit equality


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.full) if "(" in n else n for n in BUILDS])
def test_every_algorithm_is_bit_identical_to_block(name: str) -> None:
    """In the second round, when there is private and server state."""
    made = federation(BUILDS[name], mixed((6, 9, 1)), steps=1).rounds(1)
    kept = [made.clients.kept.read(client) for client in range(3)]
    before, info = made.state, made.info
    expected = made.round()
    after = made.everything()
    made.state, made.info = before, info
    for client, tree in enumerate(kept):
        made.clients.kept.write(client, tree)
    with Pool(made.sides, batched_of(made.sides), NUM_ROWS, num_workers=2) as pool:
        made.engine = pool
        assert_same_replies(made.round().replies, expected.replies)
        assert_same(made.everything(), after)
        assert pool.shared_bytes > 0


@pytest.mark.parametrize("num_workers", [1, 3])
@pytest.mark.parametrize("name", SAMPLE)
def test_any_number_of_workers(name: str, num_workers: int, pooled: Callable[..., Federation]) -> None:
    expected = federation(BUILDS[name], epochs=1).rounds(2)
    found = pooled(BUILDS[name], num_workers=num_workers, epochs=1).rounds(2)
    assert_same(found.everything(), expected.everything())


@pytest.mark.parametrize("cohorts", [((0, 2, 5), (1, 3, 4, 6)), ((0, 1, 2, 3), (2, 3, 4), (4, 5))])
def test_several_exchanges_at_once(cohorts: Sequence[Sequence[int]], pooled: Callable[..., Federation]) -> None:
    """If a client is in two of them, its private state from the first is used in the second."""
    outcomes = []
    for made in (federation(BUILDS["scaffold"]), pooled(BUILDS["scaffold"])):
        states = [{name: value + i for name, value in made.state.items()} for i in range(len(cohorts))]
        for round in (1, 2):
            infos = [made.info._replace(round=round, cohort=tuple(cohort)) for cohort in cohorts]
            found = drive(made.engine, made.clients.algorithm, states, infos)
            states = [outcome.state for outcome in found]
        outcomes.append((found, made.everything()))
    (expected, kept), (found, found_kept) = outcomes
    assert_same(found_kept, kept)
    for one, other in zip(found, expected, strict=True):
        assert_same(one.state, other.state)
        assert_same_replies(one.replies, other.replies)


def test_measured_updates_and_absent_clients() -> None:
    """One worker has two slots, which are reused while the directions of the first blocks are still needed."""
    sides = make_sides(BUILDS["fedavg"], mixed((6, 0, 9, 4, 5, 7, 12, 3)), compare_updates=True)
    info = Info(1, 0.1, 3, None, 8, seed=7)
    exchange = Exchange("train", sides.server.algorithm.init(sides.server.variables), range(8))
    expected = Block(sides, batched_of(sides), NUM_ROWS).run([exchange], [info])
    with Pool(sides, batched_of(sides), NUM_ROWS, num_workers=1) as pool:
        assert_same_replies(pool.run([exchange], [info]), expected)
    assert expected[0].cosine_distance is not None
    assert expected[0].missing == (1,)


def test_an_empty_cohort(pooled: Callable[..., Federation]) -> None:
    outcome = pooled(BUILDS["fedavg"]).round(cohort=())
    assert outcome.void
    assert active_children() == []  # workers start only when needed


def test_shared_memory_is_reused(pooled: Callable[..., Federation]) -> None:
    made = pooled(BUILDS["scaffold"])
    assert isinstance(made.engine, Pool)
    made.rounds(1)
    after_one = made.engine.shared_bytes
    made.rounds(3)
    assert made.engine.shared_bytes == after_one


# Workers that die


class Trapped(Handmade):
    """Clients, some of which trigger an event when a worker loads their data, a number of times."""

    def __init__(self, trap: Callable[[], None], at: Sequence[int], folder: Path, times: int = 1) -> None:
        super().__init__([mixed(SIZES).train(client, 1) for client in range(len(SIZES))], 3)
        self._trap, self._at, self._folder, self.times = trap, at, folder, times
        self._home = os.getpid()

    def train(self, client: int, round: int) -> Samples:
        if client in self._at and os.getpid() != self._home:
            with (self._folder / f"{client} in {round}").open("ab", buffering=0) as file:
                file.write(b".")
                sprung = file.tell()
            if sprung <= self.times:
                self._trap()
        return super().train(client, round)


def fall() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("name", "at"), [("scaffold", (0,)), ("scaffold", range(7)), ("median(fedavg)", (1, 4, 6))], ids=str
)
def test_killed_workers_leave_no_trace(
    name: str, at: Sequence[int], tmp_path: Path, pooled: Callable[..., Federation]
) -> None:
    expected = federation(BUILDS[name]).rounds(2)
    notices: list[str] = []
    found = pooled(BUILDS[name], Trapped(fall, at, tmp_path), notice=notices.append).rounds(2)
    assert_same(found.everything(), expected.everything())
    assert len(notices) == 2 * len(at)
    assert all("was killed by SIGKILL at clients" in notice for notice in notices)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.parametrize("at", [(0,), (1, 4)], ids=str)
def test_stopped_workers_are_reported_and_replaced(
    at: Sequence[int], tmp_path: Path, pooled: Callable[..., Federation]
) -> None:
    notices: list[str] = []
    made = pooled(BUILDS["scaffold"], Trapped(stop, at, tmp_path), notice=notices.append, stall_s=0.4)
    with watched():  # without replacement, the test would wait forever
        found = made.rounds(1)
    assert_same(found.everything(), federation(BUILDS["scaffold"]).rounds(1).everything())
    # On a busy machine other workers may seem silent too.
    assert sum("is not running at clients" in notice for notice in notices) >= len(at)
    replaced = [notice for notice in notices if "a worker process did not run for 0.4 s at clients" in notice]
    assert len(replaced) >= len(at)


def test_a_worker_that_continues_in_time_is_not_replaced(tmp_path: Path, pooled: Callable[..., Federation]) -> None:
    notices: list[str] = []

    def hear(text: str) -> None:
        notices.append(text)
        os.kill(int(text.split()[3]), signal.SIGCONT)

    found = pooled(BUILDS["scaffold"], Trapped(stop, (0,), tmp_path), notice=hear, stall_s=LONG_S / 20).rounds(1)
    assert_same(found.everything(), federation(BUILDS["scaffold"]).rounds(1).everything())
    assert len(notices) == 1
    assert notices[0].endswith(" at clients 0, 1; it will be replaced after engine.stall_s = 3 s without progress")


@pytest.mark.full
def test_a_worker_that_computes_for_long_is_not_replaced(tmp_path: Path, pooled: Callable[..., Federation]) -> None:
    """It sends no message for twice the stall time."""
    notices: list[str] = []

    def compute() -> None:
        began = time.process_time()
        while time.process_time() - began < 2.0:
            pass

    pooled(BUILDS["fedavg"], Trapped(compute, (0,), tmp_path), notice=notices.append, stall_s=1.0).rounds(1)
    assert not [notice for notice in notices if "did not run" in notice]


def test_a_worker_killed_with_half_a_result(
    tmp_path: Path, pooled: Callable[..., Federation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its partial result in shared memory is not used."""
    home, whole = os.getpid(), Arena.put

    def put(arena: Arena, tree: Tree, start: int = 0) -> Placements:
        if os.getpid() != home:
            with suppress(FileExistsError):
                (tmp_path / "killed").touch(exist_ok=False)
                whole(arena, {name: torch.full_like(value, 7) for name, value in tree.items()}, start)
                os.kill(os.getpid(), signal.SIGKILL)
        return whole(arena, tree, start)

    monkeypatch.setattr(Arena, "put", put)
    notices: list[str] = []
    found = pooled(BUILDS["scaffold"], notice=notices.append).rounds(2)
    assert len(notices) == 1
    assert_same(found.everything(), federation(BUILDS["scaffold"]).rounds(2).everything())


def test_an_idle_worker_that_was_killed(pooled: Callable[..., Federation]) -> None:
    notices: list[str] = []
    made = pooled(BUILDS["scaffold"], notice=notices.append).rounds(1)
    for process in active_children():
        process.kill()
        process.join()
    made.rounds(1)
    assert notices == ["engine: an idle worker process was killed by SIGKILL; another takes its place"] * 2
    assert_same(made.everything(), federation(BUILDS["scaffold"]).rounds(2).everything())


def test_a_block_that_always_kills(tmp_path: Path, pooled: Callable[..., Federation]) -> None:
    clients = Trapped(fall, [3], tmp_path, times=3)
    made = pooled(BUILDS["fedavg"], clients)
    told = (
        r"^clients ([\d, ]+ )?3: expected a worker process to finish, but 3 in a row were lost; "
        r"the last was killed by SIGKILL\. Most likely memory has run out: lower engine\.rows or engine\.workers$"
    )
    with pytest.raises(TrainingError, match=told):
        made.round()
    assert (tmp_path / "3 in 1").stat().st_size == 3
    # The trap is used up, and the pool works again.
    made.info = made.info._replace(round=0)
    assert_same(made.rounds(1).state, federation(BUILDS["fedavg"]).rounds(1).state)


# Errors in workers


def fail(error: Exception) -> Callable[[], None]:
    def trap() -> None:
        raise error

    return trap


class TooManyError(DataError):
    """An error class that the parent does not know."""


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (DataError("client 2 has no label; add one"), DataError, "client 2 has no label; add one"),
        (TooManyError("too many"), DataError, "too many"),
        (ConfigError("a: wrong", "b: wrong"), ConfigError, "a: wrong\nb: wrong"),
    ],
)
def test_a_fedge_error_is_raised_unchanged(
    error: FedgeError, kind: type[FedgeError], text: str, tmp_path: Path, pooled: Callable[..., Federation]
) -> None:
    made = pooled(BUILDS["fedavg"], Trapped(fail(error), [2], tmp_path))
    with pytest.raises(FedgeError) as caught:
        made.round()
    assert type(caught.value) is kind
    assert str(caught.value) == text
    made.info = made.info._replace(round=0)
    assert_same(made.rounds(1).state, federation(BUILDS["fedavg"]).rounds(1).state)


@pytest.mark.parametrize(
    ("error", "kind"),
    [(ZeroDivisionError("why"), RuntimeError), (SystemExit(3), RuntimeError), (MemoryError("why"), MemoryError)],
)
def test_any_other_error_includes_its_traceback(
    error: Exception, kind: type[Exception], tmp_path: Path, pooled: Callable[..., Federation]
) -> None:
    made = pooled(BUILDS["fedavg"], Trapped(fail(error), [2], tmp_path))
    with pytest.raises(
        kind, match=rf"(?s)^in a worker process:\nTraceback.*, in trap\n.*{type(error).__name__}: "
    ) as caught:
        made.round()
    assert type(caught.value) is kind


def test_divergence_gives_the_same_error_as_block(pooled: Callable[..., Federation]) -> None:
    told = []
    for made in (federation(BUILDS["fedavg"], rate=1e200), pooled(BUILDS["fedavg"], rate=1e200)):
        with pytest.raises(TrainingError) as caught:
            made.rounds(2)
        told.append(str(caught.value))
    assert told[0] == told[1]
    assert "is not finite" in told[0]


def test_running_out_of_shared_memory_in_a_worker(pooled: Callable[..., Federation]) -> None:
    """The parent has room for the input, but the worker has none for the result."""
    made = pooled(BUILDS["median(fedavg)"], make=lambda: nn.Sequential(nn.Linear(8, 10_000), nn.Linear(10_000, 3)))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # 120,003 weights in float64 are less than 1 MiB, two uploads are more.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(StorageError, match="memory shared with worker processes"):
            made.round()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# Tasks


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Callable[[tasks.Task], None]:
    """Register a function as the task "test"."""
    return lambda function: monkeypatch.setitem(tasks.TASKS, "test", function)


def double(sides: BothSides, batched: Batched, shared: Tree, meta: tasks.Meta, tensors: Tree) -> tasks.Content:
    time.sleep(meta["pause_s"])
    return {"number": meta["number"], "pid": os.getpid()}, {"x": 2 * tensors["x"] + shared["one"]}


def items(pauses_s: Sequence[float]) -> Iterator[tasks.Content]:
    for i, pause_s in enumerate(pauses_s):
        yield {"number": i, "pause_s": pause_s}, {"x": torch.full((3,), float(i))}


def test_results_come_in_order(make_pool: Callable[..., Pool], task: Callable[[tasks.Task], None]) -> None:
    task(double)
    found = make_pool().map("test", {"one": torch.ones(3)}, items([0.1] + [0.0] * 9))
    values = [(meta["number"], tensors["x"].tolist()) for meta, tensors in found]
    assert values == [(i, [2 * i + 1] * 3) for i in range(10)]


def test_results_are_valid_until_the_next_is_requested(
    make_pool: Callable[..., Pool], task: Callable[[tasks.Task], None]
) -> None:
    """The memory of a pool depends neither on the number of tasks nor on slow workers."""
    task(double)
    pool = make_pool()
    sizes = []
    for number in (5, 50):
        for _ in pool.map("test", {"one": torch.ones(3)}, items([0.05] + [0.0] * number)):
            pass
        sizes.append(pool.shared_bytes)
    assert sizes[0] == sizes[1]


def test_items_are_consumed_lazily(make_pool: Callable[..., Pool], task: Callable[[tasks.Task], None]) -> None:
    task(double)
    made = []

    def noted() -> Iterator[tasks.Content]:
        for item in items([0.0] * 20):
            made.append(item)
            yield item

    with closing(make_pool(num_workers=2).map("test", {"one": torch.ones(3)}, noted())) as results:
        next(results)
        assert len(made) == 4  # two per worker


def test_leaving_early_ends_the_workers(make_pool: Callable[..., Pool], task: Callable[[tasks.Task], None]) -> None:
    task(double)
    pool = make_pool()
    shared = {"one": torch.ones(3)}
    with closing(pool.map("test", shared, items([0.0, LONG_S, LONG_S]))) as results:
        next(results)
    assert active_children() == []
    assert len(list(pool.map("test", shared, items([0.0] * 3)))) == 3


def test_one_map_at_a_time(make_pool: Callable[..., Pool], task: Callable[[tasks.Task], None]) -> None:
    task(double)
    pool, shared = make_pool(), {"one": torch.ones(3)}
    with closing(pool.map("test", shared, items([0.0] * 3))) as results:
        next(results)
        with pytest.raises(RuntimeError, match="one `map` at a time"):
            next(pool.map("test", shared, items([0.0])))
        assert len(list(results)) == 2


def test_the_first_error_in_order_is_raised(make_pool: Callable[..., Pool], task: Callable[[tasks.Task], None]) -> None:
    def refuse(sides: BothSides, batched: Batched, shared: Tree, meta: tasks.Meta, tensors: Tree) -> tasks.Content:
        time.sleep(meta["pause_s"])
        raise DataError(f"number {meta['number']}")

    task(refuse)
    with pytest.raises(DataError, match="number 0"):
        list(make_pool().map("test", {}, items([0.1, 0.0, 0.0])))


def test_workers_cannot_read_private_state(make_pool: Callable[..., Pool], task: Callable[[tasks.Task], None]) -> None:
    task(lambda sides, batched, shared, meta, tensors: ({}, sides.clients.kept.read(5)))
    with pytest.raises(RuntimeError, match="cannot read the private state of client 5: pass it"):
        list(make_pool().map("test", {}, items([0.0])))


def test_a_worker_computes_on_one_thread_and_leaves_ctrl_c_to_its_parent(
    make_pool: Callable[..., Pool], task: Callable[[tasks.Task], None]
) -> None:
    def look(sides: BothSides, batched: Batched, shared: Tree, meta: tasks.Meta, tensors: Tree) -> tasks.Content:
        os.kill(os.getpid(), signal.SIGINT)
        return {"threads": torch.get_num_threads(), "parent": os.getppid()}, {}

    task(look)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        torch.set_num_threads(2)
        ((meta, _),) = make_pool().map("test", {}, items([0.0]))
    finally:
        torch.set_num_threads(1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert meta == {"threads": 1, "parent": os.getpid()}
    (process,) = active_children()
    process.terminate()
    process.join(LONG_S)
    assert process.exitcode == -signal.SIGTERM


class Garbage:
    """An object that only the garbage collector can free; it notes in which process."""

    def __init__(self, file: Path) -> None:
        self.file, self.itself = file, self

    def __del__(self) -> None:
        with self.file.open("a") as file:
            file.write(f"{os.getpid()}\n")


def test_a_worker_never_collects_garbage_of_its_parent(
    tmp_path: Path,
    make_pool: Callable[..., Pool],
    task: Callable[[tasks.Task], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Finalisers of the parent's objects must not run in a worker: those of gRPC never return there."""
    settle_in, freed_by = pools._settle_in, tmp_path / "freed_by"

    def collect_at_once(*arguments: object) -> None:
        gc.set_threshold(1)
        _ = [[] for _ in range(100)]
        settle_in(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(pools, "_settle_in", collect_at_once)
    task(lambda sides, batched, shared, meta, tensors: ({"collecting": gc.isenabled()}, {}))
    before = gc.get_threshold()
    gc.collect()
    gc.set_threshold(1_000_000)
    try:
        Garbage(freed_by)
        ((meta, _),) = make_pool().map("test", {}, items([0.0]))
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert meta == {"collecting": True}
    assert freed_by.read_text().split() == [str(os.getpid())]


def test_a_task_is_named_by_its_clients() -> None:
    assert tasks.describe("answer", {"clients": [3, 1]}) == "clients 3, 1"
    assert tasks.describe("answer", {"clients": list(range(10))}) == "clients 0, 1, 2, 3, 4, 5, 6, 7 and 2 more"
    assert tasks.describe("central", {}) == "the task 'central'"


def test_a_part_outlives_its_shared_memory() -> None:
    """Merging copies only the means."""
    answers = [Answer(client, 5, Effort(steps=1, loss=0.5), {}) for client in (3, 1)]
    uploads = [{"x": torch.tensor([1.0, 2.0])}, {"x": torch.tensor([3.0, 4.0])}]
    part = PartialReply(
        answers, [10, 20], True, None, uploads, torch.tensor([0.6, 0.8]), 1, [Bad(answers[0], 5, "why")]
    )
    meta, tensors = tasks.write_part(part)
    found = tasks.read_part(msgspec.msgpack.decode(msgspec.msgpack.encode(meta)), tensors)
    for value in tensors.values():
        value.zero_()
    assert found.answers == answers
    assert found.bytes_up == [10, 20]
    assert found.bad == [Bad(answers[0], 5, "why")]
    assert (found.communicated, found.mean, found.num_directions) == (True, None, 1)
    assert [upload["x"].tolist() for upload in found.uploads] == [[1, 2], [3, 4]]
    assert found.directions is not None
    assert found.directions.tolist() == pytest.approx([0.6, 0.8])


@given(st.lists(st.sets(st.integers(0, 9), max_size=4), max_size=6))
def test_exchanges_with_a_client_in_common_wait_for_each_other(cohorts: list[set[int]]) -> None:
    info = Info(1, 0.1, 1, None, 10, 1)
    requests = [Request(Exchange("train", {}, sorted(cohort)), info, {}) for cohort in cohorts]
    groups = list(disjoint(requests))
    assert [request for group in groups for request in group] == requests
    for group in groups:
        clients = [client for request in group for client in request.exchange.cohort]
        assert len(set(clients)) == len(clients)


# Nothing is left behind


def open_files() -> set[str]:
    """Pipes, sockets and files that are open; not events, which threads of gRPC open and close at any time."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the listing itself is closed by now
            found.add(os.readlink(f"/proc/self/fd/{number}"))
    return {name for name in found if not name.startswith("anon_inode:")}


def test_a_closed_pool_has_no_processes_and_no_files(pooled: Callable[..., Federation]) -> None:
    gc.collect()
    before = open_files()
    made = pooled(BUILDS["scaffold"])
    made.rounds(1)
    assert len(active_children()) == 2
    assert isinstance(made.engine, Pool)
    made.engine.close()
    assert active_children() == []
    gc.collect()
    made.clients.kept.close()  # type: ignore[attr-defined]
    assert open_files() <= before


def test_workers_of_a_forgotten_pool_end(task: Callable[[tasks.Task], None]) -> None:
    task(double)
    sides = make_sides(BUILDS["fedavg"], mixed())
    pool = Pool(sides, batched_of(sides), NUM_ROWS, num_workers=2)
    list(pool.map("test", {"one": torch.ones(3)}, items([0.0] * 3)))
    workers = active_children()
    del pool
    gc.collect()
    assert len(wait([worker.sentinel for worker in workers], LONG_S)) > 0
    for worker in workers:
        worker.join(LONG_S)
        assert worker.exitcode == 0


Life = Callable[[Pool, int], None]


class Parent:
    """A separate process with a pool. A pipe stays open as long as it or one of its workers is alive."""

    def __init__(self, life: Life) -> None:
        self._heard, theirs = os.pipe()
        self.process = get_context("fork").Process(target=self._live, args=(life, theirs))
        self.process.start()
        os.close(theirs)

    def await_workers(self) -> None:
        """Return when both workers are busy."""
        assert [self._read(1), self._read(1)] == [b"w", b"w"]

    def last_words(self) -> bytes:
        """Return what was written to the pipe until the last process closed it."""
        self.process.join(LONG_S)
        found = b""
        while part := self._read(1000):
            found += part
        return found

    def _read(self, most: int) -> bytes:
        assert select.select([self._heard], [], [], LONG_S)[0], "a process is alive and silent"
        return os.read(self._heard, most)

    def _live(self, life: Life, pipe: int) -> None:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for stream in (1, 2):  # captures printed output, too
            os.dup2(pipe, stream)

        def report(sides: BothSides, batched: Batched, shared: Tree, meta: tasks.Meta, tensors: Tree) -> tasks.Content:
            os.write(pipe, b"w")
            time.sleep(meta["pause_s"])
            return {}, {}

        tasks.TASKS["test"] = report
        sides = make_sides(BUILDS["fedavg"], mixed())
        life(Pool(sides, batched_of(sides), NUM_ROWS, num_workers=2), pipe)


@pytest.fixture
def parent() -> Iterator[Callable[[Life], Parent]]:
    parents: list[Parent] = []

    def start(life: Life) -> Parent:
        parents.append(Parent(life))
        return parents[-1]

    yield start
    for each in parents:
        each.process.kill()
        each.process.join()


def work_long(pool: Pool, pipe: int) -> None:
    list(pool.map("test", {}, items([10 * LONG_S] * 2)))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_parent(number: signal.Signals, parent: Callable[[Life], Parent]) -> None:
    started = parent(work_long)
    started.await_workers()
    assert started.process.pid
    os.kill(started.process.pid, number)
    assert started.last_words() == b""


def test_workers_end_with_their_parent_without_help_of_the_system(
    parent: Callable[[Life], Parent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "die_with_parent", lambda parent: None)
    started = parent(lambda pool, pipe: list(pool.map("test", {}, items([0.2] * 2))) and time.sleep(LONG_S))
    started.await_workers()
    started.process.kill()
    assert started.last_words() == b""


def test_workers_end_when_their_parent_exits(parent: Callable[[Life], Parent]) -> None:
    held = []

    def leave(pool: Pool, pipe: int) -> None:
        held.append(pool.map("test", {}, items([0.0, 10 * LONG_S])))
        next(held[0])

    started = parent(leave)
    assert started.last_words().strip(b"w") == b""
    assert started.process.exitcode == 0


def test_ctrl_c_ends_the_workers_silently(parent: Callable[[Life], Parent]) -> None:
    def stop(pool: Pool, pipe: int) -> None:
        try:
            work_long(pool, pipe)
        except KeyboardInterrupt:
            os.write(pipe, f"{len(active_children())} left".encode())
        pool.close()

    started = parent(stop)
    started.await_workers()
    assert started.process.pid
    os.killpg(started.process.pid, signal.SIGINT)
    assert started.last_words() == b"0 left"
    assert started.process.exitcode == 0
