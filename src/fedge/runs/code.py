"""Users' own files and packages, noted with the runs that they made: a run does not continue with others unnoticed."""

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
_REMEDY = "put it back as it was, or accept the change with --accept-code"

Hashes = dict[str, str]
"""The SHA-256, in hex, of each file by its path, and the version of each package by its name."""


def hash_code(sources: Sources) -> Hashes:
    """Return the hashes of files, given by their content; of packages, their versions."""
    return {
        path: sha256(content).hexdigest() if isinstance(content, bytes) else content
        for path, content in sorted(sources.items())
    }


def copy_code(run: Path, sources: Sources) -> None:
    """Put copies of files into a run directory, named after the file and its hash."""
    for path, content in sources.items():
        if isinstance(content, str):  # a package
            continue
        file = run / CODE / _name_copy(path, sha256(content).hexdigest())
        file.parent.mkdir(exist_ok=True)
        write_atomic(file, content)


def check_code(run: Path, known: Hashes, found: Hashes) -> None:
    """Raise a RunError that names a file which is not the one that the run was made with."""
    for path in sorted(known.keys() | found.keys()):
        before, now = known.get(path), found.get(path)
        if before == now:
            continue
        if not Path(path).is_absolute():
            raise RunError(
                f"{run} was made with {path} {before or '(not used)'}, and now has {path} {now or '(not used)'}. "
                f"Either {_REMEDY}"
            )
        copy = f"; its copy is {run / CODE / _name_copy(path, before)}" if before else ""
        raise RunError(f"{path} is not the file that {run} was made with{copy}. Either {_REMEDY}")


def agree_on_code(folder: Path, sources: Sources) -> None:
    """Raise a RunError if another run below the folder, of a sweep or of repeats, was made with other files.

    The first run to bring a file decides; runs in several processes may do so at once.
    """
    for path, digest in hash_code(sources).items():
        with writing(folder / CODE, "start again"):
            first = _settle(folder / CODE / f"{Path(path).stem}-{sha256(path.encode()).hexdigest()[:12]}", digest)
        if first != digest:
            raise RunError(f"{path} is not the file that other runs in {folder} were made with. Either {_REMEDY}")


def forget_code(folder: Path) -> None:
    """Let the next runs below a folder decide what its files are."""
    with writing(folder / CODE, "start again"):
        if (folder / CODE).exists():
            rmtree(folder / CODE)


def _settle(mark: Path, digest: str) -> str:
    """Return what a mark says; write it, whole or not at all, if there is none."""
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
