"""User-defined parts: classes and functions that a configuration names in place of a built-in part.

`path/to/file.py:Name` refers to a user's file and `python:Name@digest` to an object lent by a Python program; any other
name is looked up in the entry points of installed packages. The object found becomes a kind of options tagged with the
name as written, so it is validated like a built-in one, and a saved configuration contains the same name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, NamedTuple, Protocol, cast

from msgspec import Struct

from fedge.core.errors import ConfigError
from fedge.core.lent import PYTHON, borrow, explain_missing
from fedge.core.userfile import describe, load_object, noting_sources, sources_of

Sources = Mapping[str, bytes | str]
"""The code a run was made with: users' files (content by path) and installed packages (version by name)."""


class Part(NamedTuple):
    """A family of options, such as algorithms. User-defined classes derive from the class that declares the part."""

    word: str  # its name in messages
    group: str  # its group of entry points
    home: str = ""  # the module that authors import the class from, if not the declaring one


class Origin(NamedTuple):
    """The origin of a part that is not built in."""

    name: str  # as written in the configuration
    file: str  # empty: an installed package
    sources: Sources


class Permission(Protocol):
    """Decides which code a configuration from another machine may use; methods raise ConfigError to deny it."""

    def find_file(self, reference: str, where: str) -> str:
        """Return the corresponding reference with a path on this machine."""

    def check_package(self, package: str, version: str, where: str) -> None: ...


_permission: ContextVar[Permission | None] = ContextVar("_permission", default=None)


@contextmanager
def permitting(permission: Permission) -> Iterator[None]:
    """Resolve names of parts under these rules inside the block."""
    token = _permission.set(permission)
    try:
        yield
    finally:
        _permission.reset(token)


def is_reference(name: str) -> bool:
    """Whether a name refers to a user's file."""
    return ".py:" in name or name.endswith(".py")


def find_own(name: str, kinds: Sequence[type[Struct]], where: str) -> type[Struct] | None:
    """Return the user-defined kind of options with this name, for the same part as `kinds`; None if there is none.

    Raises ConfigError, with the configuration path `where`, if the named object is not a valid kind of that part.
    """
    base = _base(kinds)
    if base is None:
        return None
    if name.startswith(f"{PYTHON}:"):
        if (lent := borrow(name)) is None:
            raise ConfigError(explain_missing(where, name.partition(":")[2]))
        return _fit(lent, base, kinds, name, (name, "lent"), where)
    permission = _permission.get()
    if is_reference(name):
        local = permission.find_file(name, where) if permission else name
        found, module = load_object(local, where)
        return _fit(found, base, kinds, name, module, where)
    entry = _find_entry(name, _part(base).group, where)
    if entry is None:
        return None
    package, version = _package(entry)
    if permission:
        permission.check_package(package, version, where)
    return _fit(load_entry(entry, where), base, kinds, name, (package, version), where)


def own_entries(kinds: Sequence[type[Struct]]) -> list[EntryPoint]:
    """Return the entry points of installed packages for the part of these kinds, without importing them."""
    base = _base(kinds)
    return [] if base is None else sorted(entry_points(group=_part(base).group), key=lambda entry: entry.name)


def load_entry(entry: EntryPoint, where: str) -> object:
    """Import and return the object of an entry point; raises ConfigError if that fails."""
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        package, version = _package(entry)
        problem = f"{entry.name!r} of the package {package} {version} cannot be imported from {entry.value}"
        raise ConfigError(f"{where}: {problem}: {type(error).__name__}: {error}") from error


@contextmanager
def noting_parts(options: Struct) -> Iterator[dict[str, bytes | str]]:
    """Collect the sources of all parts in the options, at any depth, and of what they import inside the block.

    The result is complete when the block ends.
    """
    found = dict(_sources_of_parts(options))
    with noting_sources() as noted:
        yield found
    found |= noted


def _sources_of_parts(options: Struct) -> Iterator[tuple[str, bytes | str]]:
    origin: Origin | None = getattr(type(options), "origin", None)
    yield from origin.sources.items() if origin else ()
    for inner in _inner(options):
        yield from _sources_of_parts(inner)


def origin_of(options: Struct) -> Origin:
    """Return the origin of options that are not built in."""
    origin: Origin | None = getattr(type(options), "origin", None)
    assert origin is not None
    return origin


def explain(error: BaseException, options: Struct) -> str:
    """Return a message with the exception that a part's code raised and the line of its file."""
    origin = origin_of(options)
    return f"{origin.name} failed: {describe(error, f'{origin.file}:')}"


