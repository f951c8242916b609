"""No text of the project contains a phrase that is never right in technical English."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PHRASES = {
    r"\bhangs? on\b": "depends on",
    r"\b(comes?|came) to the same\b": "gives the same result",
    r"\bwhat (a|the|each|this) run (came|comes) to\b": "a run's results",
    r"\bwhoever\b": "name the person: users, contributors, readers",
    r"\b(say|says|said) so\b": "prints, reports or raises",
    r"\b(is|are) said\b": "prints, reports or raises",
    r"\b(go|goes|going|went) on with (it|them|(a|the|this|that|its) runs?)\b": "resume, continue",
    r"\bgoes on\b": "continues",
    r"\bso many\b": "k, exactly k, n of them",
    r"\bof (its|their) own[.,;:)]": "its own, or drop it",
    r"\b(leave|leaves|leaving) ((--)?\w[\w-]*|it|them) away\b": "drop --x",
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
    r"\bit takes (linux|python)\b": "requires Linux, requires Python",
    r"\blook at it, ": "inspect",
    r"\bthe thesis\b": "Mills (2023), with a link to docs/references.md",
}
"""Each phrase, as a regular expression in lower case, with what to write in its place."""

EXCLUDED = ("tests/docs/test_english.py", "LICENSE", "CODE_OF_CONDUCT.md", "benchmarks/results/", "docs/examples/")
"""This file, texts of others, and generated files."""
FOLDERS_OF_TOOLS = {"build", "dist", "node_modules", "runs", "venv"}

_GUIDE = re.compile(r"^\| *instead of *\|.*\n(?:\|.*\n?)+", re.IGNORECASE | re.MULTILINE)  # quotes the phrases
_JOINTS = re.compile(r"""["']\s*\n\s*f?["']|\n[ \t]*(?:#|//|\*)+|_""")  # inside strings, comments and names
_ANY = re.compile("|".join(f"(?:{phrase})".replace(" ", r"\s+") for phrase in PHRASES))


def find_phrases(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the words of each phrase in a text, also if it spans two lines, or is part of a name."""
    text = _GUIDE.sub(lambda table: "\n" * table[0].count("\n"), text).lower()  # faster than ignoring case
    text = _JOINTS.sub(lambda joint: "\n" * joint[0].count("\n") or " ", text)
    for found in _ANY.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, " ".join(found[0].split())


def advice(words: str) -> str:
    """Return what to write in place of a phrase."""
    return next(better for phrase, better in PHRASES.items() if re.fullmatch(phrase, words))


def names_of_files() -> Iterator[str]:
    """Yield the paths of all files, relative to the project: in a checkout those that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        listed = ""
    if listed:
        yield from filter(None, listed.split("\0"))
        return
    for folder, inner, files in os.walk(ROOT):
        inner[:] = [name for name in inner if not name.startswith(".") and name not in FOLDERS_OF_TOOLS]
        yield from (str(Path(folder, file).relative_to(ROOT)) for file in files)


def texts() -> dict[str, str]:
    """Return the content of every text file of the project, by path."""
    found = {}
    for name in names_of_files():
        if not name.startswith(EXCLUDED) and (ROOT / name).is_file():
            with suppress(UnicodeDecodeError):  # pictures and arrays
                found[name] = (ROOT / name).read_text("utf-8")
    return found


@pytest.fixture(scope="module", name="files")
def read_files() -> dict[str, str]:
    return texts()


def test_no_text_has_a_phrase_that_is_never_right(files: dict[str, str]) -> None:
    problems = [
        f"{name}:{line}: {words!r}; write: {advice(words)}"
        for name, text in sorted(files.items())
        for line, words in find_phrases(text)
    ]
    assert not problems, "\n" + "\n".join(problems)


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "CITATION.cff",
        "Makefile",
        "pyproject.toml",
        "benchmarks/__main__.py",
        "docs/decisions/index.md",
        "docs/site/extra.css",
        "examples/first.ipynb",
        "recipes/hfl/README.md",
        "recipes/hfl/grid.svg",
        "recipes/sweep/digits.toml",
        "scripts/make_site.py",
        "src/fedge/cli/templates/experiment.toml.txt",
        "src/fedge/core/drive.py",
        "src/fedge/view/static/live.js",
        "src/fedge/view/static/page.css",
        "src/fedge/view/templates/parts/macros.html",
        "tests/docs/test_docs.py",
    ],
)
def test_files_of_every_kind_are_checked(name: str, files: dict[str, str]) -> None:
    assert name in files


def test_this_file_and_texts_of_others_are_not_checked(files: dict[str, str]) -> None:
    assert not any(name.startswith(EXCLUDED) for name in files)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The result hangs on the seed.", [(1, "hangs on")]),
        ("one\n# Whoever has\n# an idea", [(2, "whoever")]),
        ("a long line that comes to\n    the same", [(1, "comes to the same")]),
        ("See The Thesis, and what there is.", [(1, "the thesis"), (1, "what there is")]),
        ("Leave --quiet away", [(1, "leave --quiet away")]),
        ("def test_it_hangs_on_a_name() -> None:", [(1, "hangs on")]),
        ('"a text that comes"\n    f" to the same"', [(1, "comes to the same")]),
        ("x = 1  # hangs\n    # on a comment", [(1, "hangs on")]),
        ("/** hangs\n * on a comment */", [(1, "hangs on")]),
        ("a cell of its own, and data of its own users", [(1, "of its own,")]),
        ("rounds are dear, and clients may be away", [(1, "are dear"), (1, "may be away")]),
        ("Dear reader, a PhD thesis changes on whatever it is saying so far away", []),
        ("| instead of | write |\n|---|---|\n| X hangs on Y | X depends on Y |\n\nit is said", [(5, "is said")]),
    ],
)
def test_phrases_are_found(text: str, expected: list[tuple[int, str]]) -> None:
    assert list(find_phrases(text)) == expected
    assert all(advice(words) for _, words in expected)
