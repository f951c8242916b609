import importlib
import os
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
import typer.testing

from e2e.command import Fedge

if os.environ.get("FEDGE_TEST_EVERYTHING"):  # then a missing requirement is a failure, not a reason to skip
    pytest.importorskip = lambda name, **_: importlib.import_module(name)

hypothesis.settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("untimed")
torch.set_num_threads(1)  # as in every engine; two threads on two busy cores would wait for each other
SERIOUS = ("serious", "critical")
typer.testing._get_command = cache(typer.main.get_command)  # once instead of in every call: it inspects all options


@pytest.fixture(scope="session")
def fedge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fedge]:
    """Run the `fedge` command in real processes, in the background or to completion."""
    with Fedge(tmp_path_factory.mktemp("output")) as command:
        yield command


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real Chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the tests in a browser need playwright")
    path = os.environ.get("CHROMIUM", "/usr/bin/chromium")
    if not Path(path).exists():
        reason = "the tests in a browser need chromium: apt-get install chromium"
        pytest.fail(reason) if os.environ.get("FEDGE_TEST_EVERYTHING") else pytest.skip(reason)
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def serious() -> Callable[[Any], list[str]]:
    """Return what axe finds on a page that keeps some readers from it."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python").Axe()

    def find(page: Any) -> list[str]:
        found = axe.run(page, options={"preload": False}).response["violations"]
        return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found if one["impact"] in SERIOUS]

    return find


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        if os.environ.get("FEDGE_TEST_EVERYTHING"):
            raise
        pytest.skip(f"a disk cannot be mounted here: {error}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
