"""Numbers are permanent, and telemetry is written in batches."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from fedge.core.errors import RunError
from fedge.net.protocol import Facts
from fedge.net.registry import AWAY, Registry, TaskRow, read_clients
from fedge.net.transport import RefusalError

FACTS = Facts(shape=(1, 8, 8), num_outputs=10, task="classes", size=100)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "registry.sqlite"


def join(registry: Registry, name: str, named: int | None = None, facts: Facts = FACTS, now: float = 1000.0) -> int:
    return registry.join(name, f"print-{name}", named, facts, now)


def task(client: int, round: int, state: str = "settled", kind: str = "work") -> TaskRow:
    return TaskRow(f"{round}.0.1.{client}.{kind}", client, round, 0, 1, kind, state, 1000.0)


def test_numbers_by_arrival_are_permanent(path: Path) -> None:
    registry = Registry.open(path)
    assert [join(registry, name) for name in ("b", "a", "c", "b")] == [0, 1, 2, 0]
    registry.close()
    registry = Registry.open(path)
    assert [join(registry, name) for name in ("c", "d", "a")] == [2, 3, 1]
    assert registry.names() == {0: "b", 1: "a", 2: "c", 3: "d"}
    assert registry.population() == [FACTS] * 4
    registry.close()


def test_numbers_named_by_data(path: Path) -> None:
    registry = Registry.open(path, max_clients=5)
    assert [join(registry, "b", 3), join(registry, "a", 1), join(registry, "b", 3)] == [3, 1, 3]
    assert registry.population() == [None, FACTS, None, FACTS]
    with pytest.raises(RefusalError, match="names the number 3, which belongs to client 'b'"):
        join(registry, "c", 3)
    with pytest.raises(RefusalError, match="client 'b' has the number 3 in this run, but its data names 4"):
        join(registry, "b", 4)
    with pytest.raises(RefusalError, match="expected a client number from 0 to 4, got 5"):
        join(registry, "c", 5)
    assert registry.names() == {1: "a", 3: "b"}
    registry.close()


@pytest.mark.parametrize(("first", "second"), [(0, None), (None, 1)])
def test_named_and_unnamed_do_not_mix(path: Path, first: int | None, second: int | None) -> None:
    registry = Registry.open(path)
    join(registry, "a", first)
    for again in range(2):
        for name in ("b", "a"):
            with pytest.raises(RefusalError, match="for all clients, or for none"):
                join(registry, name, second)
            with pytest.raises(RefusalError, match="for all clients, or for none"):
                registry.reserve(name, second)
        if not again:
            registry.close()
            registry = Registry.open(path)
    registry.close()


def test_a_reservation_is_kept_until_the_client_joins_or_leaves(path: Path) -> None:
    registry = Registry.open(path)
    assert [registry.reserve(name, None) for name in ("a", "b", "a", "c")] == [0, 1, 0, 2]
    assert registry.population() == []
    assert join(registry, "c") == 2
    assert registry.population() == [None, None, FACTS]
    registry.release("a")
    assert registry.reserve("d", None) == 0
    assert join(registry, "b") == 1
    assert [join(registry, "e"), join(registry, "d"), registry.reserve("c", None)] == [3, 0, 2]
    registry.close()


def test_first_client_to_join_gets_a_contested_number(path: Path) -> None:
    registry = Registry.open(path)
    assert [registry.reserve("a", 7), registry.reserve("b", 7)] == [7, 7]
    assert join(registry, "b", 7) == 7
    with pytest.raises(RefusalError, match="which belongs to client 'b'"):
        join(registry, "a", 7)
    registry.close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shape": (8, 8)}, r"shape \(1, 8, 8\), which client 'a' registered, got \(8, 8\)"),
        ({"num_outputs": 2}, "num_outputs 10"),
        ({"task": "labels"}, "task classes"),
    ],
)
def test_facts_must_match(path: Path, change: dict[str, object], words: str) -> None:
    registry = Registry.open(path)
    join(registry, "a")
    other = Facts(**{"shape": (1, 8, 8), "num_outputs": 10, "task": "classes", "size": 5} | change)
    for name in ("b", "a"):
        with pytest.raises(RefusalError, match=words):
            join(registry, name, facts=other)
    registry.close()


def test_sizes_may_change(path: Path) -> None:
    registry = Registry.open(path)
    join(registry, "a")
    changed = Facts(shape=(1, 8, 8), num_outputs=10, task="classes", size=7, test_size=3)
    join(registry, "a", facts=changed)
    registry.close()
    registry = Registry.open(path)
    assert registry.population() == [changed]
    registry.close()


def test_no_more_clients_than_allowed(path: Path) -> None:
    registry = Registry.open(path, max_clients=2)
    assert [join(registry, name) for name in ("a", "b")] == [0, 1]
    with pytest.raises(RefusalError, match="from 0 to 1"):
        join(registry, "c")
    assert join(registry, "a") == 0
    registry.close()


def test_telemetry_is_written_by_flush(path: Path) -> None:
    registry = Registry.open(path)
    registry.join("a", "f1", None, FACTS, 1000.0, "10.0.0.1:5", expires_s=50.0)
    join(registry, "b")
    registry.seen(0, 1003.0, "working")
    registry.seen(0, 1005.0)
    registry.count_bytes(0, down=10)
    registry.count_bytes(0, down=5, up=7)
    registry.record(task(0, 1))
    assert [client.last_seen for client in read_clients(path)] == [1000.0, 1000.0]
    registry.flush()
    registry.flush()  # adds nothing
    registry.count_bytes(0, up=1)
    registry.flush()
    a, b = read_clients(path)
    assert (a.last_seen, a.state, a.bytes_down, a.bytes_up, a.rounds) == (1005.0, "working", 15, 8, 1)
    assert (a.address, a.fingerprint, a.expires, a.joined) == ("10.0.0.1:5", "f1", 1050.0, 1000.0)
    assert (b.state, b.bytes_down, b.rounds, b.expires) == ("idle", 0, 0, None)
    registry.close()
    Registry.open(path).close()
    assert [client.state for client in read_clients(path)] == [AWAY, AWAY]


def test_tasks_of_uncommitted_rounds_do_not_count(path: Path) -> None:
    registry = Registry.open(path)
    join(registry, "a")
    for row in (task(0, 1), task(0, 2), task(0, 2, "settled", "question"), task(0, 3), task(0, 4, "rejected")):
        registry.record(row)
    registry.record(task(0, 5, "declined"))
    registry.flush()
    (client,) = read_clients(path)
    assert (client.rounds, client.rejected, client.declined) == (3, 1, 1)
    registry.close()

    registry = Registry.open(path)
    assert registry.abandon_after(2) == 3
    assert registry.abandon_after(2) == 0
    assert [row.round for row in registry.tasks()] == [1, 2, 2]
    assert [row.round for row in registry.tasks(abandoned=True)] == [3, 4, 5]
    registry.record(task(0, 3)._replace(token="again", attempt=2))
    registry.flush()
    (client,) = read_clients(path)
    assert (client.rounds, client.rejected, client.declined) == (3, 0, 0)
    registry.close()


def test_durable_settings(path: Path) -> None:
    registry = Registry.open(path)
    connection = registry._connection
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    registry.close()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.write_bytes(b"not a database" * 1000), "damaged: file is not a database"),
        (
            lambda path: sqlite3.connect(path).executescript("CREATE TABLE t (a)").connection.close(),
            "not a fedge registry",
        ),
    ],
)
def test_files_that_are_not_a_registry(path: Path, make: object, words: str) -> None:
    make(path)
    for open_it in (Registry.open, read_clients):
        with pytest.raises(RunError, match=words) as error:
            open_it(path)
        assert str(path) in str(error.value)


def test_no_file(path: Path) -> None:
    with pytest.raises(RunError, match=f"no registry at {path}"):
        read_clients(path)
    assert not path.exists()
