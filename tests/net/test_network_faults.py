"""Cut, idle or slow links between real processes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.command import Fedge, wait_until
from e2e.experiments import changed
from net import process_hooks
from net.deployment import Deployment, hook
from net.proxy import Proxy
from net.scenes import FEDAVG, SCAFFOLD

VICTIM = 1
SLOW_LINK = 5e6 / 8
"""5 Mbit/s in bytes/s."""


@contextmanager
def proxied(port: int, **options: Any) -> Iterator[Proxy]:
    """Run a proxy for a port in a thread, so that a test can wait for processes meanwhile."""
    loop, proxy = asyncio.new_event_loop(), Proxy(port, **options)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def call(work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result()

    call(proxy.__aenter__())
    try:
        yield _FromOutside(proxy, loop)  # type: ignore[misc]
    finally:
        call(proxy.__aexit__())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class _FromOutside:
    """Calls a proxy's methods in its own event loop."""

    def __init__(self, proxy: Proxy, loop: asyncio.AbstractEventLoop) -> None:
        self._proxy, self._loop = proxy, loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._proxy, name)
        if not callable(found):
            return found
        return lambda: self._loop.call_soon_threadsafe(found)

    def refuse(self, refusing: bool) -> None:
        self._proxy.refusing = refusing


@contextmanager
def one_behind_a_proxy(
    fedge: Fedge, folder: Path, settings: dict[str, Any], held: int = 2, **options: Any
) -> Iterator[tuple[Deployment, Any, Path]]:
    """Three clients, one behind a proxy, which waits in its n-th work until a file exists."""
    go_on = folder / "go on"
    with Deployment(fedge, folder, settings) as deployment:
        deployment.start_server()
        with proxied(deployment.port, **options) as proxy:
            waiting = hook(process_hooks.client_works_after, file=str(go_on), number=held)
            deployment.start_client(VICTIM, port=proxy.port, hooks=(waiting,))
            deployment.wait_for_event("join", client=VICTIM)
            deployment.start_clients(0, 2)
            yield deployment, proxy, go_on


def in_round(deployment: Deployment, number: int) -> None:
    """Wait until the victim works in a round."""
    deployment.wait_for_event("fetch", client=VICTIM, round=number)


@pytest.mark.full
def test_cut_shorter_than_the_lease_loses_no_work(fedge: Fedge, tmp_path: Path) -> None:
    settings = changed(SCAFFOLD, selection={"fraction": 1.0}, evaluate={"every": 3})
    with one_behind_a_proxy(fedge, tmp_path, settings) as (deployment, proxy, go_on):
        in_round(deployment, 2)
        for number in (2, 3):
            proxy.cut()
            deployment.wait_for_joins(VICTIM, number)
        go_on.touch()
        deployment.finish()
        deployment.assert_equals_simulation()
        tokens = [event for event in deployment.events("fetch") if event["client"] == VICTIM and event["round"] == 2]
        assert len(tokens) <= 2  # it did not start over after both cuts; the first may have happened during a fetch


@pytest.mark.full
def test_a_cut_longer_than_the_lease_drops_the_client(fedge: Fedge, tmp_path: Path) -> None:
    settings = changed(SCAFFOLD, rounds=4, selection={"fraction": 1.0}, evaluate={"every": 4}, net={"lease_s": 1.0})
    with one_behind_a_proxy(fedge, tmp_path, settings) as (deployment, proxy, go_on):
        in_round(deployment, 2)
        proxy.refuse(True)
        proxy.cut()
        deployment.wait_for_event("drop", client=VICTIM, round=2, reason="the lease of 1 s has expired")
        deployment.wait_for_rounds(2)
        proxy.refuse(False)
        go_on.touch()
        deployment.finish()
        reported = [record["reported"] for record in deployment.records()]
        assert reported == [3, 2, 3, 3]


@pytest.mark.full
def test_cut_idle_connection_keeps_its_task(fedge: Fedge, tmp_path: Path) -> None:
    """As a NAT drops idle connections; here, sooner than the client sends heartbeats."""
    with one_behind_a_proxy(fedge, tmp_path, FEDAVG, idle_s=1.0) as (deployment, proxy, go_on):
        in_round(deployment, 2)
        wait_until(lambda: proxy.num_cut >= 2)
        deployment.wait_for_joins(VICTIM, 3)
        go_on.touch()
        deployment.finish()
        deployment.assert_equals_simulation()


@pytest.mark.full
def test_silently_dropped_connection_is_replaced(fedge: Fedge, tmp_path: Path) -> None:
    """Without any notification, no more bytes arrive: the client notices before the lease expires.

    The proxy still acknowledges what the client sends, so only gRPC's own ping notices, after 80 s.
    """
    settings = changed(FEDAVG, net={"lease_s": 115.0, "grace_s": 115.0})
    with one_behind_a_proxy(fedge, tmp_path, settings) as (deployment, proxy, go_on):
        in_round(deployment, 2)
        proxy.forget()
        deployment.wait_for_joins(VICTIM, 2)
        go_on.touch()
        deployment.finish()
        deployment.assert_equals_simulation()


@pytest.mark.full
def test_a_straggler_does_not_delay_the_deadline(fedge: Fedge, tmp_path: Path) -> None:
    """It sends heartbeats but does not finish; the exchange closes at the deadline, by the machine's clock."""
    settings = changed(FEDAVG, net={"deadline_s": 3.0, "grace_s": 100.0, "lease_s": 2.0})
    with one_behind_a_proxy(fedge, tmp_path, settings) as (deployment, _, go_on):
        deployment.wait_for_event("late", client=VICTIM, round=2, reason="the deadline of 3 s has passed")
        go_on.touch()
        deployment.finish()
        assert [record["reported"] for record in deployment.records()][1] == 2
        assert not [event for event in deployment.events("drop") if "lease" in event.get("reason", "")]


@pytest.mark.full
def test_slow_links_do_not_stall_each_other(fedge: Fedge, tmp_path: Path) -> None:
    """Eight clients at 5 Mbit/s each: all are granted at once, since grants count bytes in flight, not clients."""
    settings = changed(
        FEDAVG, rounds=2, data={"clients": 8}, model={"name": "mnist_2nn"}, net={"min_clients": 8, "lease_s": 60.0}
    )
    with Deployment(fedge, tmp_path, settings) as deployment:
        deployment.start_server()
        with proxied(deployment.port, rate=SLOW_LINK) as proxy:
            for number in range(8):
                deployment.start_client(number, port=proxy.port)
            deployment.finish()
        assert [record["reported"] for record in deployment.records()] == [8, 8]
        for number in (1, 2):
            order = [event["event"] for event in deployment.events("upload", "receive") if event["round"] == number]
            assert order == ["upload"] * 8 + ["receive"] * 8
        deployment.assert_equals_simulation()
