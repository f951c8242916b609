"""Where the runs of a test are kept."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Where runs are kept."""
    return tmp_path / "runs"
