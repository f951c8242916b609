"""The operations page lists every setting of `[net]` with its default, and the limits of the code."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import NODEFAULT
from msgspec.structs import fields

from fedge.core import message
from fedge.core.net_options import NetOptions
from fedge.net import admission, agent, events, hub, session
from fedge.net.grpc_stream import MAX_MESSAGE_BYTES
from fedge.net.protocol import CHUNK_BYTES
from fedge.net.transport import StreamLimits

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text("utf-8")


def rows(heading: str) -> list[list[str]]:
    """Return the cells of all tables of a section, without their headers."""
    text = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    tables = re.findall(r"^\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for table in tables for line in table.splitlines()]


def number(text: str) -> float:
    """`64 MiB` or `1,000,000`"""
    digits, _, unit = text.replace(",", "").partition(" ")
    return float(digits) * {"MiB": 1 << 20, "GiB": 1 << 30}.get(unit, 1)


def test_every_setting_is_listed_with_its_default() -> None:
    told: dict[str, str] = {}
    for names, defaults, _ in (row for row in rows("Timeouts") if row[0].startswith("`")):
        split = defaults.split(", ") if ", " in names else [defaults]
        told |= dict(zip(re.findall(r"`(\w+)`", names), split, strict=True))
    options = {field.name: field.default for field in fields(NetOptions) if field.default is not NODEFAULT}
    assert told.keys() == options.keys()
    for name, default in options.items():
        assert (told[name] if isinstance(default, str) else number(told[name])) == default, name


def test_fixed_timeouts() -> None:
    told = [row[1] for row in rows("Timeouts") if not row[0].startswith("`")]
    first, longest = agent.FIRST_PAUSE_S, agent.LONGEST_PAUSE_S
    seconds = [
        admission.HELLO_S,
        admission.BUILD_S,
        hub.IDLE_BEAT_S * hub.MISSED,
        agent.ANSWER_S,
        StreamLimits().stall_s,
    ]
    assert told == [*(f"{each:g}" for each in seconds), f"{first:g} to {longest:g} between attempts, doubling"]
    assert f"reports every {hub.IDLE_BEAT_S:g} s" in PAGE
    assert f"reports every {hub.IDLE_BEAT_S / agent.BUSY_BEATS:g} s" in PAGE


def test_limits() -> None:
    found = [[number(text) for text in re.findall(r"\d[\d,]*(?: [MG]iB)?", row[1])] for row in rows("Limits")]
    limits = StreamLimits()
    assert found == [
        [MAX_MESSAGE_BYTES, CHUNK_BYTES],
        [message.MAX_BYTES],
        [session.MESSAGES.per_s, session.PER_OFFER, session.MESSAGES.burst],
        [limits.sessions, limits.fetches, limits.uploads],
        [*limits.session_rate],
        [*limits.fetch_rate],
        [*limits.upload_rate],
        [limits.connections],
        [],
    ]
    sizes = [events.MAX_BYTES * (1 + events.NUM_OLDER) >> 20, events.MAX_BYTES >> 20]
    assert "up to {} MiB: five files of {} MiB".format(*sizes) in PAGE
