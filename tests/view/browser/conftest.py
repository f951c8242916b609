"""A real `fedge view` on trained runs, in a real Chromium."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.command import Fedge
from e2e.experiments import SMALL, changed, write
from view.view_server import ViewServer

sync_api = pytest.importorskip("playwright.sync_api", reason="the tests in a browser need playwright")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
WAIT_MS = 60_000
"""Timeout of all waits, in milliseconds."""
CELLS = changed(
    SMALL,
    name="cells",
    rounds=4,
    selection={"fraction": 0.6},
    edge={"clock": "cells", "cells": 3, "global_every": 2, "mobility_rate": 0.4, "record": True},
)
del CELLS["selection"]["count"]
_WATCH = (
    "addEventListener('securitypolicyviolation', e => console.error(`policy: ${e.violatedDirective} ${e.blockedURI}`))"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.full)


@pytest.fixture(scope="session")
def trained(fedge: Fedge, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two settings with three seeds each, a run with cells, one that was stopped and one that is damaged."""
    folder = tmp_path_factory.mktemp("trained")
    for rate in (0.01, 0.1):
        for seed in (1, 2, 3):
            settings = changed(SMALL, name=f"rate-{rate}", seed=seed, algorithm={"learning_rate": rate})
            settings["target"] = {"metric": "accuracy", "value": 0.2}
            train(fedge, folder, settings, f"seed-{seed}")
    train(fedge, folder, CELLS, "edge")
    stopped = folder / "runs" / "stopped"
    shutil.copytree(folder / "runs" / "seed-1" / "rate-0.1", stopped)
    (stopped / "summary.json").unlink()
    rename(stopped, "stopped")
    damaged = folder / "runs" / "damaged"
    shutil.copytree(stopped, damaged)
    rename(damaged, "damaged")
    (damaged / "rounds.jsonl").write_text("nonsense\n")
    return folder / "runs"


def rename(run: Path, name: str) -> None:
    """Give a copy of a run another name and id."""
    file = run / "config.json"
    text = re.sub(r'"name": ?"rate-0.1"', f'"name": "{name}"', file.read_text())
    file.write_text(re.sub(r'"id": ?"\w{4}', f'"id": "{name[:2].encode().hex()}', text))


def train(fedge: Fedge, folder: Path, settings: dict[str, Any], below: str) -> None:
    """Train a run; it is in `runs`, in a folder of its name in the one named."""
    file = write(folder / "files" / below / settings["name"], settings)
    ended = fedge("run", file, "--runs", folder / "runs" / below, "--quiet")
    assert ended.code == 0, ended.err


@pytest.fixture(scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all tests, because building the drawing library takes seconds."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def cache(cache_folder: Path) -> Path:
    """Replaces the empty cache of each test."""
    return cache_folder


@pytest.fixture
def runs(trained: Path, tmp_path: Path) -> Path:
    """A copy of the trained runs that a test may change."""
    shutil.copytree(trained, tmp_path / "runs")
    return tmp_path / "runs"


@pytest.fixture
def view(start_view: Callable[..., ViewServer], runs: Path) -> ViewServer:
    return start_view(runs)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    program = shutil.which("chromium") or "/usr/bin/chromium"
    if not Path(program).exists():
        reason = "the tests in a browser need chromium: apt-get install chromium"
        pytest.fail(reason) if os.environ.get("FEDGE_TEST_EVERYTHING") else pytest.skip(reason)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


class Errors(list[str]):
    """Errors and warnings of browsers; a test removes those that it expects."""

    def expect(self, text: str) -> None:
        self[:] = [error for error in self if text not in error]


@pytest.fixture
def errors() -> Iterator[Errors]:
    found = Errors()
    yield found
    assert not found, found


@pytest.fixture
def open_context(browser: Any, errors: Errors) -> Iterator[Callable[..., Any]]:
    """open_context(view, width, scheme): a browser that has the token; its errors and warnings are collected."""
    made: list[Any] = []

    def make(
        view: ViewServer, width: int = 1280, scheme: str = "light", port: int | None = None, **options: Any
    ) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **options)
        made.append(context)
        context.set_default_timeout(WAIT_MS)
        context.add_init_script(_WATCH)
        context.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        context.on("weberror", lambda error: errors.append(str(error.error)))
        context.on("page", lambda page: page.on("dialog", lambda dialog: errors.append(f"dialog {dialog.message}")))
        cookie = {"name": f"fedge-view-{view.port}", "value": view.token, "url": view.address(port=port)}
        context.add_cookies([cookie])
        return context

    yield make
    for context in made:
        context.close()


@pytest.fixture
def open_tab(open_context: Callable[..., Any]) -> Callable[..., Any]:
    """open_tab(view, path): a page in a new browser."""

    def make(view: ViewServer, path: str = "/", **options: Any) -> Any:
        tab = open_context(view, **options).new_page()
        tab.goto(view.address(path, options.get("port")))
        return tab

    return make
