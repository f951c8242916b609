"""The files that a client's owner lets a server use: code and weights, known by their content.

A server names a file by its content and never by a path, so it cannot choose which local file is run. What the owner
did not name with `--allow` is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from fedge.core.errors import ConfigError
from fedge.core.printable import printable

_SHOWN = 12  # digits of a hash, in messages


class FileReference(Struct, frozen=True, forbid_unknown_fields=True):
    """A file that a server's plan needs, as it travels. The name is for messages alone."""

    file: Annotated[str, Meta(min_length=1, max_length=255)]
    function: Annotated[str, Meta(max_length=255)] | None  # None: data, such as weights
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]

    @staticmethod
    def of(path: Path, function: str | None = None) -> FileReference:
        """Return the reference of a file that exists; an OSError if it cannot be read."""
        return FileReference(path.name, function, hash_file(path))


class _Allowed(NamedTuple):
    """One `--allow`."""

    path: Path
    function: str | None  # None: any function of the file

    def covers(self, reference: FileReference) -> bool:
        return self.function in (None, reference.function)


class AllowedFiles:
    """The files that an owner named: `FILE`, or `FILE.py:FUNCTION` for one function of it."""

    def __init__(self, allow: Sequence[str] = ()) -> None:
        """Raise a ConfigError for a file that is not there."""
        self._allowed = [_read(text) for text in allow]

    def find(self, reference: FileReference, where: str) -> Path:
        """Return the owner's file that a reference means, by its content as it is now.

        Raises a ConfigError that says what to allow; `where` is the setting that the server needs it for.
        """
        same = [allowed for allowed in self._allowed if _hash(allowed.path) == reference.sha256]
        for allowed in same:
            if allowed.covers(reference):
                return allowed.path
        name = printable(reference.file)
        asked = f"{name}:{printable(reference.function)}" if reference.function is not None else name
        problem = f"{where}: the server asks for {asked} (SHA-256 {reference.sha256[:_SHOWN]}...)"
        if same:
            functions = ", ".join(str(allowed.function) for allowed in same)
            raise ConfigError(
                f"{problem}, and of that file you allow {functions} only; if you trust it, add --allow {same[0].path}"
            )
        if namesake := next((allowed.path for allowed in self._allowed if allowed.path.name == reference.file), None):
            raise ConfigError(
                f"{problem}, and {namesake}, which you allow, has other content (SHA-256 "
                f"{(_hash(namesake) or 'unknown')[:_SHOWN]}...); get the same file as the server"
            )
        raise ConfigError(
            f"{problem}, which you have not allowed; get the file from the server's owner, read it, and if you trust "
            f"it add --allow path/to/{name}"
        )


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file's content in hex; an OSError if it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hash(path: Path) -> str | None:
    try:
        return hash_file(path)
    except OSError:  # removed since the start: it no longer is what anyone asks for
        return None


def _read(text: str) -> _Allowed:
    file, colon, function = text.rpartition(":")
    if not (colon and file.endswith(".py")):
        file, function = text, ""
    path = Path(file).expanduser().resolve()
    try:
        path.open("rb").close()
    except OSError as error:
        raise ConfigError(
            f"--allow {text}: {path} cannot be read ({error.strerror}); expected FILE or FILE.py:FUNCTION"
        ) from None
    if function and not function.isidentifier():
        raise ConfigError(f"--allow {text}: expected FILE.py:FUNCTION, got {function!r} for the function")
    return _Allowed(path, function or None)
