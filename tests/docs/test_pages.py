"""Every block of code on every page works: it runs here, or it is parsed, and then a reason is given here.

A page is followed from top to bottom in an empty folder: a block with a title becomes a file, Python runs in one
namespace, and so do the commands of `console` and `sh` blocks. A new page is followed unless it is in `PARSED_PAGES`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from typer.main import get_command
from typer.testing import CliRunner

from docs.pages import PAGES, ROOT, SHELL, Block, blocks, commands, commands_of, name_of
from fedge.cli import app
from fedge.sweeps.plan import load, work_out

LANGUAGES = {"console", "sh", "python", "toml", "text", "json", "mermaid", ""}
RUNNABLE = {*SHELL, "python", "toml"}

PROGRAMS = {"python": (), "python3": (), "pytest": ("-m", "pytest")}
"""What runs beside `fedge`, as arguments of the interpreter."""

PARSED = {
    "make": "sets up an environment, trains or tests for minutes; the target exists",
    "pip install": "installs; its extras exist",
    "python3 -m venv": "installs",
    "source": "changes the reader's shell",
    ".venv/bin/pytest": "runs the tests from within the tests",
    "fedge data get": "downloads",
    "fedge data check": "looks for data sets that were downloaded",
    "fedge server": "runs until clients have trained; tests/e2e/test_new_user.py does",
    "fedge client": "needs a server, often on another machine; tests/e2e/test_new_user.py has both",
    "fedge clients": "needs a run of a server",
    "fedge view": "serves a page until it is stopped; tests/view does",
    "fedge pki": "needs the files of a second machine; tests/net has both",
}
"""Commands that are parsed only, and why."""

PARSED_PAGES = {
    "docs/deploy.md": "needs several terminals; tests/e2e/test_new_user.py follows it",
    "docs/operations.md": "about a server that is running",
    "docs/algorithms/": "trains for minutes; scripts/make_algorithm_pages.py follows it to draw its picture",
    "docs/reference/commands.md": "examples of --help, with files that do not exist",
    "recipes/": "trains for minutes to hours, some of it on data that is downloaded",
}
"""Pages, or folders of them, of which commands and Python are parsed only, and why."""

SLOW = {
    "README.md",
    "docs/edge.md",
    "docs/how-to/own-algorithm.md",
    "docs/how-to/personalise.md",
    "docs/how-to/plan-a-radio-cell.md",
    "docs/how-to/tune.md",
    "docs/reporting.md",
    "docs/sweeps.md",
    "docs/tutorial.md",
}
"""Pages that take over 2 seconds: the full tests follow them, the default tests parse their commands."""

Prepare = Callable[[Path], None]


def runs_with_cells(folder: Path) -> None:
    """Runs that vary two settings, with moving clients, a target and the accuracy of each user."""
    (folder / "first.toml").write_text(
        """
        name = "first"
        rounds = 10
        data = { name = "digits", clients = 8 }
        model = "logistic"
        algorithm = { name = "fedavg", learning_rate = 0.1, local_steps = 2 }
        selection = { fraction = 0.5 }
        evaluate = { user_accuracy = true }
        edge = { clock = "cells", cells = 4, mobility_rate = 0.25, record = true }
        target = { metric = "accuracy", value = 0.3 }
        """
    )
    call(["run", "first.toml", "--quiet"])
    call(["run", "first.toml", "--quiet", "--set", "name=second", "--set", "algorithm.learning_rate=0.2"])
    call(["run", "first.toml", "--quiet", "--set", "name=third", "--set", "algorithm.name=scaffold"])


def first_experiment(folder: Path) -> None:
    """The experiment file of the README."""
    (block,) = (block for block in blocks(ROOT / "README.md") if block.title == "first.toml")
    (folder / "first.toml").write_text(block.text, "utf-8")


GIVEN: dict[str, Prepare] = {
    "docs/data.md": first_experiment,
    "docs/edge.md": runs_with_cells,
    "docs/reporting.md": runs_with_cells,
}
"""What the reader of a page has already."""


def reason_not_to_run(page: Path) -> str | None:
    return next((why for part, why in PARSED_PAGES.items() if name_of(page).startswith(part)), None)


def is_parsed_only(words: Sequence[str]) -> bool:
    return any(list(words[: len(start.split())]) == start.split() for start in PARSED)


def call(args: Sequence[str]) -> str:
    result = CliRunner(env={"NO_COLOR": "1"}).invoke(app, args, prog_name="fedge", catch_exceptions=False)
    assert result.exit_code == 0, f"fedge {' '.join(args)}\n{result.stderr}"
    return result.stdout


def own_parts(page: Path, folder: Path) -> None:
    """Write the files that experiments of the page name, from the blocks that define their parts."""
    code = [block for block in blocks(page) if block.language == "python"]
    settings = "".join(block.text for block in blocks(page) if block.language == "toml")
    for file, part in re.findall(r'"(\w+\.py):(\w+)"', settings):
        for block in code:
            if block.title == file or re.search(rf"^(?:def|class) {part}\b", block.text, re.MULTILINE):
                (folder / file).write_text(block.text, "utf-8")


def check_settings(text: str, folder: Path) -> None:
    """Check an experiment, a sweep, or sections that are to be added to one."""
    raw = tomllib.loads(text)
    if "project" in raw:  # a package's own pyproject.toml
        return
    raw = {"data": "digits", "model": "logistic", "algorithm": "fedavg", **raw}
    (folder / "settings.toml").write_text(tomli_w.dumps(raw), "utf-8")
    work_out(load(folder / "settings.toml"))


def follow(page: Path, folder: Path) -> None:
    """Do what the page says, from top to bottom."""
    names: dict[str, Any] = {"__name__": "__page__"}
    said = ""
    own_parts(page, folder)
    for block in blocks(page):
        if block.title:
            file = folder / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, "utf-8")
        if block.language == "toml":
            check_settings(block.text, folder)
        elif block.language == "python" and not block.title:
            exec(compile(block.text, page.name, "exec"), names)
        elif block.language in SHELL:
            said = shell(block)
        elif block.language == "text" and said:  # what the commands above print, but for the numbers
            assert re.findall("[a-z]+", block.text) == re.findall("[a-z]+", said)


def shell(block: Block) -> str:
    """Run the commands of a block and return what they print; nothing if some are only parsed."""
    every = list(commands(block))
    running = [words for words in every if not is_parsed_only(words)]
    said = "".join(start(program, args) for program, *args in running)
    return said if running == every else ""


def start(program: str, args: Sequence[str]) -> str:
    """Run a command and return what it prints: `fedge` in this process, other programs in theirs."""
    if program == "fedge":
        return call(args)
    assert program in PROGRAMS, f"{program} {' '.join(args)}: neither run nor in PARSED"
    command = [sys.executable, *PROGRAMS[program], *args]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


FOLLOWED = [
    pytest.param(page, id=name_of(page), marks=pytest.mark.full if name_of(page) in SLOW else ())
    for page in PAGES
    if reason_not_to_run(page) is None and any(block.language in RUNNABLE for block in blocks(page))
]


@pytest.mark.parametrize("page", FOLLOWED)
def test_page_works(page: Path, folder: Path) -> None:
    """A reader who does what the page says, from top to bottom, gets through."""
    (folder / "recipes").symlink_to(ROOT / "recipes")
    if prepare := GIVEN.get(name_of(page)):
        prepare(folder)
    follow(page, folder)


@pytest.mark.parametrize("page", [page for page in PAGES if reason_not_to_run(page)], ids=name_of)
def test_page_is_valid(page: Path, folder: Path) -> None:
    """What does not run is checked as far as it goes without."""
    own_parts(page, folder)
    for block in blocks(page):
        if block.language == "toml":
            check_settings(block.text, folder)
        elif block.language == "python":
            compile(block.text, page.name, "exec")
    for word in (word for words in commands_of(page) for word in words if word.startswith("recipes/")):
        assert list(ROOT.glob(word)), word


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_has_a_known_language(page: Path) -> None:
    """One that is called `bash` or `py` would be shown and never tried."""
    fences = re.findall(r"^ *```(\S*)", page.read_text("utf-8"), re.MULTILINE)
    assert {*fences} <= LANGUAGES
    assert len(fences) == 2 * len(blocks(page)), "a block that the tests cannot read"


def test_exceptions_are_for_pages_that_exist() -> None:
    names = [name_of(page) for page in PAGES]
    assert [part for part in (*PARSED_PAGES, *SLOW, *GIVEN) if not any(name.startswith(part) for name in names)] == []


def on_pages(program: str) -> list[Any]:
    found = [(page, args) for page in PAGES for first, *args in commands_of(page) if first == program]
    return [pytest.param(args, id=f"{name_of(page)}: {' '.join(args)}") for page, args in found]


@pytest.mark.parametrize("args", on_pages("fedge"))
def test_command_parses(args: list[str]) -> None:
    command: Any = get_command(app)
    while hasattr(command, "commands") and not (command.invoke_without_command and args[0] not in command.commands):
        name, *args = args
        assert name in command.commands
        command = command.commands[name]
    command.make_context(name, args)


@pytest.mark.parametrize("args", on_pages("make"))
def test_target_exists(args: list[str]) -> None:
    (target,) = args
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("args", on_pages("pip"))
def test_extras_exist(args: list[str]) -> None:
    there = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = [extra for arg in args for extras in re.findall(r"\[([\w,]+)\]", arg) for extra in extras.split(",")]
    assert [extra for extra in named if extra not in there] == []
