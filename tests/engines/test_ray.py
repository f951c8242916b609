"""Blocks on a Ray cluster: bit-identical to `block`, whatever happens to workers and nodes."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import federation
import hostile_clients
from federation import BUILDS, Federation, Handmade, batched_of, make_sides, mixed
from fedge.algorithms import ALGORITHMS
from fedge.algorithms.reduced import reduced
from fedge.core.algorithm import Build, Reply
from fedge.core.drive import drive
from fedge.core.errors import ConfigError, DataError, TrainingError
from fedge.core.layout import Tree
from fedge.core.reduce import Krum, Mean, Median, Reduce, TrimmedMean
from fedge.core.schema import choose
from fedge.core.server_side import Limits
from fedge.core.userfile import load_function
from fedge.data.clients import Samples
from fedge.engines import ray as engine
from fedge.engines import tasks
from fedge.engines.block import Block
from fedge.engines.both_sides import BothSides
from fedge.engines.kernels.assemble import Batched
from fedge.engines.ray import Ray
from hostile_clients import BAD, poisoned
from own_parts import write_own

SIZES = (6, 9, 9, 1, 5, 7, 12)
NUM_ROWS = 2
LONG_S = 60.0  # nothing takes this long unless something is wrong
LARGE = 300  # values per sample of the clients below: more than Ray packs into a small object

full = pytest.mark.full


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """The ray package with its own folder, so that clusters of tests and of other processes do not find each other."""
    found = pytest.importorskip("ray", reason="needs the extra `ray`")
    for module in (federation, hostile_clients, sys.modules[__name__]):  # workers cannot import them
        found.cloudpickle.register_pickle_by_value(module)
    with short_folder() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        yield found


def short_folder() -> TemporaryDirectory[str]:
    """A short path: the names of Ray's sockets are long, and limited to 107 characters."""
    return TemporaryDirectory(prefix="ray", dir="/tmp")


@pytest.fixture(scope="module")
def cluster(ray: Any) -> Iterator[Any]:
    """A cluster with one node of two CPUs, which engines find by RAY_ADDRESS."""
    from ray.cluster_utils import Cluster

    # Detect a lost node after one second instead of half a minute.
    health = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 200, "health_check_failure_threshold": 5}
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "_system_config": health})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", made.address)
        yield made
    made.shutdown()


class Haunted(Handmade):
    """Clients that trigger events in the worker that trains them, as files request.

    They also add two tasks to a worker: to double a tensor, and to report where the clients' data is.
    """

    def __init__(self, folder: Path, like: Handmade) -> None:
        super().__init__(like._samples, like.num_outputs)
        self._folder = folder

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        tasks.TASKS["double"], tasks.TASKS["locate"] = double, locate

    def bid(self, client: int, *events: str) -> None:
        """Request events, in order."""
        (self._folder / str(client)).write_text("\n".join(events))

    def train(self, client: int, round: int) -> Samples:
        path = self._folder / str(client)
        if path.exists():
            event, _, rest = path.read_text().partition("\n")
            path.write_text(rest) if rest else path.unlink()
            EVENTS[event](self._folder)
        return super().train(client, round)


