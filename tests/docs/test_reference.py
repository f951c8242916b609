"""The reference says what the code says."""

from __future__ import annotations

import re
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from fedge.config import parse

ROOT = Path(__file__).parents[2]


def load_script():
    spec = spec_from_file_location("make_reference", ROOT / "scripts" / "make_reference.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


script = load_script()


@pytest.mark.parametrize("name", script.PAGES)
def test_page_is_up_to_date(name):
    written = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert written == script.PAGES[name](), "run `python scripts/make_reference.py`"


def test_example_is_valid():
    (example,) = re.findall(r"```toml\n(.*?)```", script.configuration(), re.DOTALL)
    assert parse(tomllib.loads(example)).name == "first"


def test_every_command_is_there_those_of_groups_too():
    headings = re.findall(r"^## (fedge .*)$", script.commands(), re.MULTILINE)
    assert len(headings) == len(set(headings))
    assert {"fedge run", "fedge data", "fedge data get", "fedge data check", "fedge data show"} <= set(headings)


def test_every_option_has_a_meaning():
    rows = [line for line in script.configuration().splitlines() if line.startswith("| `")]
    assert rows
    assert [row for row in rows if row.endswith("|  |")] == []
