"""Functions that users write in their own files and name as `path/to/file.py:function`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from hashlib import blake2b
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any

from fedge.core.errors import ConfigError
from fedge.core.schema import nearest

MODULE_PREFIX = "fedge_user_"
"""How the names of users' files begin, as modules: no other process can import them."""


def load_function(reference: str, where: str) -> Callable[..., Any]:
    """The function of that name; `where` is the configuration path that a problem is reported under."""
    path, name = _parse(reference, where)
    if not path.is_file():
        raise ConfigError(f"{where}: there is no file {path}; give the path of an existing Python file")
    module = _import(path, reference, where)
    if not hasattr(module, name):
        names = [known for known, value in vars(module).items() if callable(value) and not known.startswith("_")]
        raise ConfigError(f"{where}: {path} defines no {name!r}{nearest(name, names)}")
    function = getattr(module, name)
    if not callable(function):
        raise ConfigError(f"{where}: {name!r} in {path} must be a function, got {type(function).__name__}")
    return function  # type: ignore[no-any-return]


def describe(error: BaseException, reference: str) -> str:
    """What a user's code raised, and in which line of their file."""
    path = str(_path(reference.rpartition(":")[0]))
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == path]
    place = f" (line {lines[-1]} of {path})" if lines else ""
    return f"{type(error).__name__}: {error}{place}"


def _parse(reference: str, where: str) -> tuple[Path, str]:
    file, _, name = reference.rpartition(":")
    if not file.endswith(".py") or not name.isidentifier():
        raise ConfigError(f"{where}: expected path/to/file.py:function, got {reference!r}")
    return _path(file), name


def _path(file: str) -> Path:
    return Path(file).expanduser().resolve()


def _import(path: Path, reference: str, where: str) -> ModuleType:
    # The name carries the path's hash: two files called data.py must not replace each other.
    name = f"{MODULE_PREFIX}{path.stem}_{blake2b(str(path).encode(), digest_size=8).hexdigest()}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{where}: {path} cannot be imported as a Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look a class's module up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ConfigError(f"{where}: {path} failed on import: {describe(error, reference)}") from error
    return module