def fall(folder: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stop(folder: Path) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def linger(folder: Path) -> None:
    (folder / "lingers").touch()
    time.sleep(LONG_S)


def linger_there(folder: Path) -> None:
    """Linger, but only on the node named in a file."""
    import ray

    if ray.get_runtime_context().get_node_id() == (folder / "node").read_text():
        linger(folder)


def interrupt(folder: Path) -> None:
    os.kill(int((folder / "driver").read_text()), signal.SIGINT)
    time.sleep(LONG_S)


def refuse(folder: Path) -> None:
    raise DataError("client 2 has no label; add one")


def blunder(folder: Path) -> None:
    raise ZeroDivisionError("why")


def leave(folder: Path) -> None:
    raise SystemExit(3)


EVENTS = {each.__name__: each for each in (fall, stop, linger, linger_there, interrupt, refuse, blunder, leave)}


def double(sides: BothSides, batched: Batched, shared: Tree, meta: tasks.Meta, tensors: Tree) -> tasks.Content:
    time.sleep(meta["pause_s"])
    return {"number": meta["number"], "pid": os.getpid()}, {"x": 2 * tensors["x"] + shared["one"]}


def locate(sides: BothSides, batched: Batched, shared: Tree, meta: tasks.Meta, tensors: Tree) -> tasks.Content:
    time.sleep(0.2)  # so that every worker gets a task
    places = {"x": sides.clients.data.train(0, 1).x, "shared": shared["one"], "model": sides.server.variables["x"]}
    found = {name: where(value) for name, value in places.items()}
    return {"pid": os.getpid(), "threads": torch.get_num_threads(), **found}, {}


def where(value: Tensor) -> str:
    """Return the file and offset of a tensor's memory; empty for private memory."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        places, _, offset, device, inode, *path = line.split()
        start, end = (int(place, 16) for place in places.split("-"))
        if start <= value.data_ptr() < end and "plasma" in "".join(path):
            return f"{device} {inode} {value.data_ptr() - start + int(offset, 16)}"
    return ""


def federate(build: Build, clients: Handmade | None = None, **options: object) -> Federation:
    """Return a federation that runs in blocks."""
    return Federation(build, clients or mixed(SIZES), "block", **options)  # type: ignore[arg-type]


@pytest.fixture
def notices() -> list[str]:
    return []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def only_one(cluster: Any, folder: Path) -> Iterator[tuple[Federation, list[str]]]:
    """Workers shared by tests that do not need their own, as they take seconds to start."""
    notices: list[str] = []
    made = federate(BUILDS["scaffold"], Haunted(folder, mixed(SIZES, features=8)))
    made.engine = Ray(made.sides, NUM_ROWS, 2, notices.append)
    yield made, notices
    made.engine.close()


@pytest.fixture
def distribute(only_one: tuple[Federation, list[str]], notices: list[str]) -> Iterator[Callable[..., Federation]]:
    """Makes federations with their own workers, and closes them."""
    ray_of(only_one[0]).close()  # frees its CPUs; it will start again
    opened: list[Ray] = []

    def make(
        build: Build,
        clients: Handmade | None = None,
        num_workers: int = 2,
        stall_s: float = LONG_S,
        **options: object,
    ) -> Federation:
        made = federate(build, clients, **options)
        made.engine = Ray(made.sides, NUM_ROWS, num_workers, notices.append, stall_s)
        opened.append(made.engine)
        return made

    yield make
    for each in opened:
        each.close()


@pytest.fixture
def haunted(only_one: tuple[Federation, list[str]]) -> Federation:
    """SCAFFOLD with two workers, before its first round."""
    made, notices = only_one
    notices.clear()
    made.state, made.info = made.clients.algorithm.init(made.clients.network.variables), made.info._replace(round=0)
    for client in range(len(SIZES)):
        made.clients.kept.write(client, made.clients.algorithm.keep(made.clients.network.variables))
    return made


@pytest.fixture
def told(haunted: Federation, only_one: tuple[Federation, list[str]]) -> list[str]:
    """The notices of that federation."""
    return only_one[1]


def bid(made: Federation, client: int, *events: str) -> None:
    assert isinstance(made.clients.data, Haunted)
    made.clients.data.bid(client, *events)


def pids_of(made: Federation, num_workers: int = 2) -> list[int]:
    """Return the process ids of all workers, once they have started."""
    found: set[int] = set()
    deadline = time.monotonic() + LONG_S
    while len(found) < num_workers:
        assert time.monotonic() < deadline, f"of {num_workers} workers {len(found)} have started"
        places = ray_of(made).map("locate", {"one": torch.ones(3)}, [({}, {})] * 2 * num_workers)
        found |= {meta["pid"] for meta, _ in places}
    return sorted(found)


def ray_of(made: Federation) -> Ray:
    assert isinstance(made.engine, Ray)
    return made.engine


def assert_same(found: Tree, expected: Tree) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


def assert_same_replies(found: Sequence[Reply], expected: Sequence[Reply]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert_same(one.value, other.value)
        assert (one.ids, one.missing, one.communicated) == (other.ids, other.missing, other.communicated)
        for a, b in zip(
            (one.samples, one.losses, *one.costs), (other.samples, other.losses, *other.costs), strict=True
        ):
            np.testing.assert_array_equal(a, b)


def assert_gone(pids: Sequence[int]) -> None:
    deadline = time.monotonic() + LONG_S
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, f"some of the processes {pids} are still there"
        time.sleep(0.05)


# Bit equality


@full
@pytest.mark.parametrize(
    ("name", "num_workers"),
    [
        ("fedavg", 1),
        ("mtfl(fedavg_adam, bn)", 2),
        ("codec(scaffold, sparse)", 1),
        ("dynavg(0.02)", 2),
        ("krum(fedavg)", 1),
    ],
)
def test_bit_identical_to_block(name: str, num_workers: int, distribute: Callable[..., Federation]) -> None:
    expected, found = federate(BUILDS[name], epochs=2), distribute(BUILDS[name], num_workers=num_workers, epochs=2)
    for _ in range(3):
        assert_same_replies(found.round().replies, expected.round().replies)
    assert_same(found.everything(), expected.everything())


MODEL = """
from torch import nn

class Mine(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 6), nn.LayerNorm(6), nn.Linear(6, 3))

    def forward(self, x):
        return self.layers(x)

