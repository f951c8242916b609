"""A client behind a wire: valid requests, requests that do not fit it, and random bytes."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from federation import BUILDS, Federation, mixed, sampled
from fedge.client.client_side import ClientSide
from fedge.client.serve import MAX_AMOUNT, Served, serve
from fedge.core import message
from fedge.core.algorithm import Exchange, Info
from fedge.core.drive import first_exchange
from fedge.core.errors import StreamError
from fedge.core.layout import Tree
from fedge.core.message import EvaluationAnswer, EvaluationRequest, WorkAnswer, WorkRequest
from fedge.core.question import read_sums
from mutations import fuzz, mutate

CLIENT = 1  # has 9 samples
MEASURES = ("test", "train", "user", "trained")
SAMPLE = ("fedavg", "scaffold", "mfl", "mtfl(fedavg_adam, bn)", "clustered(fedavg)", "codec(scaffold, full)")


def federate(name: str = "fedavg") -> Federation:
    return Federation(BUILDS[name], mixed(), engine="wire").rounds(1)


def exchange_of(made: Federation) -> tuple[Exchange, Info]:
    info = made.info._replace(round=2)
    return first_exchange(made.clients.algorithm, made.state, info), info


def work_request(made: Federation, down: Callable[[Tree], Tree] = dict, **changes: Any) -> bytes:
    """Return a request of the server with some numbers or vectors changed."""
    request = made.sides.server.send(*exchange_of(made))
    return message.pack(WorkRequest(**{**msgspec.structs.asdict(request.meta()), **changes}), down(request.coded))


def question(made: Federation, measure: Any, down: Callable[[Tree], Tree] = dict, **changes: Any) -> bytes:
    exchange, info = exchange_of(made)
    algorithm, work = made.clients.algorithm, None
    coded = algorithm.model(made.state, made.clients.network.variables)
    if measure == "trained":
        coded, work = made.sides.server.send(exchange, info).coded, exchange.work
    meta = {"measure": measure, "work": work, **info.told()}
    return message.pack(EvaluationRequest(**{**meta, **changes}), down(coded))


def read(served: Served) -> tuple[WorkAnswer, Tree]:
    return message.unpack(served.data, WorkAnswer)


# ---------------------------------------------------------------- valid requests


def test_an_answer_reports_the_clients_work() -> None:
    made = federate("scaffold")
    before = made.clients.kept.read(CLIENT)
    served = serve(made.clients, CLIENT, work_request(made))
    meta, upload = read(served)
    assert (meta.client, meta.samples, meta.steps, meta.batches, meta.grad_samples) == (CLIENT, 9, 3, 3, 12)
    assert upload.keys() == {"dy", "dc", "stats"}
    assert served.kept is not None
    assert not torch.equal(served.kept["c_i"], before["c_i"])
    assert torch.equal(made.clients.kept.read(CLIENT)["c_i"], before["c_i"])  # until the answer is accepted


def test_unchanged_private_state_is_none() -> None:
    made = federate()
    assert serve(made.clients, CLIENT, work_request(made)).kept is None


@pytest.mark.parametrize("name", SAMPLE)
@pytest.mark.parametrize("measure", MEASURES)
def test_questions_are_answered_with_sums(measure: str, name: str) -> None:
    made = federate(name)
    served = serve(made.clients, CLIENT, question(made, measure))
    meta, tree = message.unpack(served.data, EvaluationAnswer)
    sums = read_sums(tree)
    assert (meta.client, served.kept) == (CLIENT, None)
    assert sums is not None
    assert sums.keys() == {"count", "loss", "correct"}
    assert sums["count"] == 9


def test_a_client_without_data_answers_no_question() -> None:
    made = Federation(BUILDS["fedavg"], mixed((6, 0)), engine="wire")
    for measure in ("test", "train"):
        _, tree = message.unpack(serve(made.clients, 1, question(made, measure)).data, EvaluationAnswer)
        assert read_sums(tree) is None


# ---------------------------------------------------------------- requests that do not fit the client


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"work": "pull"}, "expected one of the works train, got 'pull'"),
        ({"num_steps": None}, "expected num_steps or num_epochs from 1 to 1000000, got None and None"),
        ({"num_epochs": 1}, "got 3 and 1"),
        ({"num_steps": 0}, "got 0 and None"),
        ({"num_steps": MAX_AMOUNT + 1}, "got 1000001 and None"),
        ({"num_steps": None, "num_epochs": 2**62}, "got None and 4611686018427387904"),
        ({"round": -1}, "expected a round and a number of clients, got -1 and 4"),
        ({"round": 2**63}, "expected a round"),
        ({"num_clients": 0}, "expected a round and a number of clients, got 2 and 0"),
        ({"num_clients": 2**64 - 1}, "expected a round"),
        ({"rate": float("nan")}, "expected finite learning rates, got nan"),
        ({"server_rate": float("inf")}, "expected finite learning rates, got 0.1 and inf"),
    ],
)
def test_invalid_numbers_are_refused(changes: dict[str, Any], complaint: str) -> None:
    made = federate()
    with pytest.raises(StreamError, match=complaint):
        serve(made.clients, CLIENT, work_request(made, **changes))


DOWNLOADS: dict[str, tuple[Callable[[Tree], Tree], str]] = {
    "one missing": (lambda down: {"x": down["x"]}, "the request lacks a vector that the algorithm needs"),
    "nothing": (lambda down: {}, "the request lacks a vector that the algorithm needs"),
    "unknown": (lambda down: {**down, "z": down["x"]}, "'z' was sent, but this algorithm has no such vector"),
    "short": (lambda down: {**down, "x": down["x"][:1]}, r"expected 'x' as torch.float64 of shape \[81\], got .*\[1\]"),
    "rows": (lambda down: {**down, "x": down["x"][None]}, r"got torch.float64 of shape \[1, 81\]"),
    "half": (lambda down: {**down, "x": down["x"].half()}, r"got torch.float16 of shape \[81\]"),
}


@pytest.mark.parametrize("form", DOWNLOADS)
@pytest.mark.parametrize("ask", [work_request, lambda made, down: question(made, "trained", down)])
def test_a_download_with_wrong_names_or_shapes_is_refused(ask: Callable[..., bytes], form: str) -> None:
    made = federate()
    down, complaint = DOWNLOADS[form]
    with pytest.raises(StreamError, match=complaint):
        serve(made.clients, CLIENT, ask(made, down))


@pytest.mark.parametrize("form", DOWNLOADS)
@pytest.mark.parametrize("measure", ["test", "train", "user"])
def test_a_model_with_wrong_names_or_shapes_is_refused(measure: str, form: str) -> None:
    made = federate()
    with pytest.raises(StreamError, match=r"expected the variables of a model|expected 'x' as|'z' was sent"):
        serve(made.clients, CLIENT, question(made, measure, DOWNLOADS[form][0]))


def test_cluster_models_with_wrong_shapes_are_refused() -> None:
    """The client is in a cluster whose model was not sent, or has another shape."""
    made = Federation(BUILDS["clustered(fedavg)"], mixed(), engine="wire").rounds(2)
    clusters = {client: int(made.clients.kept.read(client)["cluster"]) for client in range(4)}
    client = next(client for client, cluster in clusters.items() if cluster == 1)

    def models(change: Callable[[torch.Tensor], torch.Tensor]) -> bytes:
        return question(made, "user", lambda down: {**down, "clusters.x": change(down["clusters.x"])})

    assert message.unpack(serve(made.clients, client, models(lambda x: x)).data, EvaluationAnswer)[1]
    with pytest.raises(StreamError, match="the request lacks a vector that the algorithm needs"):
        serve(made.clients, client, models(lambda x: x[:1]))
    with pytest.raises(StreamError, match=r"expected 'clusters.x' as .*\[81\], got .*\[3\]"):
        serve(made.clients, client, models(lambda x: x[:, :3].clone()))


@pytest.mark.parametrize("work", [None, "pull"])
def test_training_needs_a_work_that_trains(work: str | None) -> None:
    made = federate("dynavg(0.02)")
    with pytest.raises(StreamError, match=f"expected a work that trains a model, got {work}"):
        serve(made.clients, CLIENT, question(made, "trained", work=work))


def test_a_client_without_samples_cannot_work() -> None:
    made = Federation(BUILDS["fedavg"], mixed((6, 0)), engine="wire")
    with pytest.raises(StreamError, match="client 1 has no training sample"):
        serve(made.clients, 1, work_request(made))


@pytest.mark.parametrize("name", sampled(name for name in BUILDS if not name.startswith(("dynavg", "periodic"))))
def test_any_missing_vector_is_refused(name: str) -> None:
    made = federate(name)
    whole = made.sides.server.send(*exchange_of(made)).coded
    for lost in whole:
        rest = {key: value for key, value in whole.items() if key != lost}
        with pytest.raises(StreamError):
            serve(made.clients, CLIENT, work_request(made, lambda down, rest=rest: rest))


# ---------------------------------------------------------------- random bytes


def sealed(data: bytes) -> bytes:
    return data + struct.pack("<I", zlib.crc32(data))


def forge(samples: list[bytes], rng: random.Random) -> bytes:
    """Return a mutated request: in four cases of five with a valid checksum, in two with changed numbers or entries."""
    data = rng.choice(samples)
    which = rng.randrange(5)
    if which == 0:
        return mutate(data, rng)
    if which == 1:
        return sealed(mutate(data[:-4], rng))
    stop = 8 + int.from_bytes(data[4:8], "little")
    body = data[-(-stop // 64) * 64 : -4]
    if which == 2:
        return framed(data[8:stop], mutate(body, rng)[: len(body)].ljust(len(body), b"\0"))
    meta, entries = msgspec.msgpack.decode(data[8:stop])
    odd: list[Any] = [0, 1, 2, 5, 2**31, 2**62, 2**64 - 1, -1, None, "train", "pull", "x", 1.5, float("nan"), []]
    if entries and rng.random() < 0.5:
        entry = rng.choice(entries)
        entry[rng.choice([0, 0, 1, 2])] = rng.choice([*odd, "stats", "float32", "int64", [81], [1], [12], [2, 3], [0]])
    else:
        meta[rng.choice(list(meta))] = rng.choice([*odd, "user", "trained", "train"])
    return framed(msgspec.msgpack.encode([meta, entries]), body)


def framed(header: bytes, body: bytes) -> bytes:
    head = message.MAGIC + struct.pack("<I", len(header)) + header
    return sealed(head + bytes(-len(head) % 64) + body)


def brief(side: ClientSide, case: bytes) -> Served | None:
    """Serve a request, unless it asks for a lot of work, which is valid but would take long."""
    try:
        meta, _ = message.unpack(case, (WorkRequest, EvaluationRequest))
    except StreamError:
        pass
    else:
        if max(meta.num_steps or 0, meta.num_epochs or 0) in range(10, MAX_AMOUNT + 1):
            return None
    return serve(side, CLIENT, case)


@pytest.mark.parametrize("num_cases", [2_000, pytest.param(20_000, marks=pytest.mark.full)])
def test_any_bytes_are_answered_or_refused(num_cases: int) -> None:
    """For algorithms with private state, with encoded downloads, and with clusters."""
    sides: dict[bytes, ClientSide] = {}
    for name in SAMPLE:
        made = federate(name)
        sides |= dict.fromkeys([work_request(made), *(question(made, m) for m in MEASURES)], made.clients)
    by_case: dict[bytes, ClientSide] = {}

    def make(rng: random.Random) -> bytes:
        original = rng.choice(list(sides))
        case = forge([original], rng)
        by_case[case] = sides[original]
        return case

    found = fuzz(make, lambda case: brief(by_case[case], case), StreamError, num_cases, lambda case: 1 << 20)
    checksums = sum(count for text, count in found.items() if "checksum" in text)
    assert 0 < checksums < num_cases / 4  # most cases pass the checksum
    assert found[""] > num_cases / 20
    for part in ("works", "num_steps", "this algorithm has no such vector", "of shape", "the variables of a model"):
        assert any(part in text for text in found), part


def test_a_download_that_is_not_finite_reaches_only_the_answer() -> None:
    made = federate()
    served = serve(made.clients, CLIENT, work_request(made, lambda down: {n: v * np.nan for n, v in down.items()}))
    assert read(served)[1]["y"].isnan().all()
