"""Fixtures of the end-to-end tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """The folder for runs."""
    return tmp_path / "runs"