def build():
    return Mine()
"""


@full
def test_a_model_of_a_users_file(tmp_path: Path, distribute: Callable[..., Federation]) -> None:
    """The file is on no other machine, and the model has no batched kernel."""
    path = tmp_path / "mine.py"
    path.write_text(MODEL)
    make = load_function(f"{path}:build", "model.name")
    path.unlink()
    expected = federate(BUILDS["fedavg"], make=make).rounds(2)
    found = distribute(BUILDS["fedavg"], num_workers=1, make=make).rounds(2)
    assert not ray_of(found).masks
    assert_same(found.everything(), expected.everything())


@full
def test_an_algorithm_of_a_users_file(tmp_path: Path, distribute: Callable[..., Federation]) -> None:
    """Its options and imports are sent too."""
    path = write_own(tmp_path / "code")
    options = choose(f"{path}:FedAvgM", ALGORITHMS, "algorithm.name")(beta=0.5)
    expected = federate(options.build).rounds(2)
    shutil.rmtree(tmp_path)
    found = distribute(options.build, num_workers=1).rounds(2)
    assert_same(found.everything(), expected.everything())


@full
@pytest.mark.parametrize("reduce", [Mean, Median, TrimmedMean, Krum])
@pytest.mark.parametrize(
    ("value", "limits"),
    [
        (float("nan"), Limits(None, "reject")),
        (float("inf"), Limits(None, "reject")),
        (1e6, Limits(50.0, "reject")),
        (None, Limits(None, "reject")),
    ],
    ids=["nan", "infinite", "huge", "weight"],
)
def test_a_hostile_client_costs_only_itself(
    value: float | None, limits: Limits, reduce: Reduce, distribute: Callable[..., Federation]
) -> None:
    """Without a value, it has more samples than it registered."""
    inner = reduced(BUILDS["scaffold"], reduce)
    build = inner if value is None else poisoned(inner, value)
    expected, found = (make(build, limits=limits) for make in (federate, distribute))
    for made in (expected, found):
        if value is None:
            made.sides.server.clients.sizes[BAD] = 1
        made.round()
        kept = made.clients.kept.read(BAD)
        (reply,) = made.round().replies
        assert reply.rejected is not None
        assert reply.rejected.ids == (BAD,)
        assert_same(made.clients.kept.read(BAD), kept)
    assert_same(found.everything(), expected.everything())


@full
@pytest.mark.parametrize("name", BUILDS)
def test_every_algorithm_can_be_sent(name: str, ray: Any) -> None:
    """Including objects compared by identity, such as ALL."""
    expected, found = (federate(BUILDS[name], mixed((4, 3)), steps=1) for _ in range(2))
    kept, bare = found.clients.kept, found.sides._replace(clients=found.clients._replace(kept=None))
    travelled = ray.cloudpickle.loads(ray.cloudpickle.dumps(bare))
    found.sides = travelled._replace(clients=travelled.clients._replace(kept=kept))
    found.engine = Block(found.sides, batched_of(found.sides), NUM_ROWS)
    assert_same(found.rounds(1).everything(), expected.rounds(1).everything())


@full
@pytest.mark.parametrize("cohorts", [((0, 2, 5), (1, 3, 4, 6)), ((0, 1, 2, 3), (2, 3, 4), (4, 5))])
def test_several_exchanges_at_once(cohorts: Sequence[Sequence[int]], haunted: Federation) -> None:
    """If a client is in two of them, its private state from the first is used in the second."""
    outcomes = []
    for made in (federate(BUILDS["scaffold"]), haunted):
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


# Placement of data


@full
def test_data_is_stored_once_per_node(distribute: Callable[..., Federation], folder: Path) -> None:
    """Two workers of a node read the clients' data and shared trees from the same place in a shared file."""
    large = Haunted(folder, mixed(features=LARGE))
    made = distribute(BUILDS["fedavg"], large, make=lambda: torch.nn.Sequential(torch.nn.Linear(LARGE, 3)))
    pids = pids_of(made)
    found = [meta for meta, _ in ray_of(made).map("locate", {"one": torch.ones(LARGE)}, [({}, {})] * 4)]
    assert sorted({meta["pid"] for meta in found}) == pids
    for name in ("x", "shared"):
        assert "" not in {meta[name] for meta in found}
        assert len({meta[name] for meta in found}) == 1
    assert {meta["model"] for meta in found} == {""}  # modules write to their own tensors
    assert {meta["threads"] for meta in found} == {1}


