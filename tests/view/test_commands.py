"""The commands on the page: on a terminal they print the table that the page shows."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from benchmarks.page_runs import make_run
from starlette.testclient import TestClient
from typer.testing import CliRunner

from fedge.cli import app
from fedge.core.printable import printable, printable_command
from view.hostile_strings import FILE_NAMES, STRINGS

OpenPage = Callable[..., TestClient]


class Commands(HTMLParser):
    """The commands in a page, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "pre" and ("class", "command") in attrs:
            self._inside = True
            self.found.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "pre"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.found[-1] += unescape(data)


def call(command: str, *options: str) -> str:
    """Return the output of a command from the page, parsed like in a shell."""
    name, *words = shlex.split(command)
    assert name == "fedge"
    runner = CliRunner(env={"NO_COLOR": "1"})
    result = runner.invoke(app, [*words, *options], prog_name="fedge", catch_exceptions=False)
    assert result.exit_code == 0, (command, result.stderr)
    return result.stdout


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    """Two settings that vary, seeds, a run that has not begun, one without a second seed, and a damaged one."""
    folder = tmp_path / "runs"
    for rate in (0.25, 0.3, 0.4):
        for count in (10, 20):
            for seed in (1, 2, 3):
                data = {"name": "digits", "clients": count, "dir": None}
                make_run(folder / f"rate {rate}" / f"{count}" / f"seed-{seed}", seed, 10, rate, "swept", data=data)
    empty = make_run(folder / "empty", 1, 1, 7.0, "swept", finished=False)
    (empty / "rounds.jsonl").write_text("")
    make_run(folder / "it's one" / "seed-9", 9, 10, 0.1, "alone", finished=False)
    (make_run(folder / "broken" / "seed-1") / "rounds.jsonl").write_text("nonsense\n")
    return folder


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"q": "rate seed-2", "sort": "-accuracy"},
        {"q": "-"},
        {"q": "--format"},
        {"where": ["algorithm.learning_rate>=0.1", "status!=damaged"], "sort": "rounds_to_target"},
        {"where": ["path~it's one"]},
        {"values": "best", "column": ["accuracy", "loss", "seed"]},
        {"values": "at", "round": "3", "column": ["accuracy"], "sort": "accuracy"},
        {"group": "settings", "sort": "-accuracy"},
        {"group": "data.clients", "where": ["status=complete"], "column": ["bytes_to_target", "model.name"]},
    ],
)
def test_the_table_of_runs(grid: Path, open_page: OpenPage, query: dict[str, Any]) -> None:
    page = open_page(grid)
    page.get("/export/runs.html")  # all records are read, as they are after a while
    (command,) = Commands(page.get("/", params=query).text).found
    assert page.get("/", params=query, headers={"Fedge-Part": "rows"}).text.count('class="command"') == 1
    shown = page.get("/api/runs", params=query).json()
    printed = json.loads(call(command, "--format", "json"))
    assert len(printed) == len(shown["rows"])
    for row, line in zip(shown["rows"], printed, strict=True):
        assert line.get("group") == row.get("group")
        if "group" in row:
            assert (line["count"], line["finished"]) == (row["count"], row["finished"])
        else:
            assert (line["path"], line["status"]) == (str(grid / row["path"]), row["status"])
        for name, cell in row["values"].items():
            bare = {key: value for key, value in cell.items() if key != "text"}
            assert line["values"][name] == (bare if "n" in cell else cell["value"]), name
    text = call(command)
    for row in shown["rows"]:
        assert all(cell["text"] in text for cell in row["values"].values())


def test_runs_that_were_selected_by_their_keys(grid: Path, open_page: OpenPage) -> None:
    page = open_page(grid)
    keys = [row["key"] for row in page.get("/api/runs?q=seed-2&limit=2").json()["rows"]]
    (command,) = Commands(page.get("/", params={"run": ",".join(keys)}).text).found
    shown = page.get("/api/runs", params={"run": ",".join(keys)}).json()["rows"]
    assert [line["path"] for line in json.loads(call(command, "--format", "json"))] == [
        str(grid / row["path"]) for row in shown
    ]


@pytest.mark.parametrize("outcome", ["accuracy", "rounds_to_target", "user_accuracy", "bytes_to_target"])
@pytest.mark.parametrize("baseline", ["", "data.clients=20"])
@pytest.mark.parametrize("settings", ["", "all"])
def test_tables_of_a_comparison(grid: Path, open_page: OpenPage, outcome: str, baseline: str, settings: str) -> None:
    page = open_page(grid)
    query = {"q": "swept", "outcome": outcome, "baseline": baseline, "settings": settings}
    found = page.get("/api/compare", params=query).json()
    commands = [one for one in Commands(page.get("/compare", params=query).text).found if one]
    assert len(commands) == 5
    printed = {
        name: [" ".join(line.split()) for line in call(command).splitlines()]
        for name, command in zip(("results", *found["tables"]), commands, strict=True)
    }
    for name, tables in found["tables"].items():
        for table in tables:
            assert table["title"] in printed[name]
            for cells in (table["head"], *table["rows"]):
                line = " ".join(" ".join(cell.split("\n")[0] for cell in cells).split())
                assert line in printed[name], (name, line)
    assert any(group["label"] in line for line in printed["results"] for group in found["groups"])


def test_a_single_run_has_its_settings(grid: Path, open_page: OpenPage) -> None:
    page = open_page(grid)
    query = {"where": "path=rate 0.3/10/seed-1", "settings": "all"}
    (command,) = [one for one in Commands(page.get("/compare", params=query).text).found if "--settings" in one]
    assert "algorithm.learning_rate" in call(command)


def test_no_control_characters_in_commands(tmp_path: Path, open_page: OpenPage) -> None:
    for seed in (1, 2):
        make_run(tmp_path / "runs" / "a\x1b[31m\n'b" / f"seed-{seed}", seed)
    make_run(tmp_path / "runs" / "plain" / "seed-1")
    page = open_page(tmp_path / "runs")
    for address in ("/?q=seed", "/compare?where=path~seed-2", "/compare?where=path~seed-2&settings=all"):
        commands = Commands(page.get(address).text).found
        assert commands
        assert not any(set(command) & {"\x1b", "\n"} for command in commands)
    assert printable_command(["fedge", "a\x1bb", "it's"]) == "fedge $'a\\x1bb' 'it'\"'\"'s'"


def test_a_shell_reads_the_words_of_a_command() -> None:
    words = [each for each in (*STRINGS, *map(os.fsdecode, FILE_NAMES)) if not set(each) & {"\0", "\ud800"}]
    assert len(words) > 200
    command = printable_command(words)
    assert printable(command) == command
    got = subprocess.run(["bash"], input=f"printf '%s\\0' {command}".encode(), capture_output=True, check=True).stdout
    assert got.split(b"\0") == [*map(os.fsencode, words), b""]


def test_commands_of_a_folder_with_an_odd_name(tmp_path: Path, open_page: OpenPage) -> None:
    folder = tmp_path / os.fsdecode(b"\xff'\x1b[31m\n\\ $HOME")
    for seed in (1, 2):
        make_run(folder / f"seed-{seed}", seed)
    (command,) = Commands(open_page(folder).get("/").text).found
    got = subprocess.run(
        ["bash", "-c", command.replace("fedge list", "ls", 1).partition(" --")[0]], capture_output=True
    )
    assert got.stdout.split() == [b"seed-1", b"seed-2"]
