"""A client's agent with scripted sessions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from msgspec import Raw

from fedge.client.state_directory import StateDirectory
from fedge.core.message import NoMeta, Outgoing
from fedge.net import agent as agents
from fedge.net.agent import Agent, Built
from fedge.net.offered_work import OfferedTask
from fedge.net.payloads import in_chunks
from fedge.net.policy import read_policies
from fedge.net.protocol import (
    Beat,
    Done,
    Facts,
    FromClient,
    FromServer,
    Goodbye,
    Joined,
    Offer,
    Scaled,
    Welcome,
    encode,
    read_client,
)
from fedge.net.transport import DeniedError
from net.contract_client import Quiet
from net.echo import in_loop

INITIAL = Outgoing(NoMeta(), {})
SCALED = Scaled([1.0], [2.0])


class Script:
    """A session in which the server sends fixed messages, ignores the answers, and disconnects."""

    def __init__(self, *said: FromServer) -> None:
        self._said = list(said)
        self.heard: list[FromClient] = []

    async def receive(self) -> bytes | None:
        return encode(self._said.pop(0)) if self._said else None

    async def send(self, data: bytes) -> None:
        self.heard.append(read_client(data))

    async def close(self) -> None: ...

    async def fetch(self, token: str) -> AsyncIterator[bytes]:
        for chunk in in_chunks(INITIAL):
            yield chunk


class CountingBuilder:
    def __init__(self) -> None:
        self.plans: list[bytes] = []
        self.num_scaled = 0

    def __call__(self, plan: Raw, *given: object) -> Built:
        self.plans.append(bytes(plan))
        side: Any = SimpleNamespace(
            algorithm=SimpleNamespace(keep=lambda variables: {}), network=SimpleNamespace(variables={})
        )
        return Built(side, {}, Facts((2,), 3, "classes", 5))

    def scale(self, built: Built, scaled: Scaled) -> Built:
        self.num_scaled += 1
        return built


def make(state: StateDirectory, builder: Any, *sessions: Script) -> Agent:
    left = list(sessions)

    async def connect() -> Any:
        if not left:
            raise DeniedError("the script is over")
        return left.pop(0)

    return Agent("c0", None, connect, state, builder, read_policies(()), Quiet(), {})  # type: ignore[arg-type]


def test_only_a_changed_plan_is_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may be restarted with other options of the algorithm; its clients continue."""
    monkeypatch.setattr(agents, "FIRST_PAUSE_S", 0.0)
    one, other = (Welcome("run", 0, Raw(plan), INITIAL.num_bytes, 30.0) for plan in (b"\xa1a", b"\xa1b"))
    builder = CountingBuilder()
    with StateDirectory(tmp_path / "state", "c0") as state, pytest.raises(DeniedError, match="the script is over"):
        make(state, builder, *(Script(welcome, Joined(), SCALED) for welcome in (one, one, other))).run()
    assert builder.plans == [b"\xa1a", b"\xa1b"]
    assert builder.num_scaled == 2


@in_loop
async def test_first_heartbeat_of_work_does_not_wait_for_the_idle_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise work that begins just after a heartbeat could be silent for a whole lease."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 1:  # accepted just after the sleep began
            task = OfferedTask(Offer("w1", "work", 1, 0, 1, 0, 0, 60.0, None, None))
            task.accepted = True
            agent._work.task = task
        if script.heard:
            raise asyncio.CancelledError

    script = Script()
    with StateDirectory(tmp_path / "state", "c0") as state:
        agent = make(state, CountingBuilder())
        agent._beat_s = 30.0
        monkeypatch.setattr(agents.asyncio, "sleep", sleep)
        with pytest.raises(asyncio.CancelledError):
            await agent._beat(script)  # type: ignore[arg-type]
    assert script.heard == [Beat("w1", "idle")]
    assert slept[0] == 10.0


def test_server_receives_the_reason_of_a_failed_build(tmp_path: Path) -> None:
    class Failing(CountingBuilder):
        def __call__(self, plan: Raw, *given: object) -> Built:
            raise ValueError("bad\x1b columns" + 2000 * "x")

    script = Script(Welcome("run", 0, Raw(b"\xa1a"), INITIAL.num_bytes, 30.0))
    with StateDirectory(tmp_path / "state", "c0") as state, pytest.raises(ValueError, match="bad"):
        make(state, Failing(), script).run()
    assert isinstance(script.heard[-1], Goodbye)
    assert script.heard[-1].reason.startswith("ValueError: bad\\u001b columns")
    assert len(script.heard[-1].reason) == 1000


def test_model_is_written_outside_the_event_loop(tmp_path: Path) -> None:
    """A slow disk would delay heartbeats, and the server would drop the client."""
    threads: list[threading.Thread] = []

    class Watching(CountingBuilder):
        def name_weights(self, built: Built, variables: object) -> dict[str, torch.Tensor]:
            threads.append(threading.current_thread())
            return {"w": torch.ones(1)}

    welcome = Welcome("run", 0, Raw(b"\xa1a"), INITIAL.num_bytes, 30.0)
    script = Script(welcome, Joined(), Done(None, INITIAL.num_bytes))
    with StateDirectory(tmp_path / "state", "c0") as state:
        make(state, Watching(), script).run()
    assert len(threads) == 1
    assert threads[0].name != "network"
    assert threads[0] is not threading.main_thread()
    assert isinstance(script.heard[-1], Goodbye)
