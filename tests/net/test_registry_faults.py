"""A registry after SIGKILL, on a full disk, and with damaged files."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fedge.core.errors import RunError, StorageError
from fedge.net.protocol import Facts
from fedge.net.registry import Registry, TaskRow, read_clients
from filled import filled

FACTS = Facts(shape=(3,), num_outputs=2, task="classes", size=9)
NUM_KILLS = 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "registry.sqlite"


def work(path: Path, told: int) -> None:
    """Join clients and write tasks endlessly; report each once its call has returned."""
    registry = Registry.open(path)
    start = len(registry.names())
    for i in range(start, start + 10**6):
        number = registry.join(f"client-{i}", f"print-{i}", None, FACTS, float(i))
        registry.count_bytes(number, up=7)
        registry.seen(number, float(i), "working")
        registry.record(TaskRow(f"t{i}", number, 1, 0, 1, "work", "settled", float(i)))
        os.write(told, f"join {i} {number}\n".encode())
        registry.flush()
        os.write(told, f"flush {i} {number}\n".encode())


def kill_after(path: Path, num_lines: int, spin: int) -> list[tuple[str, int, int]]:
    """Fork a process that works, kill it some time after its n-th line, and return its lines."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            work(path, writing)
        finally:
            os._exit(1)
    os.close(writing)
    told = b""
    while told.count(b"\n") < num_lines:
        piece = os.read(reading, 65536)
        assert piece, "the process ended by itself"
        told += piece
    for _ in range(spin):
        os.getppid()
    os.kill(pid, signal.SIGKILL)
    while piece := os.read(reading, 65536):
        told += piece
    os.close(reading)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    lines = told.decode().split("\n")[:-1]
    return [(kind, int(i), int(value)) for kind, i, value in map(str.split, lines)]


@pytest.mark.full
def test_killed_at_any_moment(path: Path) -> None:
    rng = random.Random(1)
    numbers: dict[str, int] = {}
    flushed: set[int] = set()
    for _ in range(NUM_KILLS):
        for kind, i, value in kill_after(path, rng.randint(1, 8), rng.randint(0, 3000)):
            if kind == "join":
                numbers[f"client-{i}"] = value
            else:
                flushed.add(value)
        read = read_clients(path)  # as a killed server left it
        registry = Registry.open(path)
        found = {name: number for number, name in registry.names().items()}
        assert found.items() >= numbers.items()
        assert sorted(found.values()) == list(range(len(found)))
        assert registry.population() == [FACTS] * len(found)
        assert {client.number for client in read if client.bytes_up == 7 and client.rounds == 1} >= flushed
        assert {client.bytes_up for client in read} <= {0, 7}
        registry.close()
    assert len(numbers) >= NUM_KILLS


def join_many(registry: Registry) -> None:
    for i in range(1, 100_000):
        registry.join(f"client-{i}", None, None, FACTS, 0.0)


def test_full_disk(small_disk: Path) -> None:
    path = small_disk / "registry.sqlite"
    registry = Registry.open(path)
    assert registry.join("before", None, None, FACTS, 0.0) == 0
    words = f"cannot write {path}: database or disk is full; free space"
    with filled(small_disk, 100_000):
        with pytest.raises(StorageError, match=words):
            join_many(registry)
        joined = len(registry.names())
        assert joined > 1
        registry.seen(0, 5.0, "working")
        registry.count_bytes(0, up=3)
        registry.record(TaskRow("t", 0, 1, 0, 1, "work", "settled", 0.0, "r" * 1000))
        for _ in range(2):
            with pytest.raises(StorageError):
                registry.flush()
        registry.count_bytes(0, up=4)
        assert f"client-{joined}" not in registry.names().values()
    registry.flush()  # nothing was lost or counted twice
    assert registry.join(f"client-{joined}", None, None, FACTS, 0.0) == joined
    first = read_clients(path)[0]
    assert (first.last_seen, first.state, first.bytes_up, first.rounds) == (5.0, "working", 7, 1)
    assert len(read_clients(path)) == joined + 1
    registry.close()
    Registry.open(path).close()


