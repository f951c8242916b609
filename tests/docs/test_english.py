"""No text of the project contains a phrase that is never right in technical English."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PHRASES = {
    r"\bhangs? on\b": "depends on",
    r"\b(comes?|came) to the same\b": "gives the same result",
    r"\bwhat (a|the|each|this) run (came|comes) to\b": "a run's results",
    r"\bwhoever\b": "name the person: users, contributors, readers",
    r"\bsays so\b": "prints, reports or raises",
    r"\bis said\b": "prints, reports or raises",
    r"\b(go|goes|going|went) on with (a|the|this|that|its) run\b": "resume, continue",
    r"\bgo on with it\b": "resume it",
    r"\bleave --\w[\w-]* away\b": "drop --x",
    r"\bby the number of the state\b": "with the state's index",
    r"\bweigh as many as\b": "are weighted by participants",
    r"\bmay be away\b": "may be unavailable",
    r"\bdo(es)? not go around\b": "cannot be combined with",
    r"\b(is|are) dear\b": "expensive",
    r"\bput that right\b": "fix this",
    r"\btimes smaller than whole\b": "compression ratio",
    r"\bfinish of a client\b": "client completion time",
    r"\bsome have to make it\b": "computing it is expensive, so it is cached",
    r"\blet others have it\b": "release the lock",
    r"\bis heard\b": "is noticed, is received",
    r"\bthe same of several\b": "like `X`, for several",
    r"\bwhat there is\b": "what is included",
    r"\bit takes linux\b": "requires Linux",
    r"\bthe thesis\b": "Mills (2023), with a link to docs/references.md",
}
"""Each phrase, as a regular expression, with what to write in its place."""

SUFFIXES = {".py", ".md", ".toml", ".txt", ".html", ".js"}
EXCLUDED = ("tests/docs/test_english.py", "LICENSE", "CODE_OF_CONDUCT.md", "benchmarks/results/", "docs/examples/")
"""This file, texts of others, and generated files."""
FOLDERS_OF_TOOLS = {"build", "dist", "node_modules", "runs", "venv"}

_GUIDE = re.compile(r"^\| *instead of *\|.*\n(?:\|.*\n?)+", re.IGNORECASE | re.MULTILINE)  # quotes the phrases
_ANY = re.compile("|".join(f"(?:{phrase})".replace(" ", r"\s+") for phrase in PHRASES), re.IGNORECASE)


def find_phrases(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the words of each phrase in a text, also of those that span two lines."""
    text = _GUIDE.sub(lambda table: "\n" * table[0].count("\n"), text)
    for found in _ANY.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, " ".join(found[0].split())


def advice(words: str) -> str:
    """Return what to write in place of a phrase."""
    return next(better for phrase, better in PHRASES.items() if re.fullmatch(phrase, words, re.IGNORECASE))


def names_of_files() -> Iterator[str]:
    """Yield the paths of all files, relative to the project: those of git in a checkout, otherwise all that exist."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        listed = ""
    if listed:
        yield from filter(None, listed.split("\0"))
        return
    for folder, inner, files in os.walk(ROOT):
        inner[:] = [name for name in inner if not name.startswith(".") and name not in FOLDERS_OF_TOOLS]
        yield from (str(Path(folder, file).relative_to(ROOT)) for file in files)


def texts() -> list[str]:
    """Return the paths of the files to check."""
    found = [name for name in names_of_files() if Path(name).suffix in SUFFIXES and not name.startswith(EXCLUDED)]
    return sorted(name for name in found if (ROOT / name).is_file())


def test_no_text_has_a_phrase_that_is_never_right() -> None:
    problems = [
        f"{name}:{line}: {words!r}; write: {advice(words)}"
        for name in texts()
        for line, words in find_phrases((ROOT / name).read_text("utf-8"))
    ]
    assert not problems, "\n" + "\n".join(problems)


def test_the_files_checked_are_those_of_the_project() -> None:
    found = texts()
    assert {"README.md", "pyproject.toml", "src/fedge/core/drive.py", "docs/index.md"} <= set(found)
    assert not any(name.startswith(EXCLUDED) for name in found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The result hangs on the seed.", [(1, "hangs on")]),
        ("one\n# Whoever has\n# an idea", [(2, "Whoever")]),
        ("a long line that comes to\n    the same", [(1, "comes to the same")]),
        ("See The Thesis, and what there is.", [(1, "The Thesis"), (1, "what there is")]),
        ("Leave --quiet away", [(1, "Leave --quiet away")]),
        ("rounds are dear, and clients may be away", [(1, "are dear"), (1, "may be away")]),
        ("Dear reader, a PhD thesis changes on whatever it is saying so far away", []),
        ("| instead of | write |\n|---|---|\n| X hangs on Y | X depends on Y |\n\nit is said", [(5, "is said")]),
    ],
)
def test_phrases_are_found(text: str, expected: list[tuple[int, str]]) -> None:
    assert list(find_phrases(text)) == expected
    assert all(advice(words) for _, words in expected)
