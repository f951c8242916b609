"""Actions of hostile peers, each repeated until enough mutants of its kind were sent; and of honest ones."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from fedge.core import message
from fedge.net.protocol import Accept, Decline, Finished, Joined, Offer, Refused, Welcome
from net import mutants
from net.hostile_peers import LOST, Conversation, Ended, Fate, HostilePeer, Tally
from net.mutants import Known, Stream


async def say_hello(peer: HostilePeer, tally: Tally) -> None:
    """Send mutants as the first message, each in a new session."""
    while (index := tally.draw("hello")) is not None:
        rng, known = mutants.generator(tally.seed, "hello", index), peer.informed()
        chosen = peer.hello() if rng.random() < 0.6 else rng.choice(mutants.messages(known, rng))
        async with peer.conversation() as session:
            await session.send(mutants.control(chosen, known, rng))
            tally.note("hello", index, await _admitted(session, peer, tally, Welcome))


async def get_ready(peer: HostilePeer, tally: Tally) -> None:
    """Send mutants as the second message, each in a new session."""
    while (index := tally.draw("ready")) is not None:
        rng, known = mutants.generator(tally.seed, "ready", index), peer.informed()
        chosen = peer.ready() if rng.random() < 0.6 else rng.choice(mutants.messages(known, rng))
        async with peer.conversation() as session:
            await session.say(peer.hello())
            await session.hear(Welcome, Refused)
            await session.send(mutants.control(chosen, known, rng))
            tally.note("ready", index, await _admitted(session, peer, tally, Joined))


async def _admitted(session: Conversation, peer: HostilePeer, tally: Tally, kind: type[Any]) -> Fate:
    found = await session.hear(kind, Refused)
    if isinstance(found, Refused):
        return Fate("refused", found.reason)
    fate = found.fate if isinstance(found, Ended) else Fate("taken")
    tally.left[peer.known.name] += fate.outcome == "left"
    return fate


_MOST = 80  # mutants in one session: each is followed by a probe, and a burst of 200 messages is allowed


async def interrupt(peer: HostilePeer, tally: Tally) -> None:
    """Send mutants of all messages in every state of a task, which is otherwise answered correctly."""
    while not tally.had_enough("control"):
        async with peer.joined() as session:
            name = peer.known.name
            tally.joined[name] += 1
            offer, state = await _begun(session, peer, mutants.generator(tally.seed, "control", tally.num_sent))
            for _ in range(_MOST):
                if session.ended or (index := tally.draw("control")) is None:
                    break
                rng, known = mutants.generator(tally.seed, "control", index), peer.informed()
                if offer:
                    known = known._replace(tokens=(*known.tokens[-1:], *[offer.task] * 4))
                fate = await _interject(session, known, rng)
                tally.left[name] += fate.outcome == "left"
                if fate.reason == LOST:
                    tally.lost.append((name, tally.joined[name]))
                    fate = Fate("reason lost", "the log must have it")
                tally.note("control", index, fate, f"said while {state}")
                if rng.random() < 0.4 and not session.ended:
                    offer = offer or await _offered(session, peer)
                    state = "idle" if offer is None else await _advance(session, peer, offer, state)
                    offer = None if state == "idle" else offer


async def _begun(session: Conversation, peer: HostilePeer, rng: random.Random) -> tuple[Offer | None, str]:
    """Bring a task into a random state, or take none; return it with that state."""
    state, num_steps = "idle", rng.randrange(5)
    offer = await _offered(session, peer) if num_steps else None
    for _ in range(num_steps if offer else 0):
        state = await _advance(session, peer, offer, state)
    return offer, state


async def _interject(session: Conversation, known: Known, rng: random.Random) -> Fate:
    await session.send(mutants.control(rng.choice(mutants.messages(known, rng)), known, rng))
    return await session.fate()


async def _offered(session: Conversation, peer: HostilePeer) -> Offer | None:
    if session.offer is None:
        await session.hear(Offer)
    found, session.offer = session.offer, None
    if found is not None:
        peer.tokens.append(found.task)
    return found


async def _advance(session: Conversation, peer: HostilePeer, offer: Offer, state: str) -> str:
    """Take the next honest step of a task, and return the new state."""
    if state == "idle":
        return "offered"
    if state == "offered":
        await session.say(Accept(offer.task))
        return "accepted"
    if state == "accepted":
        await peer.fetch(offer.task.encode())
        return "fetched"
    if state == "fetched":
        await session.say(Finished(offer.task, 100))
        return "granted"
    await peer.upload(offer.task, Stream((bytes(100),), 100))
    return "idle"


async def upload_mutants(peer: HostilePeer, tally: Tally) -> None:
    """Accept every task, and upload mutants of the correct answer under its token until the task is over."""
    while not tally.had_enough("upload", "evaluation"):
        async with peer.joined() as session:
            while not session.ended and not tally.had_enough("upload", "evaluation"):
                if offer := await _offered(session, peer):
                    await _spoil(session, peer, tally, offer)


async def _spoil(session: Conversation, peer: HostilePeer, tally: Tally, offer: Offer) -> None:
    """Upload mutants for a task until it is over."""
    kind = "upload" if offer.kind == "work" else "evaluation"
    await session.say(Accept(offer.task))
    answer = await peer.answer(offer)
    while answer and not session.ended:
        if (index := tally.draw(kind)) is None:
            await session.say(Decline(offer.task, "there were enough of these"))
            return
        rng = mutants.generator(tally.seed, kind, index)
        stream = mutants.oversized(*answer, rng) if rng.random() < 0.01 else mutants.upload(*answer, rng)
        await session.say(Finished(offer.task, stream.announced))
        fate = (
            await session.granted(offer.task) if rng.random() < 0.95 else None
        )  # sometimes without waiting for the grant
        fate = fate or await peer.upload(offer.task, stream)
        tally.note(kind, index, fate)
        if fate.outcome in ("received", "rejected", "late", "withdrawn"):
            return


async def stray(peer: HostilePeer, tally: Tally) -> None:
    """Upload and fetch with tokens of other clients, of finished tasks, and of no task."""
    while (index := tally.draw("stray")) is not None:
        rng, known = mutants.generator(tally.seed, "stray", index), tuple(peer.tokens)[-8:]
        if rng.random() < 0.5:
            _, fate = await peer.fetch(mutants.fetch(known, rng))
            tally.note("stray", index, fate, "fetch")
        else:
            data = rng.randbytes(rng.choice([0, 1, 100, 5000]))
            ending = rng.choice(["end", "end", "cut", "more"])
            token = mutants.token(known, rng)
            fate = await peer.upload(token, Stream((data,), len(data), ending))
            tally.note("stray", index, fate, "stray upload")


async def take_part(peer: HostilePeer, verdicts: Counter[str]) -> None:
    """Answer every offer honestly, until cancelled."""
    async with peer.joined() as session:
        while True:
            offer = await _offered(session, peer)
            assert offer is not None, session.ended
            await session.say(Accept(offer.task))
            if (answer := await peer.answer(offer)) is None:
                continue
            data = message.pack(*answer)
            await session.say(Finished(offer.task, len(data)))
            if await session.granted(offer.task) is None:
                verdicts[(await peer.upload(offer.task, Stream((data,), len(data)))).outcome] += 1
