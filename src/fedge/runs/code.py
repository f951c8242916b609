"""User files and packages, recorded with each run so that it does not silently resume with changed code."""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from tempfile import NamedTemporaryFile

from fedge.core.errors import RunError
from fedge.core.parts import Sources
from fedge.core.storage import write_atomic, writing

CODE = "code"
_REMEDY = "restore it, or accept the change with --accept-code"

Hashes = dict[str, str]
"""The hex SHA-256 of each file by path, and the version of each package by name."""


def hash_code(sources: Sources) -> Hashes:
    """Return the hash of each file's content, and the version of each package."""
    return {
        path: sha256(content).hexdigest() if isinstance(content, bytes) else content
        for path, content in sorted(sources.items())
    }


def copy_code(run: Path, sources: Sources) -> None:
    """Copy files into a run directory, named after the file and its hash."""
    for path, content in sources.items():
        if isinstance(content, str):  # a package
            continue
        file = run / CODE / _name_copy(path, sha256(content).hexdigest())
        file.parent.mkdir(exist_ok=True)
        write_atomic(file, content)


def check_code(run: Path, known: Hashes, found: Hashes) -> None:
    """Raise a RunError that names the first file or package that differs from the one the run was made with."""
    for path in sorted(known.keys() | found.keys()):
        before, now = known.get(path), found.get(path)
        if before == now:
            continue
        if not Path(path).is_absolute():
            raise RunError(
                f"{run} was made with {path} {before or '(not used)'}, but now has {path} {now or '(not used)'}. "
                f"Either {_REMEDY}"
            )
        copy = f"; its copy is {run / CODE / _name_copy(path, before)}" if before else ""
        raise RunError(f"{path} is not the file that {run} was made with{copy}. Either {_REMEDY}")


def agree_on_code(folder: Path, sources: Sources) -> None:
    """Raise a RunError if another run below the folder, of a sweep or of repeats, was made with different files.

    The first run to use a file decides. Runs in several processes may call this concurrently.
    """
    for path, digest in hash_code(sources).items():
        with writing(folder / CODE, "start again"):
            first = _settle(folder / CODE / f"{Path(path).stem}-{sha256(path.encode()).hexdigest()[:12]}", digest)
        if first != digest:
            raise RunError(f"{path} is not the file that other runs in {folder} were made with. Either {_REMEDY}")


def forget_code(folder: Path) -> None:
    """Forget the files recorded for a folder, so that the next runs below it decide anew."""
    with writing(folder / CODE, "start again"):
        if (folder / CODE).exists():
            rmtree(folder / CODE)


def _settle(mark: Path, digest: str) -> str:
    """Return the digest in a mark file; if there is none, write it atomically."""
    if not mark.exists():
        mark.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=mark.parent) as file:
            file.write(digest)
            file.flush()
            with suppress(FileExistsError):
                os.link(file.name, mark)
    return mark.read_text()


def _name_copy(path: str, digest: str) -> str:
    return f"{Path(path).stem}-{digest[:12]}.py"