@pytest.mark.parametrize("array", [np.arange(9.0)[1:], np.zeros((0, 3)), np.arange(64.0)])
def test_tensors_are_aligned_as_torch_aligns_them(array: np.ndarray, recwarn: pytest.WarningsRecorder) -> None:
    array.flags.writeable = False
    value = engine._tensor(array)
    assert value.data_ptr() % 64 == 0
    assert torch.equal(value, torch.from_numpy(array.copy()))
    assert list(recwarn) == []


def test_expanded_rows_are_sent_in_full() -> None:
    tree = {"rows": torch.arange(3.0).expand(2, -1), "part": torch.arange(6.0)[::2]}
    assert_same(engine._tree(engine._arrays(tree)), tree)


# Workers that are lost


@full
def test_a_node_that_is_removed(
    cluster: Any, folder: Path, notices: list[str], distribute: Callable[..., Federation]
) -> None:
    """During a round, while its only worker is busy."""
    node = cluster.add_node(num_cpus=1)
    (folder / "node").write_text(node.node_id)
    made = distribute(BUILDS["scaffold"], Haunted(folder, mixed(SIZES)), num_workers=3)
    pids_of(made, 3)  # each of them will get a block at once
    for client in range(len(SIZES)):
        bid(made, client, "linger_there")

    def remove() -> None:
        while not (folder / "lingers").exists():
            time.sleep(0.05)
        cluster.remove_node(node, allow_graceful=False)

    remover = threading.Thread(target=remove, daemon=True)
    remover.start()
    made.rounds(2)
    remover.join(LONG_S)
    (folder / "lingers").unlink()
    made.round(cohort=(0,))  # which no worker without a CPU blocks
    expected = federate(BUILDS["scaffold"]).rounds(2)
    expected.round(cohort=(0,))
    assert_same(made.everything(), expected.everything())
    assert [notice for notice in notices if re.search(r"was lost \(.*\) at clients", notice)]


