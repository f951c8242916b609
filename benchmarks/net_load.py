"""A whole server under load, with TLS on loopback: `python -m benchmarks.net_load [SCENE]...`.

    payload   200 load clients and 5 real ones, 25 MB down and up: GB/s, and the server's memory
    idle      2,000 idle clients: share of one core
    large     three real clients with a model of 1 GB: peak memory of server and client
    churn     200 clients, many of which join and leave, for five minutes: slope of memory and descriptors
    deadline  48 clients, 12 of which are too slow: by how much exchanges exceed `net.deadline_s`

Memory is resident memory (RSS), which includes mapped files, such as libraries and the upload that is being read. The
processes are forked and share pages, so proportional memory (PSS) would change by tens of megabytes whenever another
process starts or ends.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from math import pi, sin
from typing import Any

import numpy as np

from benchmarks.measure import save
from benchmarks.net_stage import PATIENCE_S, Habits, LoadClient, Scene, Stage, staged
from benchmarks.process_use import memory, num_descriptors, peak_memory, processor_s
from fedge.net.transport import LinkError

GOALS = {"down_gb_s": 0.5, "peak_beyond_mb": 300, "idle_core_share": 0.05, "overrun_s": 1.0}
JOIN_TOGETHER = 25
"""Clients of one process that join at the same time, in scenes with thousands."""
SLOW_BYTES_S = 5e6 / 8
SWING_S = 120.0

SCENES = {
    "payload": Scene(200, 5, 25_000_000 // 4 // 6, apart=True, net={"lease_s": 120.0}),
    "idle": Scene(2000, 0, 1000, net={"min_clients": 5000, "wait_s": 600.0}),
    "large": Scene(0, 3, 1_000_000_000 // 4 // 6, rounds=2),
    "churn": Scene(
        200,
        5,
        100_000,
        rounds=100_000,
        net={"min_clients": 20, "lease_s": 5.0, "fraction": 0.7, "grace_s": 0.5},
        selection={"count": 40},
    ),
    "deadline": Scene(48, 0, 5_000_000 // 4 // 6, rounds=5, net={"deadline_s": 6.0, "fraction": 1.0}),
}


async def _all(number: int, clients: list[LoadClient]) -> None:
    await asyncio.gather(*(client.live() for client in clients))


def payload(**changes: Any) -> dict[str, Any]:
    """Return GB/s down and up of all load clients, and the server's memory.

    Down is timed from the first offer until the last load client has the model; up is timed from then until the server
    has accepted the last answer of a load client. Traffic of the real clients is not counted. `peak_mb` has peaks in
    addition to the idle server with its model: while clients join and fetch, while they upload, and from then to the
    end. `peak_beyond_mb` is the largest, without the float64 running mean of the last phase; temporary vectors of the
    reduction and the new state are included.
    """
    with staged(SCENES["payload"]._replace(**changes)) as stage:
        given, num_load = stage.given, stage.scene.num_load
        before, real = _rss_mb(stage.pid), stage.start_real()
        with peak_memory(stage.pid) as down:
            stage.start_load(_all)
            began = stage.wait(given.begun, 1)
            fetched = stage.wait(given.fetched, num_load)
        with peak_memory(stage.pid) as up:
            sent = stage.wait(given.sent, num_load)
        with peak_memory(stage.pid) as reduced:
            codes = [process.wait(PATIENCE_S) for process in real]
        total = num_load * stage.model_mb / 1000
        peaks = [each["rss"] / 1e6 - before for each in (down, up, reduced)]
        return {
            "model_mb": stage.model_mb,
            "load_clients": num_load,
            "real_clients_done": codes.count(0),
            "down_gb_s": total / (fetched - began),
            "up_gb_s": total / (sent - fetched),
            "before_mb": before,
            "peak_mb": dict(zip(("down", "up", "reduced"), peaks, strict=True)),
            "peak_beyond_mb": max(*peaks[:2], peaks[2] - 2 * stage.model_mb),
        }


def idle(seconds: float = 60.0, **changes: Any) -> dict[str, Any]:
    """Return the server's share of one core while all clients are idle, and the cost of their joining.

    Clients join a few at a time and retry, as real ones do: 2,000 simultaneous handshakes keep two cores busy for
    longer than a client waits for an answer.
    """

    async def work(number: int, clients: list[LoadClient]) -> None:
        turn = asyncio.Semaphore(JOIN_TOGETHER)

        async def stay(client: LoadClient) -> None:
            while True:
                with suppress(LinkError):
                    await client.live(turn=turn)
                await asyncio.sleep(random.uniform(0.5, 2.0))

        await asyncio.gather(*map(stay, clients))

    with staged(SCENES["idle"]._replace(**changes)) as stage:
        num_load, given = stage.scene.num_load, stage.given
        memory_before, processor_before = _rss_mb(stage.pid), processor_s(stage.pid)
        stage.start_load(work)
        began = time.perf_counter()
        join_s = stage.wait(given.joined, num_load) - began
        before = processor_s(stage.pid)
        time.sleep(seconds)
        share = (processor_s(stage.pid) - before) / seconds
        return {
            "clients": num_load,
            "joined_s": join_s,
            "server_cpu_ms_per_join": (before - processor_before) / num_load * 1000,
            "joins_again": given.joined.value - num_load,
            "idle_core_share": share,
            "kb_per_client": (_rss_mb(stage.pid) - memory_before) / num_load * 1000,
        }


def large(**changes: Any) -> dict[str, Any]:
    """Return the peak memory of the server and of a client, and the seconds of two rounds."""
    with staged(SCENES["large"]._replace(**changes)) as stage:
        before, began, real = _rss_mb(stage.pid), time.perf_counter(), stage.start_real()
        with peak_memory(stage.pid) as server, peak_memory(real[0].pid) as client:
            codes = [process.wait(PATIENCE_S) for process in real]
        return {
            "model_mb": stage.model_mb,
            "clients_done": codes.count(0),
            "seconds": time.perf_counter() - began,
            "server_before_mb": before,
            "server_peak_mb": server["rss"] / 1e6,
            "client_peak_mb": client["rss"] / 1e6,
        }


def churn(seconds: float = 300.0, **changes: Any) -> dict[str, Any]:
    """Return the slope of the server's memory and descriptors while clients join and leave, per minute.

    Clients abandon one task in ten. Their number oscillates with a period of two minutes, and is four times as high at
    the top as at the bottom. The first period is not counted, and the slope excludes the oscillation.
    """
    with staged(SCENES["churn"]._replace(**changes)) as stage:
        began = time.monotonic()

        async def come_and_go(client: LoadClient, place: float) -> None:
            while True:
                swing = 0.625 + 0.375 * sin(2 * pi * (time.monotonic() - began) / SWING_S)  # 0.25 to 1
                if place <= swing:
                    with suppress(LinkError, asyncio.TimeoutError):
                        await asyncio.wait_for(client.live(Habits(dropout=0.1)), random.uniform(5, 40))
                await asyncio.sleep(random.uniform(0.1, 2.0))

        async def work(number: int, clients: list[LoadClient]) -> None:
            await asyncio.gather(*(come_and_go(client, i / len(clients)) for i, client in enumerate(clients)))

        stage.start_real()
        stage.start_load(work)
        samples = []
        while (now := time.monotonic() - began) < seconds:
            samples.append((now / 60, _connected(stage), _rss_mb(stage.pid), num_descriptors(stage.pid)))
            time.sleep(1.0)
        counted = np.array([sample for sample in samples if sample[0] * 60 >= min(SWING_S, seconds / 5)])
        rounds = (stage.folder / "runs/load/rounds.jsonl").read_text().splitlines()
        minutes, _, mb, descriptors = counted.T
        return {
            "seconds": seconds,
            "rounds": len(rounds),
            "void_rounds": sum('"void":true' in line for line in rounds),
            "answers": stage.given.sent.value,
            "joins": stage.given.joined.value,
            "minute, clients, MB, descriptors": [
                [round(float(value), 1) for value in sample] for sample in samples[:: max(1, len(samples) // 10)]
            ],
            "mb_per_minute": slope_beside_swing(minutes, mb),
            "descriptors_per_minute": slope_beside_swing(minutes, descriptors),
        }


def slope_beside_swing(minutes: np.ndarray, values: np.ndarray) -> float:
    """Return the linear trend of oscillating values; a plain line fit would be biased even over whole periods."""
    angle = 2 * pi * minutes * 60 / SWING_S
    columns = np.stack([np.ones_like(minutes), minutes, np.sin(angle), np.cos(angle)], 1)
    return float(np.linalg.lstsq(columns, values, rcond=None)[0][1])


def deadline(**changes: Any) -> dict[str, Any]:
    """Return the wall-clock seconds by which exchanges exceed `net.deadline_s`.

    Of every eight clients one fetches and never answers, and one uploads at 5 Mbit/s, which exceeds the deadline. The
    others answer immediately.
    """
    slow = {0: Habits(answers=False), 1: Habits(bytes_s=SLOW_BYTES_S)}

    async def work(number: int, clients: list[LoadClient]) -> None:
        await asyncio.gather(*(client.live(slow.get(i % 8, Habits())) for i, client in enumerate(clients)))

    with staged(SCENES["deadline"]._replace(**changes)) as stage:
        limit_s, num_rounds = stage.config.net.deadline_s, stage.scene.rounds
        stage.start_load(work)
        seconds = [stage.seconds_open.get(timeout=PATIENCE_S) for _ in range(num_rounds)]
        return {
            "clients": stage.scene.num_load,
            "deadline_s": limit_s,
            "seconds": seconds,
            "answers": stage.given.sent.value,
            "overrun_s": max(seconds) - limit_s,
        }


def _rss_mb(pid: int) -> float:
    return memory(pid)["rss"] / 1e6


def _connected(stage: Stage) -> int:
    """Return the number of connected clients, as reported by the server."""
    return sum(stage.status()["clients"].values())


RUNS: dict[str, Callable[..., dict[str, Any]]] = {
    "payload": payload,
    "idle": idle,
    "large": large,
    "churn": churn,
    "deadline": deadline,
}


def run(names: list[str]) -> dict[str, Any]:
    """Measure the named scenes, or all."""
    return {"goals": GOALS} | {name: RUNS[name]() for name in names or RUNS}


if __name__ == "__main__":
    found = run(sys.argv[1:])
    print(json.dumps(found, indent=2))
    print(f"written to {save({f'net_load {name}': value for name, value in found.items()})}")
