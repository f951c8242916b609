"""The `fedge` command as real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.command import Fedge


@pytest.fixture(scope="session")
def fedge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fedge]:
    """Start the command, or run it to its end."""
    with Fedge(tmp_path_factory.mktemp("output")) as command:
        yield command


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Where runs are kept."""
    return tmp_path / "runs"
