"""A page on fake runs, requested without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from benchmarks.page_runs import make_run
from jinja2 import BytecodeCache, Environment
from jinja2.bccache import Bucket
from starlette.testclient import TestClient

from e2e.command import Fedge
from fedge.view import pages
from fedge.view.app import make_app
from fedge.view.guard import AccessRules
from fedge.view.workspace import Workspace
from view.view_server import ViewServer


class CompiledOnce(BytecodeCache):
    """Templates, compiled once for all tests."""

    def __init__(self) -> None:
        self._compiled: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if bucket.key in self._compiled:
            bucket.bytecode_from_string(self._compiled[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._compiled[bucket.key] = bucket.bytecode_to_string()


pages.Environment = partial(Environment, bytecode_cache=CompiledOnce())  # type: ignore[misc, assignment]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache, away from the real one."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two settings with three seeds each, an unfinished run and a damaged one."""
    folder = tmp_path / "runs"
    for rate in (0.1, 0.3):
        for seed in (1, 2, 3):
            make_run(folder / f"rate-{rate}" / f"seed-{seed}", seed, 10, rate)
    make_run(folder / "begun" / "seed-1", 1, 4, finished=False)
    (make_run(folder / "broken" / "seed-1") / "rounds.jsonl").write_text('{"round": 1}\nnonsense\n')
    return folder


@pytest.fixture
def open_page(tmp_path: Path) -> Callable[..., TestClient]:
    """open_page(folder, rules): a client that has the token."""

    def make(folder: Path, rules: AccessRules | None = None, trusted: bool = True) -> TestClient:
        rules = rules or AccessRules()
        client = TestClient(
            make_app(Workspace(folder), rules), base_url="http://localhost", raise_server_exceptions=False
        )
        if trusted:
            client.headers["Authorization"] = f"Bearer {rules.token}"
        return client

    return make


@pytest.fixture
def page(runs: Path, open_page: Callable[..., TestClient]) -> TestClient:
    return open_page(runs)


@pytest.fixture
def start_view(fedge: Fedge, cache: Path) -> Iterator[Callable[..., ViewServer]]:
    """start_view(folder, *options): a real `fedge view`, which ends with the test; keywords are those of `start`."""
    with ExitStack() as started:

        def start(folder: Path, *options: object, environment: dict[str, str] | None = None, **how: Any) -> ViewServer:
            environment = {"XDG_CACHE_HOME": str(cache)} | (environment or {})
            return ViewServer(
                started.enter_context(fedge.start("view", folder, *options, environment=environment, **how))
            )

        yield start
