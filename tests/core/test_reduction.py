"""Reduction of answers of clients with one weight, sent as 1."""

from __future__ import annotations

import random
import struct
import zlib
from math import nan
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from federation import BUILDS, Federation, mixed, points, slope
from fedge.algorithms.fedavg import FedAvg
from fedge.client.answer import answer as answer_of
from fedge.core import message
from fedge.core.algorithm import Costs
from fedge.core.answer import Answer
from fedge.core.drive import first_exchange
from fedge.core.effort import Effort
from fedge.core.errors import StreamError, TrainingError
from fedge.core.reduce import Mean, Median, Reduce
from fedge.core.reduction import Reduction
from fedge.core.server_side import Limits
from mutations import fuzz, mutate

EFFORT = Effort(3, 3, 3, 0.5)
REJECT = Limits(None, "reject")


def reduction(limits: Limits = REJECT, reduce: Reduce = Mean, admit: Any = None) -> Reduction:
    made = Federation(FedAvg().build, points(0, 4, 2), make=slope, limits=limits)
    info = made.info._replace(round=1)
    exchange = first_exchange(made.clients.algorithm, made.state, info)._replace(reduce=reduce, admit=admit)
    return Reduction(made.sides.server, made.sides.server.send(exchange, info))


def answer(client: int, y: float, samples: int = 1) -> Answer:
    tree = {"y": torch.tensor([y], dtype=torch.float64), "stats": torch.zeros(0, dtype=torch.float64)}
    return Answer(client, samples, EFFORT, tree)


def rows(*values: float) -> dict[str, torch.Tensor]:
    return {
        "y": torch.tensor([[y] for y in values], dtype=torch.float64),
        "stats": torch.zeros(len(values), 0, dtype=torch.float64),
    }


def answers(*clients: int) -> list[Answer]:
    return [Answer(client, 1, EFFORT, {}) for client in clients]


def length(client: int, y: float) -> int:
    given = answer(client, y)
    return len(message.pack(given.meta(), given.upload))


def test_accepted_answers_are_averaged() -> None:
    found = reduction()
    assert [found.add(answer(client, y)) for client, y in ((0, 2.0), (1, 4.0), (2, nan))] == [True, True, False]
    reply = found.reply()
    assert reply.value["y"].tolist() == [3.0]  # (2 + 4)/2
    assert (reply.ids, reply.missing, reply.samples.tolist()) == ((0, 1), (2,), [1, 1])
    assert reply.losses.tolist() == [0.5, 0.5]
    assert reply.communicated
    assert reply.costs.bytes_up.tolist() == [length(0, 2.0), length(1, 4.0)]
    assert reply.rejected is not None
    assert (reply.rejected.ids, reply.rejected.reasons) == ((2,), ("the upload 'y' is not finite",))
    assert reply.rejected.costs.bytes_up.tolist() == [length(2, nan)]
    assert reply.rejected.costs.steps.tolist() == [3]


@pytest.mark.parametrize("reduce", [Mean, Median])
def test_rejected_rows_leave_no_trace(reduce: Reduce) -> None:
    together, apart = reduction(reduce=reduce), reduction(reduce=reduce)
    together.add_rows(answers(0, 1, 2), rows(2.0, nan, 4.0))
    for client, y in ((0, 2.0), (1, nan), (2, 4.0)):
        apart.add(answer(client, y))
    one, other = together.reply(), apart.reply()
    assert one.value["y"].tolist() == other.value["y"].tolist() == [3.0]
    assert one.ids == other.ids == (0, 2)
    assert one.rejected is not None
    assert other.rejected is not None
    assert one.rejected.reasons == other.rejected.reasons == ("the upload 'y' is not finite",)
    for name in Costs._fields[:-1]:
        assert getattr(one.rejected.costs, name).tolist() == getattr(other.rejected.costs, name).tolist()


