"""Every message on the troubleshooting page occurs in the source."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
VERDICTS = ("rejected", "late", "declined")
"""The words before "after" in the line of a task."""


@cache
def templates() -> str:
    """Return all string literals of the source, one per line; placeholders are NUL characters."""
    found: set[str] = set()
    for file in (ROOT / "src" / "fedge").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values]
                found.add("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return "\n".join(text.replace("\n", " ").replace("`", "") for text in sorted(found))


def messages() -> list[str]:
    cells = re.findall(r"^\| (`.+?`) \| ", PAGE, re.MULTILINE)
    return [message for cell in cells for message in re.findall(r"`([^`]+)`", cell)]


def occurs(message: str) -> bool:
    """Return whether a string of the source contains all fixed parts of a message, in order."""
    parts = [re.escape(part) for part in message.split("...")]
    return re.search(r"[^\n]*".join(parts), templates()) is not None


def occurs_in_two_parts(message: str) -> bool:
    """Return whether the message is one string of the source inserted at the end of another."""
    words = message.split(" ")
    splits = [(" ".join(words[:at]), " ".join(words[at:])) for at in range(2, len(words) - 2)]
    return any(occurs(f"{head} \0") and occurs(tail) for head, tail in splits)


@pytest.mark.parametrize("message", messages())
def test_message_occurs_in_the_source(message: str) -> None:
    reason = re.fullmatch(r"(cannot reach \.\.\.) \((.+)\)", message)
    verdict = re.fullmatch(r"(\w+) (after \.\.\.)", message)
    if reason:  # messages of the operating system
        assert occurs(f"{reason[1]} (")
        assert reason[2] in ("connection refused", "timed out", "name or service not known")
    elif verdict:
        assert verdict[1] in VERDICTS
        assert occurs(f"... {verdict[2]}")
        assert occurs(verdict[1])
    else:
        assert occurs(message) or occurs_in_two_parts(message)


def test_message_that_does_not_occur_is_detected() -> None:
    assert len(messages()) > 40
    assert not occurs("cannot reach ... because it is late")
