"""The JavaScript that draws charts: built once for each version of vl-convert, by another process."""

from __future__ import annotations

import stat
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from fedge.core.errors import FedgeError
from fedge.view import vega_bundle
from fedge.view.vega_bundle import VegaBundle


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Records the commands that would build a bundle, which takes seconds."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> CompletedProcess[bytes]:
        commands.append(command)
        return CompletedProcess(command, 0, b"made %d" % len(commands), b"")

    monkeypatch.setattr(vega_bundle.subprocess, "run", run)
    return commands


def test_the_bundle_is_built_once_and_stored_with_private_permissions(made: list[list[str]], cache: Path) -> None:
    bundle = VegaBundle()
    assert bundle.read() == bundle.read() == VegaBundle().read() == b"made 1"
    assert len(made) == 1
    assert "window.vegaEmbed = vegaEmbed" in made[0][-1]
    folder = cache / "fedge" / "view"
    assert [(file.name, file.read_bytes()) for file in folder.iterdir()] == [(bundle.file_name, b"made 1")]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_another_version_has_its_own_bundle(made: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    first = VegaBundle()
    name = first.file_name
    assert first.read() == b"made 1"
    monkeypatch.setattr(vega_bundle, "version", lambda name: {"vl-convert-python": "99.1"}[name])
    second = VegaBundle()
    assert second.file_name == "vega-99.1.js" != name
    assert second.read() == b"made 2"


def test_an_empty_file_in_the_cache_is_rebuilt(made: list[list[str]], tmp_path: Path) -> None:
    bundle = VegaBundle(tmp_path)
    (tmp_path / bundle.file_name).write_bytes(b"")
    assert bundle.read() == (tmp_path / bundle.file_name).read_bytes() == b"made 1"


def test_a_cache_that_cannot_be_used_costs_time_only(made: list[list[str]], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    bundle = VegaBundle(tmp_path / "file")
    assert bundle.read() == bundle.read() == b"made 1"
    assert VegaBundle(tmp_path / "file").read() == b"made 2"


def test_a_failure_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(vega_bundle, "_MAKE", "import sys; sys.stdout.write('half'); sys.exit('no such\\xff module')")
    bundle = VegaBundle(tmp_path)
    with pytest.raises(FedgeError, match=r"^vl-convert could not bundle its JavaScript: no such"):
        bundle.read()
    assert list(tmp_path.iterdir()) == []


def test_another_process_builds_the_bundle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(vega_bundle, "_MAKE", "import sys; print('code', sys.argv[1][:11], end='')")
    assert VegaBundle(tmp_path).read() == b"code window.vega"