def test_a_block_of_bad_rows_counts_nothing() -> None:
    found = reduction()
    found.add_rows(answers(0, 1), rows(nan, nan))
    reply = found.reply()
    assert (reply.value, reply.ids, reply.communicated) == ({}, (), False)
    assert reply.rejected is not None
    assert reply.rejected.ids == (0, 1)


@pytest.mark.parametrize("reduce", [Mean, Median])
def test_a_value_that_is_not_finite_stops_the_run(reduce: Reduce) -> None:
    """Both if uploads are reduced on arrival and if they are held until the end."""
    pattern = r"^round 1, client 1: the upload 'y' is not finite \(loss of the first step: 0\.5\)\. .*learning_rate"
    with pytest.raises(TrainingError, match=pattern):
        reduction(Limits(), reduce).add_rows(answers(0, 1), rows(2.0, nan))
    with pytest.raises(TrainingError, match=pattern):
        reduction(Limits(), reduce).add(answer(1, nan))


def test_partial_replies_include_rejected_answers() -> None:
    whole, part = reduction(), reduction()
    whole.add(answer(0, 2.0))
    part.add(answer(2, nan))
    part.add(answer(1, 4.0))
    whole.merge(part.part())
    reply = whole.reply()
    assert (reply.ids, reply.value["y"].tolist()) == ((0, 1), [3.0])
    assert reply.rejected is not None
    assert reply.rejected.ids == (2,)


def test_rejected_answers_are_admitted_with_the_others_and_in_client_order() -> None:
    told: list[tuple[tuple[int, ...], list[int]]] = []

    def admit(ids: tuple[int, ...], costs: Costs) -> np.ndarray:
        told.append((ids, costs.bytes_up.tolist()))
        return np.array([True, False, False])

    found = reduction(admit=admit)
    for client, y in ((2, 4.0), (1, nan), (0, 2.0)):
        found.add(answer(client, y))
    reply = found.reply()
    assert told == [((0, 1, 2), [length(0, 2.0), length(1, nan), length(2, 4.0)])]
    assert (reply.ids, reply.missing, reply.value["y"].tolist()) == ((0,), (1, 2), [2.0])
    assert reply.late is not None
    assert reply.late.ids == (2,)
    assert reply.rejected is not None
    assert reply.rejected.ids == (1,)  # not late as well


def test_admit_is_called_even_if_all_answers_were_rejected() -> None:
    told: list[tuple[int, ...]] = []

    def admit(ids: tuple[int, ...], costs: Costs) -> np.ndarray:
        told.append(ids)
        return np.ones(len(ids), bool)

    found = reduction(admit=admit)
    found.add(answer(1, nan))
    assert found.reply().ids == ()
    assert told == [(1,)]


def test_receive_checks_and_counts_bytes() -> None:
    found, given = reduction(), answer(1, 4.0)
    data = message.pack(given.meta(), given.upload)
    assert found.receive(1, data)
    assert not found.receive(0, data)
    assert not found.receive(2, data[:-1])
    reply = found.reply()
    assert (reply.ids, reply.value["y"].tolist()) == ((1,), [4.0])
    assert reply.rejected is not None
    assert reply.rejected.ids == (0, 2)
    assert reply.rejected.reasons[0] == "it claims to be client 1"
    assert reply.rejected.reasons[1].startswith("its answer cannot be read: message is cut short")
    assert reply.rejected.costs.bytes_up.tolist() == [len(data), len(data) - 1]
    assert reply.rejected.costs.steps.tolist() == [3, 0]  # unreadable answers have no known effort


def test_bytes_that_cannot_be_read_stop_the_run_by_default() -> None:
    with pytest.raises(TrainingError, match=r"^round 1, client 1: its answer cannot be read: .*reduce\.on_bad"):
        reduction(Limits()).receive(1, b"")


# ---------------------------------------------------------------- forged input

NAMES = ("scaffold", "mfl", "codec(scaffold, sparse)", "codec(scaffold, full)", "ce_fedavg")


