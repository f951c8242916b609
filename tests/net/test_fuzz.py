"""Mutated messages, streams and connections against a live server: it answers or drops each, and its run goes on."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from e2e.command import Fedge, wait_until
from e2e.experiments import Settings, changed
from fedge.net.protocol import Offer
from net.deployment import Deployment, assert_same, server_state
from net.fake_client import build
from net.fuzzing import Campaign, Honest, attack
from net.scenes import FEDAVG

HONEST, FUZZERS, SPARE = (0, 1), (2, 3, 4, 5), 6
NUM_STRANGERS = 4
WATCHDOG_S = {500: 110.0, 10_000: 1500.0}
MAX_GROWTH_BYTES = 100 << 20
DEPTHS = ("cannot be read", "in the name of", "it claims", "its upload has", "expected float32", "not finite", "norm")
"""Words of the reasons for which uploads are rejected, one of each check that they pass through."""


def settings(rounds: int) -> Settings:
    return changed(
        FEDAVG,
        rounds=rounds,
        data={"clients": SPARE + 1},
        reduce={"max_norm": 1e6},
        evaluate={"every": 50},
        net={"min_clients": len(HONEST), "fraction": 1.0},
    )


async def undisturbed(port: int, built: object) -> None:
    async def at_once(offer: Offer) -> None:
        pass

    await asyncio.gather(*(Honest(port, number, built).take_part(at_once) for number in HONEST))


class Watch:
    """What the server's process holds, before the mutants and after them."""

    def __init__(self, pid: int) -> None:
        self._process = Path(f"/proc/{pid}")
        self.growth_bytes, self._before, self._num_files = 0, 0, 0

    def begin(self) -> None:
        self._before, self._num_files = self._memory_bytes(), self._count_files()

    def end(self) -> None:
        """Wait until all that was opened meanwhile is closed."""
        wait_until(lambda: self._count_files() <= self._num_files)
        self.growth_bytes = self._memory_bytes() - self._before

    def _memory_bytes(self) -> int:
        found = re.search(r"^Pss:\s+(\d+) kB", (self._process / "smaps_rollup").read_text(), re.MULTILINE)
        assert found
        return int(found[1]) << 10

    def _count_files(self) -> int:
        return len(list((self._process / "fd").iterdir()))


async def disturbed(campaign: Campaign, rounds: int, watch: Watch) -> None:
    """The first honest client starts the mutants in the first round, and ends the last round after all of them."""

    async def pace(offer: Offer) -> None:
        if offer.round == 1:
            await asyncio.to_thread(watch.begin)
            campaign.started.set()
        if offer.round == rounds:
            await campaign.over.wait()
            await asyncio.to_thread(watch.end)

    async def at_once(offer: Offer) -> None:
        pass

    async def honest() -> None:
        clients = [Honest(campaign.port, number, campaign.built) for number in HONEST]
        await asyncio.gather(*(client.take_part(act) for client, act in zip(clients, (pace, at_once), strict=True)))

    await attack(campaign, FUZZERS, NUM_STRANGERS, honest(), SPARE)


@pytest.mark.parametrize(
    ("num_inputs", "rounds"), [(500, 8), pytest.param(10_000, 200, marks=pytest.mark.full)], ids=("500", "10000")
)
def test_mutants_against_a_live_server(fedge: Fedge, tmp_path: Path, num_inputs: int, rounds: int) -> None:
    with Deployment(fedge, tmp_path / "undisturbed", settings(rounds)) as expected:
        expected.start_server()
        built = build(expected.file)
        asyncio.run(asyncio.wait_for(undisturbed(expected.port, built), WATCHDOG_S[num_inputs]))
        expected.finish()
    # every round waits for all fuzzers, which come back whenever they are refused
    together = changed(settings(rounds), net={"min_clients": len(HONEST) + len(FUZZERS)})
    with Deployment(fedge, tmp_path / "disturbed", together) as deployment:
        server = deployment.start_server()
        campaign, watch = Campaign(deployment.port, built, num_inputs, seed=16), Watch(server.pid)
        asyncio.run(asyncio.wait_for(disturbed(campaign, rounds, watch), WATCHDOG_S[num_inputs]))
        ended = deployment.finish()
    print(campaign.sent, Counter(f"{kind}: {outcome.kind}" for kind, outcome in campaign.outcomes), watch.growth_bytes)
    assert campaign.sent.total() >= num_inputs
    assert "Traceback" not in ended.err, ended.err
    assert watch.growth_bytes < MAX_GROWTH_BYTES
    assert [record["reported"] for record in deployment.records()] == [len(HONEST)] * rounds
    assert_same(server_state(deployment.run), server_state(expected.run))
    assert not list((deployment.run / "spool").iterdir())
    assert_explained(campaign, deployment)
    rejected = " ".join(campaign.reasons("rejected"))
    assert [words for words in DEPTHS if words not in rejected] == []


def assert_explained(campaign: Campaign, deployment: Deployment) -> None:
    """Every input that the server refused has an answer with a reason, and an event with the same one."""
    pairs = {"refuse": ("refused", "denied"), "reject": ("rejected",), "ignore": ("late", "again")}
    for event, kinds in pairs.items():
        told, logged = campaign.reasons(*kinds), [each.get("reason", "") for each in deployment.events(event)]
        assert told
        assert all(told)
        assert all(logged)
        assert not comparable(told) - comparable(logged), event
    num_ended = len(campaign.reasons("refused", "cut"))
    assert num_ended <= len(deployment.events("refuse", "drop"))


def comparable(reasons: Iterable[str]) -> Counter[str]:
    """Return reasons by their first words: unprintable characters are logged in another form."""
    return Counter(re.sub(r"[^A-Za-z ]", "", reason)[:30] for reason in reasons)
