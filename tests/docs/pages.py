"""The pages of the documentation and the blocks on them, for the tests of this folder."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md")), *sorted((ROOT / "recipes").rglob("*.md"))]
SHELL = ("console", "sh")

_FENCE = re.compile(r'^(?P<indent> *)```(\w*)(?: title="([^"\n]+)")?\n(.*?)^(?P=indent)```$', re.DOTALL | re.MULTILINE)
_ASSIGNMENT = re.compile(r"[A-Z_]+=")


class Block(NamedTuple):
    """A fenced block; one with a title is a file that the reader is to make."""

    language: str
    title: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*groups[1:]) for groups in _FENCE.findall(page.read_text("utf-8"))]


def prose(page: Path) -> str:
    return re.sub(r"^ *```.*?^ *```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def commands(block: Block) -> Iterator[list[str]]:
    """The words of each command, up to a pipe or a redirection, without prompt and without variables."""
    for line in block.text.replace("\\\n", " ").splitlines():
        line = re.sub(r"(^|\s)#.*", "", line.removeprefix("$ "))  # inside of a word it begins no comment: first.toml#3
        words = shlex.split(line)
        while words and _ASSIGNMENT.match(words[0]):
            del words[0]
        stop = next((i for i, word in enumerate(words) if word in ("|", ">", "&")), len(words))
        if words[:stop]:
            yield words[:stop]


def commands_of(page: Path) -> list[list[str]]:
    return [words for block in blocks(page) if block.language in SHELL for words in commands(block)]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))
