"""The reference says what the code says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import make_reference as script
import pytest

from fedge.cli.options import options, title
from fedge.config import Config, parse

ROOT = Path(__file__).parents[2]


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
    assert [row for row in rows if not row.split(" | ")[1].strip()] == []


def test_text_of_docstrings_has_no_markup_except_code():
    assert script.prose("K*(W) or eta*(W), `a*b*`; --set a.b=v, `--set`") == (
        r"K\*(W) or eta\*(W), `a*b*`; `--set` a.b=v, `--set`"
    )


def rows(text: str) -> set[str]:
    return set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))


def test_every_option_of_every_kind_is_in_its_section_or_in_the_shared_table_above():
    for kinds in script._tables(Config):
        text = "\n\n".join(script.parts(kinds))
        shared, *sections = re.split(r"^### .*$", text, flags=re.MULTILINE)
        for kind, section in zip(kinds, sections or [""], strict=True):
            (missing,) = re.findall(r"^Without (.*)\.$", section, re.MULTILINE) or [""]
            found = (rows(shared) | rows(section)) - set(re.findall(r"`(\w+)`", missing))
            assert found == {option.name for option in options(kind)}, title(kind)


def test_table_whose_kinds_are_described_above_leads_there():
    assert (
        "## `data.test`\n\nOne of these, with the options of [`data`](#data): `digits`, `mnist`,"
        in script.configuration()
    )
