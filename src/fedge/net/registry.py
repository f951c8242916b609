"""The registry of a run: client numbers and the outcome of each task, in `registry.sqlite` in the run directory.

A number is permanent and bound to a client's name. Numbers are durable when `join` returns. Everything else is
telemetry: it is collected in memory, and `flush` writes it in one transaction.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from sqlite3 import Connection
from typing import Annotated, NamedTuple, Self

import msgspec
from msgspec import Meta

from fedge.net.protocol import Facts
from fedge.net.registry_file import damaged, in_file, open_for_reading, open_for_writing, transaction
from fedge.net.transport import RefusalError

AWAY = "away"
"""The state of a client that is not connected."""
MAX_CLIENTS = 100_000
_MAX_TEXT = 1000  # characters of a client's text
_ALIKE = ("shape", "num_outputs", "task")  # facts that all clients of a run share


Time = Annotated[float, Meta(ge=0, le=253_402_300_799)]
"""Seconds since 1970, up to the year 9999."""


class TaskRow(NamedTuple):
    """A finished task."""

    token: str
    client: int
    round: int
    exchange: int
    attempt: int
    kind: str  # "work" or "question"
    state: str  # the final state, such as "settled"
    ended: Time
    reason: str = ""
    bytes_down: int = 0
    bytes_up: int = 0
    down_s: float = 0.0
    compute_s: float = 0.0
    up_s: float = 0.0


class ClientRow(NamedTuple):
    """A registered client."""

    number: int
    name: str
    state: str
    joined: Time
    last_seen: Time
    rounds: int  # in which the server received its work
    bytes_down: int
    bytes_up: int
    rejected: int
    declined: int
    address: str
    fingerprint: str | None  # of the certificate with which it last joined
    expires: Time | None  # when that certificate expires


_TASK_COLUMNS = ", ".join(TaskRow._fields)
_ADD_TASK = f"INSERT OR REPLACE INTO task ({_TASK_COLUMNS}) VALUES ({', '.join('?' * len(TaskRow._fields))})"
_ADD_CLIENT = """
INSERT INTO client (number, name, named, facts, joined, last_seen, state, address, fingerprint, expires)
VALUES (:number, :name, :named, :facts, :now, :now, 'idle', :address, :fingerprint, :expires)
ON CONFLICT (number) DO UPDATE SET facts = :facts, last_seen = :now, state = 'idle', address = :address,
fingerprint = :fingerprint, expires = :expires
"""
_ADD_TELEMETRY = """
UPDATE client SET last_seen = COALESCE(?, last_seen), state = COALESCE(?, state),
bytes_down = bytes_down + ?, bytes_up = bytes_up + ? WHERE number = ?
"""
_CLIENTS = """
SELECT number, name, client.state, joined, last_seen, COALESCE(rounds, 0), bytes_down, bytes_up,
COALESCE(rejected, 0), COALESCE(declined, 0), address, fingerprint, expires
FROM client LEFT JOIN (
    SELECT client, COUNT(DISTINCT CASE WHEN state = 'settled' AND kind = 'work' THEN round END) AS rounds,
    SUM(state = 'rejected') AS rejected, SUM(state = 'declined') AS declined
    FROM task WHERE NOT abandoned GROUP BY client
) ON client = number ORDER BY number
"""  # counted from the task table, to exclude abandoned tasks


@dataclass
class _Telemetry:
    """Changes of one client since the last flush."""

    last_seen: float | None = None
    state: str | None = None
    bytes_down: int = 0
    bytes_up: int = 0


@dataclass
class _Pending:
    """All changes since the last flush."""

    clients: dict[int, _Telemetry] = field(default_factory=dict)
    tasks: list[TaskRow] = field(default_factory=list)

    def of(self, client: int) -> _Telemetry:
        return self.clients.setdefault(client, _Telemetry())


class Registry:
    """The registry of a run, open for writing; thread-safe. The run's lock excludes other servers."""

    def __init__(self, path: Path, connection: Connection, max_clients: int) -> None:
        self._path, self._connection, self._max_clients = path, connection, max_clients
        self._busy = threading.RLock()  # one thread at a time uses the connection
        self._collecting = threading.Lock()  # held only briefly, so that an event loop may wait for it
        self._pending = _Pending()
        with in_file(path):
            rows = connection.execute("SELECT number, name, named, facts FROM client ORDER BY number").fetchall()
        self._names: dict[int, str] = {number: name for number, name, _, _ in rows}
        self._numbers: dict[str, int] = {name: number for number, name in self._names.items()}
        self._facts: dict[int, Facts] = {number: self._decode(facts) for number, _, _, facts in rows}
        self._named: bool | None = bool(rows[0][2]) if rows else None  # whether data names the numbers
        self._reserved: dict[str, int] = {}  # for clients that may join, if numbers are assigned by arrival

    @classmethod
    def open(cls, path: Path, max_clients: int = MAX_CLIENTS) -> Self:
        """Open or create the file, and mark all clients as away; numbers are below `max_clients`.

        Raises RunError if the file is damaged or not a registry, StorageError if it cannot be written.
        """
        connection = open_for_writing(path)
        try:
            with transaction(path, connection):
                connection.execute("UPDATE client SET state = ?", (AWAY,))
            return cls(path, connection, max_clients)
        except BaseException:
            connection.close()
            raise

    def reserve(self, name: str, named: int | None) -> int:
        """Return a client's number, or reserve one until `join` or `release`.

        Raises RefusalError if the number named by its data conflicts with its own or another client's number, or if
        only some clients' data name numbers.
        """
        with self._busy:
            number = self._number_for(name, named)
            if named is None and name not in self._numbers:
                self._reserved[name] = number
            return number

    def release(self, name: str) -> None:
        """Drop the reservation of a client that left before it joined."""
        with self._busy:
            self._reserved.pop(name, None)

    def join(
        self,
        name: str,
        fingerprint: str | None,
        named: int | None,
        facts: Facts,
        now: float,
        address: str = "",
        expires_s: float | None = None,
    ) -> int:
        """Register a client durably and return its number, which is the same whenever this name joins.

        `expires_s` is the time in seconds until its certificate expires. Sizes may differ from those of its last join.
        Raises RefusalError as `reserve` does, and for facts that do not match those of earlier clients.
        """
        with self._busy:
            number = self._number_for(name, named)
            self._check_facts(facts)
            row = {"number": number, "name": name, "named": named is not None, "now": now, "fingerprint": fingerprint}
            row |= {"facts": msgspec.json.encode(facts).decode(), "address": _clean(address)}
            row |= {"expires": None if expires_s is None else now + expires_s}
            with transaction(self._path, self._connection) as do:
                do.execute(_ADD_CLIENT, row)
                if fingerprint is not None:
                    do.execute("INSERT OR IGNORE INTO certificate VALUES (?, ?, ?)", (fingerprint, number, now))
            self._names[number], self._numbers[name], self._facts[number] = name, number, facts
            self._named = named is not None
            self._reserved.pop(name, None)
            with self._collecting:  # pending notes of an earlier session are older than this row
                pending = self._pending.of(number)
                pending.last_seen = pending.state = None
            return number

    def names(self) -> dict[int, str]:
        """Return the names of all registered clients, by number."""
        with self._busy:
            return dict(sorted(self._names.items()))

    @property
    def named(self) -> bool:
        """Whether clients' data name their numbers; False until a client has joined."""
        return bool(self._named)

    def population(self) -> list[Facts | None]:
        """Return the facts of all clients by number, up to the highest number; None for numbers without a client."""
        with self._busy:
            return [self._facts.get(number) for number in range(max(self._facts, default=-1) + 1)]

    def seen(self, client: int, now: float, state: str | None = None) -> None:
        """Note that a client was seen, and its new state if that changed. Does not access the disk."""
        with self._collecting:
            new = self._pending.of(client)
            new.last_seen, new.state = now, state or new.state

    def count_bytes(self, client: int, down: int = 0, up: int = 0) -> None:
        """Add to the payload bytes that a client downloaded and uploaded. Does not access the disk."""
        with self._collecting:
            new = self._pending.of(client)
            new.bytes_down, new.bytes_up = new.bytes_down + down, new.bytes_up + up

    def record(self, task: TaskRow) -> None:
        """Note the outcome of a task. Does not access the disk."""
        with self._collecting:
            self._pending.tasks.append(task._replace(reason=_clean(task.reason)))

    def flush(self) -> None:
        """Write all changes since the last flush in one transaction.

        Call it every few seconds and before each commit of a round. If it fails, the next call retries.
        """
        with self._busy:
            with self._collecting:
                pending, self._pending = self._pending, _Pending()
            if not pending.clients and not pending.tasks:
                return
            rows = ((new.last_seen, new.state, new.bytes_down, new.bytes_up, i) for i, new in pending.clients.items())
            try:
                with transaction(self._path, self._connection) as do:
                    do.executemany(_ADD_TELEMETRY, rows)
                    do.executemany(_ADD_TASK, pending.tasks)
            except BaseException:
                self._put_back(pending)
                raise

    def abandon_after(self, round: int) -> int:
        """Mark the tasks of all rounds after `round`, the last committed one, as abandoned; return their number.

        A server calls this when it starts, since it will repeat those rounds.
        """
        with self._busy, transaction(self._path, self._connection) as do:
            return do.execute("UPDATE task SET abandoned = 1 WHERE round > ? AND NOT abandoned", (round,)).rowcount

    def tasks(self, abandoned: bool = False) -> list[TaskRow]:
        """Return the tasks that count, or the abandoned ones, as of the last flush."""
        query = f"SELECT {_TASK_COLUMNS} FROM task WHERE abandoned = ? ORDER BY round, exchange, attempt, client"
        with self._busy, in_file(self._path):
            return [TaskRow(*row) for row in self._connection.execute(query, (abandoned,))]

    def close(self) -> None:
        """Close the file. Changes that were not flushed are lost."""
        with self._busy:
            self._connection.close()

    def _number_for(self, name: str, named: int | None) -> int:
        """Return the number that a client has or would get; raise a RefusalError if there is none for it."""
        if self._named not in (None, named is not None):
            one, others = "does not name its number", "have data that names their numbers"
            if named is not None:
                one, others = f"names its number, {named}", "are numbered in order of arrival"
            raise RefusalError(
                f"the data of client {name!r} {one}, but the clients of this run {others}; "
                "use `experiment.toml#NUMBER` or folders from `fedge data split` for all clients, or for none"
            )
        if (known := self._numbers.get(name)) is not None:
            if named not in (None, known):
                raise RefusalError(
                    f"client {name!r} has the number {known} in this run, but its data names {named}; "
                    "use its earlier data, or a certificate with another name"
                )
            return known
        if named is None:
            taken = {*self._names, *self._reserved.values()}
            start = len(taken) if max(taken, default=-1) < len(taken) else 0  # usually there are no gaps
            free = next(i for i in count(start) if i not in taken)
            named = self._reserved.get(name, free)
        elif named in self._names:
            raise RefusalError(
                f"the data of client {name!r} names the number {named}, which belongs to client "
                f"{self._names[named]!r}; give each client its own data"
            )
        if not 0 <= named < self._max_clients:
            raise RefusalError(f"expected a client number from 0 to {self._max_clients - 1}, got {named}")
        return named

    def _check_facts(self, facts: Facts) -> None:
        if not self._facts:
            return
        number, first = next(iter(self._facts.items()))
        for name in _ALIKE:
            expected, got = getattr(first, name), getattr(facts, name)
            if got != expected:
                raise RefusalError(
                    f"expected data with {name} {expected}, which client {self._names[number]!r} registered, got {got}"
                )

    def _decode(self, facts: str) -> Facts:
        try:
            return msgspec.json.decode(facts, type=Facts)
        except ValueError as error:
            raise damaged(self._path, f"facts of a client: {error}") from None

    def _put_back(self, pending: _Pending) -> None:
        with self._collecting:
            newer, self._pending = self._pending, pending
            pending.tasks += newer.tasks
            for client, new in newer.clients.items():
                old = pending.of(client)
                old.last_seen, old.state = new.last_seen or old.last_seen, new.state or old.state
                old.bytes_down, old.bytes_up = old.bytes_down + new.bytes_down, old.bytes_up + new.bytes_up


def read_clients(path: Path) -> list[ClientRow]:
    """Return the clients in a registry, by number, as of the server's last flush; it does not block the server.

    Raises RunError if there is no registry or it is damaged.
    """
    with open_for_reading(path) as connection:
        rows = connection.execute(_CLIENTS).fetchall()
    try:
        return msgspec.convert(rows, list[ClientRow])
    except msgspec.ValidationError as error:
        raise damaged(path, f"a client: {error}") from None


def _clean(text: str) -> str:
    """Return text, truncated and made encodable."""
    return text[:_MAX_TEXT].encode("utf-8", "replace").decode()