def short_name(name: str) -> str:
    """Return a name without the folder of its file: `mine.py:Name`."""
    path, extension, rest = name.partition(".py")
    return path.rpartition("/")[2] + extension + rest if is_reference(name) else name


def _inner(options: Struct) -> Iterator[Struct]:
    fields = (getattr(options, name) for name in options.__struct_fields__)
    further: Iterable[object] = getattr(options, "made_of", ())  # parts that are named inside strings
    for value in (*fields, *further):
        yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, Struct))


def _base(kinds: Sequence[type[Struct]]) -> type[Struct] | None:
    """Return the class that declares the part of these kinds; None if users cannot define their own."""
    bases = (base for kind in kinds for base in kind.__mro__ if vars(base).get("part"))
    return cast("type[Struct] | None", next(bases, None))


def _part(base: type[Struct]) -> Part:
    return cast(Part, vars(base)["part"])


def _find_entry(name: str, group: str, where: str) -> EntryPoint | None:
    found = {_package(entry): entry for entry in entry_points(group=group, name=name)}
    if len({package for package, _ in found}) > 1:
        packages = " and ".join(sorted(f"{package} {version}" for package, version in found))
        raise ConfigError(f"{where}: {packages} both register {name!r} as {group}; uninstall one of them")
    return next(iter(found.values()), None)


def _package(entry: EntryPoint) -> tuple[str, str]:
    return (entry.dist.name, entry.dist.version) if entry.dist else (entry.module, "unknown")


Home = ModuleType | tuple[str, str]
"""The module of a user's file, or the name and version of a package."""


def _fit(
    found: object, base: type[Struct], kinds: Sequence[type[Struct]], name: str, home: Home, where: str
) -> type[Struct]:
    """Return the object as a kind of options, or the kind that calls it if it is a function.

    Raises ConfigError if the object is neither.
    """
    caller = next((kind for kind in kinds if not kind.__struct_config__.tag), None)
    is_struct = isinstance(found, type) and issubclass(found, Struct)
    try:
        if is_struct and issubclass(cast(type, found), base) and found is not base:
            return _tagged(cast("type[Struct]", found), None, name, home)
        if caller is not None and callable(found) and not is_struct:
            return _tagged(caller, found, name, home)
    except (TypeError, ValueError) as error:  # for example a field called `name`
        raise ConfigError(f"{where}: {name} cannot be a kind of {_part(base).word}: {error}") from error
    part = _part(base)
    expected = f"a class derived from {base.__name__} of {part.home or base.__module__}"
    expected += " or a function" if caller else ""
    raise ConfigError(f"{where}: expected {name} to be {expected}, for {_an(part)}; got {_kind_of(found)}")


def _kind_of(found: object) -> str:
    if not isinstance(found, type):
        return "a function" if callable(found) else f"a value of type {type(found).__name__}"
    other = getattr(found, "part", None)
    return f"{_an(other)} of the class {found.__name__}" if isinstance(other, Part) else f"the class {found.__name__}"


def _an(part: Part) -> str:
    return f"{'an' if part.word[0] in 'aeiou' else 'a'} {part.word}"


@lru_cache
def _tagged(kind: type[Struct], function: Callable[..., Any] | None, name: str, home: Home) -> type[Struct]:
    """Return the kind tagged with the name as written. Cached, so that equal configurations have one class."""
    sources: Sources = sources_of(home) if isinstance(home, ModuleType) else {home[0]: home[1]}
    file = (home.__file__ or "") if isinstance(home, ModuleType) else ""
    members: dict[str, Any] = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__ if function is None else function.__doc__ or kind.__doc__,
        "__reduce__": _reduce,
        "origin": Origin(name, file, sources),
        "made_from": (kind, function, name, home.__name__ if isinstance(home, ModuleType) else home),
    }
    if function is not None:
        members["function"] = staticmethod(function)
    make: Any = type(kind)  # the metaclass of structs
    return cast("type[Struct]", make(kind.__name__, (kind,), members, tag=name, tag_field="name"))


def _reduce(options: Any) -> tuple[Any, ...]:
    """Pickle options for Ray; workers load the user's file under the same module name."""
    values = {name: getattr(options, name) for name in options.__struct_fields__}
    return _restore, (*type(options).made_from, values)


def _restore(kind: Any, function: Any, name: str, home: str | tuple[str, str], values: dict[str, Any]) -> Struct:
    found = sys.modules[home] if isinstance(home, str) else home
    return _tagged(kind, function, name, found)(**values)
