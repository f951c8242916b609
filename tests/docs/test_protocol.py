"""The state machines and messages on the protocol page match the code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import get_args

from fedge.net.protocol import PROTOCOL, FromClient, FromServer
from fedge.net.round import ROUND_TRANSITIONS, RoundState
from fedge.net.task import ENDS, TASK_TRANSITIONS, TaskState

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text("utf-8")


def arrows() -> list[set[tuple[str, str]]]:
    """Return the arrows of each diagram, including those from the start and to the end."""
    drawings = re.findall(r"^```mermaid\nstateDiagram-v2\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [set(re.findall(r"^ +(\S+) --> (\S+)(?: : .+)?$", drawing, re.MULTILINE)) for drawing in drawings]


def explained(head: str) -> list[str]:
    """Return the states of a table."""
    rows = PAGE.partition(f"\n| {head} | ")[2].partition("\n\n")[0]
    return re.findall(r"^\| `(\w+)` \| \S", rows, re.MULTILINE)


def pairs(table: Mapping[str, Iterable[str]]) -> set[tuple[str, str]]:
    return {(before, after) for before, follow in table.items() for after in follow}


def test_diagram_of_a_round() -> None:
    drawn, _ = arrows()
    ends = {(state, "[*]") for state, follow in ROUND_TRANSITIONS.items() if not follow}
    assert drawn == {("[*]", "gathering"), *pairs(ROUND_TRANSITIONS), *ends}
    assert explained("state") == list(RoundState)


def test_diagram_of_a_task() -> None:
    _, drawn = arrows()
    ends = set(explained("end"))
    assert ends == ENDS - {TaskState.SETTLED}
    states = set(TaskState) - ENDS
    elsewhere = {(state, end) for state in states for end in ends} - {("offered", "late")}
    assert drawn == {("[*]", "offered"), *pairs(TASK_TRANSITIONS) - elsewhere, ("settled", "[*]")}
    assert elsewhere <= pairs(TASK_TRANSITIONS)


def test_table_of_messages() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (client|server) \| \S", PAGE, re.MULTILINE)
    sides = {"client": get_args(FromClient), "server": get_args(FromServer)}
    assert sorted(rows) == sorted((kind.__struct_config__.tag, side) for side, kinds in sides.items() for kind in kinds)
    assert f"(protocol number {PROTOCOL})" in PAGE
