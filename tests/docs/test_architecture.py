"""The page about the architecture names every package, and what it says is where is there."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import fedge

ROOT = Path(fedge.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
PARTS = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
NAMES = PARTS - {"__init__"} | {"fedge"}
"""Packages and modules at the top; the package itself is called `fedge`."""


def section(heading: str) -> str:
    return PAGE.read_text("utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_every_package_is_on_the_page() -> None:
    assert {"core", "client", "config", "theory"} <= NAMES
    assert sorted(re.findall(r"^\| `(\w+)` \| \S", section("Packages"), re.MULTILINE)) == sorted(NAMES)


def test_every_package_is_in_the_drawing() -> None:
    texts = ElementTree.parse(PAGE.with_suffix(".svg")).iter("{http://www.w3.org/2000/svg}text")
    assert {text.text for text in texts if text.get("font-weight") == "bold"} == NAMES


def steps() -> list[Any]:
    lines = re.findall(r"^\| `([\w/]+\.py)`: (.+?) \|", section("The path of a round"), re.MULTILINE)
    return [pytest.param(path, name, id=f"{path}: {name}") for path, cell in lines for name in re.findall(r"\w+", cell)]


@pytest.mark.parametrize(("path", "name"), steps())
def test_steps_of_a_round_are_in_the_functions_named_on_the_page(path: str, name: str) -> None:
    assert re.search(rf"^ *(?:def|class) {name}\b", (ROOT / path).read_text(), re.MULTILINE)


def test_the_whole_way_is_checked() -> None:
    table = section("The path of a round").partition("|---|---|\n")[2]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    assert len(lines) > 15
    assert all(re.match(r"\| `[\w/]+\.py`: `\w+`(?:, `\w+`)* \| \S", line) for line in lines)


def test_files_on_the_page_exist() -> None:
    named = set(re.findall(r"`((?:\w+/)*\w+\.py)`", PAGE.read_text("utf-8")))
    assert {"algorithms/compose.py", "tests/federation.py"} <= named
    missing = [path for path in named if not (ROOT / path).exists() and not (PAGE.parents[1] / path).exists()]
    assert missing == []


def test_unions_on_the_page_are_in_the_modules_named() -> None:
    text = section("Where new things go")
    found = re.findall(r"in `(\w+)`, `([\w/]+\.py)`", text)
    assert ("AlgorithmOptions", "algorithms/__init__.py") in found
    for name, path in found:
        assert re.search(rf"^(?:class )?{name}\b", (ROOT / path).read_text(), re.MULTILINE), (name, path)
