"""Fake runs in memory, with the attributes of a run directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fedge.core.effect import omit
from fedge.core.fields import Field
from fedge.runs.data_names import NO_NAMES, DataNames


@dataclass
class MadeUpRun:
    config: dict[str, Any]
    rounds: list[dict[str, Any]]
    summary: dict[str, Any] | None
    clients: list[dict[str, Any]]
    edge: Sequence[dict[str, Any]] = ()
    without_effect: Sequence[str] = ()
    path: Path = Path("made-up")
    own_fields: Mapping[str, Field] = field(default_factory=dict)
    names: DataNames = NO_NAMES

    @property
    def effective(self) -> dict[str, Any]:
        return omit(self.config, self.without_effect)


@pytest.fixture
def make_run() -> Callable[..., MadeUpRun]:
    """make_run(name, seed, rounds, summary, target=..., clients=..., without_effect=..., **settings)

    A summary of None: not finished.
    """

    def make(
        name: str = "first",
        seed: int = 1,
        rounds: list[dict[str, Any]] | None = None,
        summary: dict[str, Any] | None = None,
        target: dict[str, Any] | None = None,
        clients: list[dict[str, Any]] | None = None,
        without_effect: Sequence[str] = (),
        **settings: Any,
    ) -> MadeUpRun:
        config = {"name": name, "seed": seed, "target": target, **settings}
        return MadeUpRun(config, rounds or [], summary, clients or [], without_effect=without_effect)

    return make