def test_disk_full_from_the_start(small_disk: Path) -> None:
    path = small_disk / "registry.sqlite"
    with filled(small_disk, 0), pytest.raises(StorageError, match=str(path)):
        Registry.open(path)
    Registry.open(path).close()


def is_refused_by_name(use: Callable[[Path], object], path: Path) -> bool:
    """Return whether using a file is refused; the error must name the file."""
    try:
        use(path)
    except (RunError, StorageError) as error:
        if str(path) not in str(error):
            raise
        return True
    return False


def test_damaged_files_are_errors_that_name_them(path: Path) -> None:
    """Whichever bytes change, the registry is read, or refused with its name; nothing else is raised."""
    registry = Registry.open(path)
    for i in range(30):
        registry.join(f"client-{i}", f"print-{i}", None, FACTS, float(i))
        registry.record(TaskRow(f"t{i}", i, 1, 0, 1, "work", "settled", float(i)))
    registry.flush()
    registry.close()
    whole, rng = path.read_bytes(), random.Random(2)
    refused = 0
    for trial in range(300):
        data = bytearray(whole)
        if trial % 3 == 0:
            del data[rng.randrange(len(data)) :]
        for _ in range(rng.choice([1, 4, 40])):
            if data:
                data[rng.randrange(min(len(data), rng.choice([100, 10**6])))] = rng.randrange(256)
        path.write_bytes(data)
        for file in path.parent.glob("*-*"):
            file.unlink()
        for use in (read_clients, lambda path: Registry.open(path).close()):
            refused += is_refused_by_name(use, path)
    assert refused > 200


def test_a_newer_format_and_foreign_code_are_refused(path: Path) -> None:
    registry = Registry.open(path)
    registry._connection.execute("PRAGMA user_version = 2")
    registry.close()
    with pytest.raises(RunError, match=f"{path} has format 2, but this version of fedge reads up to format 1"):
        Registry.open(path)
    path.unlink()
    registry = Registry.open(path)
    registry._connection.execute("ALTER TABLE client RENAME TO hidden")
    registry._connection.execute("CREATE VIEW client AS SELECT * FROM hidden")
    registry.close()
    with pytest.raises(RunError, match="views or triggers"):
        read_clients(path)


def test_registry_is_thread_safe(path: Path) -> None:
    registry = Registry.open(path)
    registry.join("a", None, None, FACTS, 0.0)

    def note(thread: int) -> None:
        for i in range(300):
            registry.count_bytes(0, down=1)
            registry.record(TaskRow(f"{thread}-{i}", 0, i, 0, 1, "work", "settled", 0.0))

    threads = [threading.Thread(target=note, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        registry.flush()
    registry.flush()
    (client,) = read_clients(path)
    assert (client.bytes_down, client.rounds, len(registry.tasks())) == (1200, 300, 1200)
    registry.close()


def test_hostile_texts(path: Path) -> None:
    registry = Registry.open(path)
    registry.join("a", None, None, FACTS, 0.0, address="\ud800" + "x" * 5000)
    registry.record(TaskRow("t'); DROP TABLE task; --", 0, 1, 0, 1, "work", "failed", 0.0, "\x00\x1b\ud800" * 999))
    registry.flush()
    (row,) = registry.tasks()
    assert row.token == "t'); DROP TABLE task; --"
    assert (row.reason[:3], len(row.reason)) == ("\x00\x1b?", 1000)
    assert len(read_clients(path)[0].address) == 1000
    registry.close()


def test_reading_while_a_server_writes(path: Path) -> None:
    registry = Registry.open(path)
    for i in range(20):
        registry.join(f"client-{i}", None, None, FACTS, 0.0)
        assert len(read_clients(path)) == i + 1
    registry.close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert len(read_clients(path)) == 20
    assert [file.name for file in path.parent.iterdir()] == [path.name]
