"""Runs made up in memory, with the attributes of a run directory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass
class MadeUpRun:
    config: dict[str, Any]
    rounds: list[dict[str, Any]]
    summary: dict[str, Any] | None
    clients: list[dict[str, Any]]
    edge: Sequence[dict[str, Any]] = ()


@pytest.fixture
def make_run() -> Callable[..., MadeUpRun]:
    """make_run(name, seed, rounds, summary, target=..., clients=..., **settings); a summary of None: not finished."""

    def make(
        name: str = "first",
        seed: int = 1,
        rounds: list[dict[str, Any]] | None = None,
        summary: dict[str, Any] | None = None,
        target: dict[str, Any] | None = None,
        clients: list[dict[str, Any]] | None = None,
        **settings: Any,
    ) -> MadeUpRun:
        config = {"name": name, "seed": seed, "target": target, **settings}
        return MadeUpRun(config, rounds or [], summary, clients or [])

    return make