class Server:
    """A server with honest answers of its client 1, to be modified."""

    def __init__(self, name: str) -> None:
        self._made = Federation(BUILDS[name], mixed(), limits=Limits(1e6, "reject"), dtype=torch.float32)
        info = self._made.info._replace(round=1)
        exchange = first_exchange(self._made.clients.algorithm, self._made.state, info)
        self._request = self._made.sides.server.send(exchange, info)
        given, _ = answer_of(self._made.clients, 1, exchange.work, self._request.exchange.down, info)
        self.data = message.pack(given.meta(), given.upload)

    def receive(self, data: bytes) -> str:
        """Receive bytes and make the reply; return the reason for rejection, or an empty string."""
        found = Reduction(self._made.sides.server, self._request)
        accepted = found.receive(1, data)
        reply = found.reply()
        assert accepted == (reply.ids == (1,))
        assert all(value.isfinite().all() for value in reply.value.values())
        assert reply.costs.steps.sum() <= 3
        if reply.rejected is None:
            return ""
        assert reply.rejected.ids == (1,)
        assert reply.rejected.costs.steps[0] in range(4)
        assert reply.rejected.costs.flops[0] >= 0
        return reply.rejected.reasons[0]


def framed(header: bytes, body: bytes) -> bytes:
    head = message.MAGIC + struct.pack("<I", len(header)) + header
    return sealed(head + bytes(-len(head) % 64) + body)


def sealed(data: bytes) -> bytes:
    return data + struct.pack("<I", zlib.crc32(data))


def forge(data: bytes, rng: random.Random) -> bytes:
    """Return a modified answer: in four of five cases with a valid checksum, in three also with a valid length."""
    which = rng.randrange(5)
    if which == 0:
        return mutate(data, rng)
    if which == 1:
        return sealed(mutate(data[:-4], rng))
    stop = 8 + int.from_bytes(data[4:8], "little")
    header, body = data[8:stop], data[-(-stop // 64) * 64 : -4]
    if which == 2:
        return framed(header, mutate(body, rng)[: len(body)].ljust(len(body), b"\0"))
    meta, entries = msgspec.msgpack.decode(header)
    odd: list[Any] = [0, 1, 3, 9, 10**12, 2**63, 2**64 - 1, -1, -(2**63), nan, 1e300, "x"]
    if rng.random() < 0.5:
        entry = rng.choice(entries)
        names = [entries[0][0], "stream:float64:y", "stream:float32:x,y,z", "y", "dy", "residual.dy", ""]
        forms = ["float64", "uint8", "int32", [1], [2, 3], [0], [], [1, *entry[2]]]
        entry[rng.choice([0, 0, 1, 2])] = rng.choice([*odd, *names, *forms])
    else:
        meta[rng.choice(list(meta))] = rng.choice(odd)
        meta["problem"] = rng.choice(["", "", "", "\n\0" * 200])
    return framed(msgspec.msgpack.encode([meta, entries]), body)


@pytest.mark.parametrize("num_cases", [2_000, pytest.param(20_000, marks=pytest.mark.full)])
def test_any_bytes_are_counted_or_rejected(num_cases: int) -> None:
    servers = [Server(name) for name in NAMES]
    for server in servers:
        assert server.receive(server.data) == ""
    drawn: list[Server] = []
    reasons: list[str] = []

    def make(rng: random.Random) -> bytes:
        drawn.append(rng.choice(servers))
        return forge(drawn[-1].data, rng)

    def decode(case: bytes) -> None:
        reasons.append(drawn[-1].receive(case))

    found = fuzz(make, decode, StreamError, num_cases, lambda case: 1 << 20)
    assert found == {"": num_cases}  # nothing was raised, not even by decoders
    assert reasons.count("") > num_cases / 50
    for part in ("checksum", "claims to be", "samples", "steps", "decoded", "its upload has", "float32[", "reports"):
        assert any(part in reason for reason in reasons), part
    assert max(map(len, reasons)) < 2000
