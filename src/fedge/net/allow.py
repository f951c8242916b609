"""Code and weights that a client allows a server to use: files and installed packages.

A server refers to a file by the hash of its content, never by path, so it cannot choose which local file is run.
Anything that is not listed with `--allow` is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from fedge.core.errors import ConfigError
from fedge.core.printable import printable
from fedge.core.storage import hash_file

_SHOWN = 12  # digits of a hash in messages


class FileReference(Struct, frozen=True, forbid_unknown_fields=True):
    """A reference to a file in a server's plan. The name is used in messages only."""

    file: Annotated[str, Meta(min_length=1, max_length=255)]
    function: Annotated[str, Meta(max_length=255)] | None  # None: data, such as weights
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]

    @staticmethod
    def of(path: Path, function: str | None = None) -> FileReference:
        """Return a reference to an existing file; raise an OSError if it cannot be read."""
        return FileReference(path.name, function, hash_file(path))


class _Allowed(NamedTuple):
    """One `--allow FILE` option."""

    path: Path
    function: str | None  # None: any function in the file

    def covers(self, reference: FileReference) -> bool:
        return self.function in (None, reference.function)


class AllowedParts:
    """The parts that `--allow` lists: `FILE`, `FILE.py:NAME` for one class or function, or an installed package."""

    def __init__(self, allow: Sequence[str] = ()) -> None:
        """Raise a ConfigError for a part that is neither a readable file nor an installed package."""
        self._packages = {text for text in allow if not Path(text).expanduser().exists() and _is_package(text)}
        self._allowed = [_read(text) for text in allow if text not in self._packages]

    def check_package(self, package: str, version: str, told: str | None, where: str) -> None:
        """Raise a ConfigError if an installed package is not allowed, or differs from the server's version `told`."""
        if package not in self._packages:
            raise ConfigError(
                f"{where}: the server asks for the package {package}, which is not allowed; if you trust it, add "
                f"--allow {package}"
            )
        if version != told:
            raise ConfigError(
                f"{where}: expected the server's version {printable(told or '(unknown)')} of the package {package}, "
                f"got {version}; install the same version"
            )

    def find(self, reference: FileReference, where: str) -> Path:
        """Return the allowed file whose current content matches a reference.

        Raises a ConfigError that names what to allow; `where` is the setting that the server needs it for.
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
                f"{problem}, but only {functions} is allowed from that file; if you trust it, add --allow "
                f"{same[0].path}"
            )
        if namesake := next((allowed.path for allowed in self._allowed if allowed.path.name == reference.file), None):
            raise ConfigError(
                f"{problem}, but the allowed file {namesake} has other content (SHA-256 "
                f"{(_hash(namesake) or 'unknown')[:_SHOWN]}...); get the same file as the server"
            )
        raise ConfigError(
            f"{problem}, which is not allowed; get the file from the server's operator, read it, and if you trust "
            f"it add --allow path/to/{name}"
        )


class OwnersRules:
    """Resolves the names in a server's plan to allowed parts; keeps the problems of those that it refused."""

    def __init__(self, allowed: AllowedParts, files: Mapping[str, str], packages: Mapping[str, str]) -> None:
        """`files` and `packages` are the server's hashes and versions by name."""
        self._allowed, self._files, self._packages = allowed, files, packages
        self.refused: list[str] = []

    def find_file(self, reference: str, where: str) -> str:
        file, _, name = reference.rpartition(":")
        told = FileReference(file, name, self._files.get(file, ""))
        with self._noting():
            return f"{self._allowed.find(told, where)}:{name}"

    def check_package(self, package: str, version: str, where: str) -> None:
        with self._noting():
            self._allowed.check_package(package, version, self._packages.get(package), where)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except ConfigError as error:
            self.refused += error.problems
            raise


def _hash(path: Path) -> str | None:
    try:
        return hash_file(path)
    except OSError:  # removed since the start, so it matches no reference
        return None


def _is_package(text: str) -> bool:
    try:
        return bool(distribution(text).name)
    except (PackageNotFoundError, ValueError):
        return False


def _read(text: str) -> _Allowed:
    file, colon, function = text.rpartition(":")
    if not (colon and file.endswith(".py")):
        file, function = text, ""
    path = Path(file).expanduser().resolve()
    try:
        path.open("rb").close()
    except OSError as error:
        raise ConfigError(
            f"--allow {text}: cannot read {path} ({error.strerror}); expected FILE, FILE.py:NAME or a package"
        ) from None
    if function and not function.isidentifier():
        raise ConfigError(f"--allow {text}: expected FILE.py:NAME, got the name {function!r}")
    return _Allowed(path, function or None)
