"""Broken or hostile clients: each is refused or rejected alone, with a reason, and the rounds continue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import torch

from e2e.command import Fedge
from e2e.experiments import changed
from fedge.core import message
from fedge.core.layout import Tree
from fedge.net.protocol import Accept, Beat, Done, Finished, Hello, Offer, Ready, Withdraw
from fedge.net.transport import LinkError
from net.deployment import Deployment
from net.echo import in_loop
from net.fake_client import Built, FakeClient, Upload, build
from net.scenes import FEDAVG

LIMITED = changed(FEDAVG, reduce={"max_norm": 1e6})
GIGABYTES = 2 << 30


def with_meta(**changes: Any) -> Upload:
    return lambda meta, tree: message.pack(msgspec.structs.replace(meta, **changes), tree)


def with_tree(change: Callable[[Tree], Tree]) -> Upload:
    return lambda meta, tree: message.pack(meta, {**tree, **change(tree)})


def filled(value: float) -> Upload:
    return with_tree(lambda tree: {"y": torch.full_like(tree["y"], value)})


def without(name: str) -> Upload:
    return lambda meta, tree: message.pack(meta, {key: value for key, value in tree.items() if key != name})


SPOILT: dict[str, tuple[Upload, str]] = {
    "NaN": (filled(float("nan")), "the upload 'y' is not finite"),
    "infinite": (filled(float("inf")), "the upload 'y' is not finite"),
    "shape": (with_tree(lambda tree: {"y": torch.ones(1)}), "the upload 'y' is float32[1], expected float32[7850]"),
    "dtype": (with_tree(lambda tree: {"y": tree["y"].double()}), "the upload 'y' is float64[7850]"),
    "missing name": (without("y"), "its upload has 'stats', expected 'stats', 'y'"),
    "extra name": (with_tree(lambda tree: {"z": torch.ones(1)}), "its upload has 'stats', 'y', 'z'"),
    "huge norm": (filled(1e9), "expected at most reduce.max_norm = 1e+06"),
    "huge weight": (with_meta(samples=1 << 40), "the number it registered"),
    "huge effort": (with_meta(steps=1 << 62), "it claims 4611686018427387904 steps, expected at most 2"),
    "other client": (with_meta(client=1), "it claims to be client 1"),
    "NaN loss": (with_meta(loss=float("nan")), "is not finite"),
    "truncated": (lambda meta, tree: message.pack(meta, tree)[:-9], "cannot be read"),
    "flipped bit": (lambda meta, tree: _flip(message.pack(meta, tree)), "cannot be read"),
    "garbage": (lambda meta, tree: bytes(range(256)) * 10, "cannot be read"),
    "nothing": (lambda meta, tree: b"", "cannot be read"),
}
"""Uploads, and the reason why each is rejected."""


def _flip(data: bytes) -> bytes:
    return data[:-100] + bytes([data[-100] ^ 1]) + data[-99:]


async def announce_gigabytes(client: FakeClient, offer: Offer) -> str:
    await client.work(offer)
    await client.say(Finished(offer.task, GIGABYTES))
    reason = "expected an answer of at most"
    told = await client.expect(Withdraw)
    assert told.task == offer.task
    assert reason in told.reason
    return reason


async def send_more_than_announced(client: FakeClient, offer: Offer) -> str:
    data = message.pack(*await client.work(offer))
    settled = await client.upload(offer, data + bytes(5 << 20), announced=len(data))
    assert settled.verdict == "rejected"
    return f"expected an answer of {len(data)} bytes, as announced"


async def send_less_than_announced(client: FakeClient, offer: Offer) -> str:
    data = message.pack(*await client.work(offer))
    settled = await client.upload(offer, data[:-1], announced=len(data))
    assert settled.verdict == "rejected"
    return "its answer is truncated"


MISBEHAVED = (announce_gigabytes, send_more_than_announced, send_less_than_announced)


async def upload_twice(client: FakeClient, offer: Offer) -> None:
    """Only the first counts."""
    data = message.pack(*await client.work(offer))
    assert (await client.upload(offer, data)).verdict == "received"
    assert (await client.send(offer.task, data)).verdict == "late"
    await client.say(Finished(offer.task, len(data)))


async def upload_under_a_stale_token(client: FakeClient, offer: Offer) -> None:
    data = message.pack(*await client.work(offer))
    stale = "w1-0-1-2-0123456789abcdef"
    await client.say(Finished(stale, len(data)), Accept(stale), Beat(stale, "working"))
    num_withdrawn = 0
    while num_withdrawn < 3:  # the withdrawal of an earlier task may come first
        num_withdrawn += (await client.expect(Withdraw)).task == stale
    assert (await client.send(stale, data)).verdict == "late"
    assert (await client.upload(offer, data)).verdict == "received"


async def upload_before_the_grant(client: FakeClient, offer: Offer) -> None:
    data = message.pack(*await client.work(offer))
    assert (await client.send(offer.task, data)).verdict == "again"
    assert (await client.upload(offer, data)).verdict == "received"


HARMLESS = (upload_twice, upload_under_a_stale_token, upload_before_the_grant)


async def behave(client: FakeClient) -> None:
    """Take part until the run is complete."""
    async with client:
        await client.join()
        while not isinstance(found := await client.hear(), Done):
            if isinstance(found, Offer):
                assert (await client.answer(found)).verdict == "received"
        await client.leave()


@in_loop
async def spoil(port: int, built: Built, reasons: list[str]) -> None:
    """Two good clients, and one that misbehaves differently in each round."""
    good = [asyncio.create_task(behave(FakeClient(port, number, built))) for number in (0, 1)]
    async with FakeClient(port, 2, built) as bad:
        await bad.join()
        for upload, reason in SPOILT.values():
            settled = await bad.answer(await bad.expect(Offer), upload)
            assert settled.verdict == "rejected"
            assert reason in settled.reason
            reasons.append(reason)
        for misbehave in MISBEHAVED:
            reason = await misbehave(bad, await bad.expect(Offer))
            reasons.append(reason)
        for act in HARMLESS:
            await act(bad, await bad.expect(Offer))
        await bad.expect(Done)
        await bad.leave()
    await asyncio.gather(*good)


def test_bad_uploads_are_rejected_alone(fedge: Fedge, tmp_path: Path) -> None:
    num_bad = len(SPOILT) + len(MISBEHAVED)
    settings = changed(LIMITED, rounds=num_bad + len(HARMLESS))
    with Deployment(fedge, tmp_path, settings) as deployment:
        deployment.start_server()
        reasons: list[str] = []
        spoil(deployment.port, build(deployment.file), reasons)
        ended = deployment.finish()
        rejected = deployment.events("reject")
        assert [event["client"] for event in rejected] == [2] * num_bad
        assert [event["round"] for event in rejected] == list(range(1, num_bad + 1))
        for event, reason in zip(rejected, reasons, strict=True):
            assert reason in event["reason"]
        records = deployment.records()
        assert [(record["reported"], record.get("rejected", 0)) for record in records] == [(2, 1)] * num_bad + [
            (3, 0)
        ] * len(HARMLESS)
        assert ended.peak_kb < 1 << 20


Act = Callable[[FakeClient], Awaitable[str]]


async def speak_another_protocol(client: FakeClient) -> str:
    return (await client.refused(client.hello(protocol=99))).reason


async def skip_the_hello(client: FakeClient) -> str:
    return (await client.refused(client.ready())).reason


async def send_garbage(client: FakeClient) -> str:
    await client.stream.send(b"\x93\x01\x02\x03" * 10)
    return (await client.refused()).reason


async def name_the_number_of_another_client(client: FakeClient) -> str:
    return (await client.refused(Hello(1, "mallory", number=1))).reason


async def name_a_number_out_of_range(client: FakeClient) -> str:
    return (await client.refused(Hello(1, "mallory", number=3))).reason


async def build_another_model(client: FakeClient) -> str:
    digests = client.built.digests | {"slots of the algorithm": "0" * 64}
    return (await client.refused(client.hello(), Ready(digests, client.built.facts[2]))).reason


async def register_too_many_samples(client: FakeClient) -> str:
    facts = msgspec.structs.replace(client.built.facts[2], size=1 << 50)
    return (await client.refused(client.hello(), Ready(client.built.digests, facts))).reason


async def register_another_shape(client: FakeClient) -> str:
    facts = msgspec.structs.replace(client.built.facts[2], shape=(3, 32, 32))
    return (await client.refused(client.hello(), Ready(client.built.digests, facts))).reason


async def join_twice(client: FakeClient) -> str:
    await client.join()
    return (await client.refused(client.hello())).reason


TOO_MANY = "expected at most 20 messages per second"


async def flood(client: FakeClient) -> str:
    """The client may be disconnected before it can read the reason, which the log has."""
    await client.join()
    with suppress(LinkError):
        await client.say(*[Beat()] * 1000)
        return (await client.refused()).reason
    return TOO_MANY


REFUSED: dict[Act, str] = {
    speak_another_protocol: "expected protocol 1, got 99; install the server's version of fedge",
    skip_the_hello: "expected a hello as the first message",
    send_garbage: "control message: ",
    name_the_number_of_another_client: "names the number 1, which belongs to client 'c1'",
    name_a_number_out_of_range: "expected a number below data.clients = 3, got 3",
    build_another_model: "differs from the server's in the slots of the algorithm",
    register_too_many_samples: "expected size up to net.max_samples = 1000000",
    register_another_shape: "expected data with shape (1, 28, 28), got (3, 32, 32)",
    join_twice: "the client has already joined",
    flood: TOO_MANY,
}


@in_loop
async def refuse(deployment: Deployment) -> None:
    """Two good clients take part; the rounds need a third, which joins after all refused ones."""
    port, built = deployment.port, build(deployment.file)
    good = [asyncio.create_task(behave(FakeClient(port, number, built))) for number in (0, 1)]
    await asyncio.to_thread(deployment.wait_for_event, "join", client=1)
    for act, reason in REFUSED.items():
        async with FakeClient(port, 2, built) as bad:
            assert reason in await act(bad)
    await asyncio.gather(*good, behave(FakeClient(port, 2, built)))


def test_bad_sessions_are_refused_alone(fedge: Fedge, tmp_path: Path) -> None:
    settings = changed(FEDAVG, net={"fraction": 0.6, "grace_s": 5.0})
    with Deployment(fedge, tmp_path, settings) as deployment:
        deployment.start_server()
        refuse(deployment)
        deployment.finish()
        logged = [event["reason"] for event in deployment.events("refuse")]
        for reason in REFUSED.values():
            assert any(reason in each for each in logged), reason
        assert [record["round"] for record in deployment.records()] == [1, 2, 3]
        assert all(record["reported"] >= 2 for record in deployment.records())