@full
def test_workers_that_cannot_start(
    distribute: Callable[..., Federation], notices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_PATIENCE_S", 0.01)
    made = distribute(BUILDS["fedavg"], Foreign(mixed(SIZES)._samples, 3), num_workers=3)
    with pytest.raises(
        TrainingError, match=r"3 in a row did not; the last: ModuleNotFoundError: .*'nowhere'\. Every node"
    ):
        made.round()
    assert "engine: the Ray cluster has 2 CPUs for 3 workers; only workers that get a CPU will run" in notices
    assert any(notice.startswith("engine: no worker has started for 0.01 s") for notice in notices)


class Foreign(Handmade):
    """Clients that need a package that the nodes do not have."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        import nowhere  # noqa: F401


@full
def test_killed_workers_leave_no_trace(haunted: Federation, told: list[str]) -> None:
    for client in (1, 4):
        bid(haunted, client, "fall")
    haunted.rounds(2)
    assert_same(haunted.everything(), federate(BUILDS["scaffold"]).rounds(2).everything())
    assert len(told) == 2
    assert all(re.search(r"engine: a Ray worker was lost \(.*\) at clients", notice) for notice in told)


@full
def test_a_stopped_worker_is_reported_and_replaced(
    distribute: Callable[..., Federation], notices: list[str], folder: Path
) -> None:
    made = distribute(BUILDS["scaffold"], Haunted(folder, mixed(SIZES, features=8)), stall_s=2.0)
    bid(made, 1, "stop")
    made.rounds(1)
    assert_same(made.everything(), federate(BUILDS["scaffold"]).rounds(1).everything())
    assert any("Ray worker process" in notice and "is not running at clients" in notice for notice in notices)
    assert any("was lost (did not run for 2 s) at clients" in notice for notice in notices)


@full
def test_no_block_is_blamed_for_workers_that_die_while_idle(haunted: Federation, told: list[str]) -> None:
    haunted.rounds(1)
    pids = pids_of(haunted)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert_gone(pids)
    haunted.rounds(1)
    assert len(told) == 2
    assert all(notice.startswith("engine: a Ray worker was lost while idle (") for notice in told)
    assert_same(haunted.everything(), federate(BUILDS["scaffold"]).rounds(2).everything())


@full
def test_a_block_that_always_kills(haunted: Federation, told: list[str], folder: Path) -> None:
    bid(haunted, 3, "fall", "fall", "fall", "linger")
    with pytest.raises(
        TrainingError, match=r"^clients 4, 3: .* 3 in a row were lost; .* lower engine.rows or"
    ) as caught:
        haunted.round(cohort=(3, 4))
    assert "worker process has died" in str(caught.value)
    assert len(told) == 2
    assert (folder / "3").read_text() == "linger"  # a fourth worker was not tried
    (folder / "3").unlink()


@full
@pytest.mark.parametrize(
    ("event", "kind", "text"),
    [
        ("refuse", DataError, "^client 2 has no label; add one$"),
        ("blunder", RuntimeError, r"(?s)^in a worker process:\nTraceback.*, in blunder\n.*ZeroDivisionError: why"),
        ("leave", RuntimeError, r"(?s)^in a worker process:\n.*SystemExit: 3"),
    ],
)
def test_errors_are_raised_unchanged(event: str, kind: type[Exception], text: str, haunted: Federation) -> None:
    bid(haunted, 2, event)
    with pytest.raises(kind, match=text) as caught:
        haunted.round(cohort=(2,))
    assert type(caught.value) is kind


# Tasks


def items(pauses_s: Sequence[float], made: list[int] | None = None) -> Iterator[tasks.Content]:
    for i, pause_s in enumerate(pauses_s):
        if made is not None:
            made.append(i)
        yield {"number": i, "pause_s": pause_s}, {"x": torch.full((3,), float(i))}


@full
def test_results_are_in_order_and_items_consumed_lazily(haunted: Federation) -> None:
    asked: list[int] = []
    shared = {"one": torch.ones(3)}
    with closing(ray_of(haunted).map("double", shared, items([0.3] + [0.0] * 9, asked))) as results:
        first = next(results)
        assert len(asked) == 4  # two per worker
        with pytest.raises(RuntimeError, match="one `map` at a time"):
            next(ray_of(haunted).map("double", shared, items([0.0])))
        found = [(meta["number"], tensors["x"].tolist()) for meta, tensors in (first, *results)]
    assert found == [(i, [2.0 * i + 1] * 3) for i in range(10)]


@full
def test_leaving_early_ends_the_workers(haunted: Federation) -> None:
    pids, shared = pids_of(haunted), {"one": torch.ones(3)}
    with closing(ray_of(haunted).map("double", shared, items([0.0, LONG_S, LONG_S]))) as results:
        next(results)
    assert_gone(pids)
    assert len(list(ray_of(haunted).map("double", shared, items([0.0])))) == 1


# Clusters


INTERRUPTED = """
import os, sys
from pathlib import Path

import ray

import federation
from test_ray import Haunted, Ray, federate

for module in (federation, sys.modules["test_ray"]):
    ray.cloudpickle.register_pickle_by_value(module)
folder = Path(sys.argv[1])
(folder / "driver").write_text(str(os.getpid()))
made = federate(federation.BUILDS["fedavg"], Haunted(folder, federation.mixed()))
with Ray(made.sides, 2, 1) as engine:
    made.engine = engine
    made.round()
    (folder / "session").write_text(ray.get_runtime_context().gcs_address)
    made.clients.data.bid(2, "interrupt")
    try:
        made.round()
    except KeyboardInterrupt:
        pass
print("connected" if ray.is_initialized() else "left")
"""


@full
def test_ctrl_c_ends_a_cluster_that_was_started_here(ray: Any, tmp_path: Path) -> None:
    tests = Path(__file__).parents[1]
    paths = {"PYTHONPATH": f"{tests}{os.pathsep}{tests / 'engines'}"}
    inherited = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with short_folder() as folder:
        done = subprocess.run(
            [sys.executable, "-c", INTERRUPTED, str(tmp_path)],
            env=inherited | paths | {"RAY_TMPDIR": folder},
            capture_output=True,
            text=True,
            timeout=2 * LONG_S,
            check=False,
        )
    assert (done.stdout, done.stderr, done.returncode) == ("left\n", "", 0)
    address = (tmp_path / "session").read_text().encode()
    assert_gone(
        [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if address in path.read_bytes()]
    )


@full
def test_a_joined_cluster_keeps_running(haunted: Federation, ray: Any) -> None:
    expected = federate(BUILDS["scaffold"])
    for made in (expected, haunted):
        made.round(cohort=(0, 1))
    assert ray.is_initialized()
    ray_of(haunted).close()
    assert not ray.is_initialized()
    for made in (expected, haunted):
        made.round(cohort=(1, 2))
    assert_same(haunted.everything(), expected.everything())


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("ray://127.0.0.1:10001", "this is an address of Ray Client"),
        ("nonsense", "invalid literal"),
        ("127.0.0.1:1", "Connection refused"),
    ],
)
def test_an_address_without_a_cluster(address: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        engine._check_address(address)
    assert str(caught.value).startswith(
        f"RAY_ADDRESS: expected host:port of a Ray cluster that includes this machine, got {address} ("
    )
    assert problem in str(caught.value)


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"engine.name: ray needs .* pip install 'fedge\[ray\]'"):
        Ray(make_sides(BUILDS["fedavg"], mixed()), NUM_ROWS, 1)


def test_nodes_with_different_versions() -> None:
    engine._check_versions(engine._versions())
    with pytest.raises(
        ConfigError, match=rf"same torch on every node, expected {torch.__version__[:4]}.* a node has 1\.0;"
    ):
        engine._check_versions(engine._versions() | {"torch": "1.0"})
