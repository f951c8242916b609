"""Which clients a round waits for: the engine alone, with clients that connect by script."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fedge.core.net_options import NetOptions
from fedge.edge.selection import Uniform
from fedge.net.engine import NetEngine
from fedge.net.planned_round import PlannedRound, RoundPlan
from fedge.net.task import Observer, Transition, unobserved
from fedge.net.world import MeasuredWorld


class ScriptedHub:
    """Clients connect one after another while the engine waits; `heard` is what it displayed meanwhile."""

    def __init__(self, *arrivals: int) -> None:
        self._arrivals = list(arrivals)
        self._there: list[int] = []
        self.engine: NetEngine
        self.heard: list[str] = []
        self.seconds_left: float | None = None  # there is no exchange
        self.left: float | None = None

    def connected(self) -> list[int]:
        return sorted(self._there)

    async def wait_until(self, enough: Callable[[Sequence[int]], bool], timeout_s: float) -> bool:
        self.heard.append(self.engine.waiting_for)
        self.left = self.engine.seconds_left
        while not enough(self.connected()) and self._arrivals:
            self._there.append(self._arrivals.pop(0))
        return enough(self.connected())


class ThisThread:
    def call(self, work: Any) -> Any:
        return asyncio.run(work)


def restarted(
    folder: Path, hub: ScriptedHub, before: Sequence[int], observer: Observer = unobserved
) -> tuple[NetEngine, MeasuredWorld]:
    """Return an engine after a restart; these clients were connected at the last commit."""
    old = MeasuredWorld(Uniform(count=1), 7, 1.0, lambda: before, lambda phases: phases.up)
    old.begin(4, None, True)
    world = MeasuredWorld(Uniform(count=1), 7, 1.0, hub.connected, lambda phases: phases.up)
    world.restore(old.state())
    given: Any = (None, hub, ThisThread(), world, NetOptions(min_clients=2, wait_s=60.0), RoundPlan(folder), None, None)
    times = iter(count(100))  # every reading of the clock takes a second
    hub.engine = NetEngine(*given, observer, clock=lambda: float(next(times)))
    return hub.engine, world


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "checkpoint").mkdir()
    return tmp_path


def test_restarted_server_waits_for_previously_connected_clients(folder: Path) -> None:
    hub = ScriptedHub(3, 1, 0, 2)
    engine, _ = restarted(folder, hub, [0, 1])
    engine.begin(2, lambda: 4)
    assert hub.connected() == [0, 1, 3]
    assert "net.min_clients = 2" in hub.heard[0]
    assert "connected before the restart: 0, 1" in hub.heard[0]
    engine.begin(3, lambda: 4)
    assert hub.connected() == [0, 1, 3]  # it waits for nobody twice


def test_remaining_wait_is_shown(folder: Path) -> None:
    hub = ScriptedHub(0, 1)
    engine, _ = restarted(folder, hub, [])
    engine.begin(2, lambda: 4)
    assert (hub.heard, hub.left) == (["waiting for net.min_clients = 2 clients"], 59.0)
    assert (engine.waiting_for, engine.seconds_left) == ("", None)


def test_clients_that_do_not_return_delay_only_one_round(folder: Path) -> None:
    hub = ScriptedHub(2, 3)
    engine, world = restarted(folder, hub, [0, 1])
    assert engine.begin(2, lambda: 4) == 4
    (cohort,) = world.gather(2)
    assert set(cohort.asked) <= {2, 3}


class LeavingHub(ScriptedHub):
    """The last client to connect leaves as soon as there are enough."""

    async def wait_until(self, enough: Callable[[Sequence[int]], bool], timeout_s: float) -> bool:
        found = await super().wait_until(enough, timeout_s)
        self._there.pop()
        return found


def test_round_is_void_if_too_few_clients_connect_in_time(folder: Path) -> None:
    told: list[Transition] = []
    engine, world = restarted(folder, ScriptedHub(2), [], told.append)
    engine.begin(2, lambda: 4)
    assert [(each.before, each.after) for each in told] == [("gathering", "void")]
    assert told[0].reason == "1 of 2 clients were connected after 60 s"
    assert world.gather(2) == []


def test_client_that_leaves_at_once_does_not_void_the_round(folder: Path) -> None:
    engine, world = restarted(folder, LeavingHub(0, 1), [])
    engine.begin(2, lambda: 4)
    (cohort,) = world.gather(2)
    assert cohort.asked == (0,)


def test_interrupted_round_waits_for_all_previously_connected_clients(folder: Path) -> None:
    """Clients outside the cohort may be asked to evaluate, and in the next round."""
    RoundPlan(folder).store(PlannedRound(2, 1, 4, (3,), (0, 3)))
    hub = ScriptedHub(3, 1, 0, 2)
    engine, world = restarted(folder, hub, [])
    engine.begin(2, lambda: 4)
    assert hub.connected() == [0, 1, 3]
    assert [cohort.asked for cohort in world.gather(2)] == [(3,)]
    assert engine.attempt == 2
