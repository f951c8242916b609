"""The modules in `static/` have the types that their comments state."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import fedge.view

STATIC = Path(fedge.view.__file__).parent / "static"
TYPESCRIPT = "typescript@7.0.2"
OPTIONS = ["--noEmit", "--allowJs", "--checkJs", "--strict", "--target", "es2022", "--module", "es2022"]
OPTIONS += ["--lib", "es2022,dom,dom.iterable"]


@pytest.fixture(scope="module")
def tsc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiler, from the user's cache or fresh from npm."""
    folder = Path(os.environ.get("FEDGE_TEST_CACHE") or tmp_path_factory.mktemp("npm")) / TYPESCRIPT
    program = folder / "node_modules" / ".bin" / "tsc"
    if program.exists():
        return program
    try:
        if shutil.which("npm") is None:
            raise FileNotFoundError("npm is not installed: apt-get install nodejs npm")
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), TYPESCRIPT]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
    except (OSError, subprocess.SubprocessError) as error:
        if os.environ.get("FEDGE_TEST_EVERYTHING"):
            raise
        pytest.skip(f"TypeScript cannot be installed: {error}")
    return program


def check(tsc: Path, files: list[Path]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([tsc, *OPTIONS, *files], capture_output=True, text=True, timeout=300)


def test_types(tsc: Path) -> None:
    done = check(tsc, sorted(STATIC.glob("*.js")))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_type_is_found(tsc: Path, tmp_path: Path) -> None:
    file = tmp_path / "wrong.js"
    file.write_text("/** @type {number} */ export const number = document.title;\n")
    assert "TS2322" in check(tsc, [file]).stdout
