"""Functions that users write in their own files and name as `path/to/file.py:function`.

A file may import others from its folder, as if it were run by Python. Neither they nor the folder become visible to
anyone else: modules get names of their own, and `sys.path` stays as it is.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb
from types import CodeType, ModuleType
from typing import Any

from fedge.core.errors import ConfigError
from fedge.core.schema import nearest

MODULE_PREFIX = "fedge_user_"
"""How the names of users' files begin, as modules: no other process can import them."""

_sources: ContextVar[dict[str, bytes] | None] = ContextVar("_sources", default=None)


def load_function(reference: str, where: str) -> Callable[..., Any]:
    """The function of that name; `where` is the configuration path that a problem is reported under."""
    path, name = _parse(reference, where)
    if not path.is_file():
        raise ConfigError(f"{where}: there is no file {path}; give the path of an existing Python file")
    before = set(sys.modules)
    try:
        module = _Folder(path.parent).load(path)
    except (Exception, SystemExit) as error:
        for new in set(sys.modules) - before:
            if new.startswith(MODULE_PREFIX):
                del sys.modules[new]
        raise ConfigError(f"{where}: {path} failed on import: {describe(error, reference)}") from error
    if not hasattr(module, name):
        names = [known for known, value in vars(module).items() if callable(value) and not known.startswith("_")]
        raise ConfigError(f"{where}: {path} defines no {name!r}{nearest(name, names)}")
    function = getattr(module, name)
    if not callable(function):
        raise ConfigError(f"{where}: {name!r} in {path} must be a function, got {type(function).__name__}")
    return function  # type: ignore[no-any-return]


@contextmanager
def noting_sources() -> Iterator[Mapping[str, bytes]]:
    """The content, by path, of all users' files that are read meanwhile, with what they import from their folders."""
    noted: dict[str, bytes] = {}
    token = _sources.set(noted)
    try:
        yield noted
    finally:
        _sources.reset(token)


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


class _Folder:
    """The modules of a folder, as the file that was loaded from it sees them; each is read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._modules: dict[Path, ModuleType] = {}

    def load(self, path: Path) -> ModuleType:
        """Return the module in a file, or in a package by its `__init__.py`."""
        if path in self._modules:
            return self._modules[path]
        # The name carries the path's hash: two files called data.py must not replace each other.
        name = f"{MODULE_PREFIX}{path.stem}_{blake2b(str(path).encode(), digest_size=8).hexdigest()}"
        for old in [known for known in sys.modules if known.startswith(f"{name}.")]:
            del sys.modules[old]  # parts of the package as it was when it was last read
        spec = spec_from_file_location(
            name,
            path,
            loader=_Loader(name, str(path), self),
            submodule_search_locations=[str(path.parent)] if path.name == "__init__.py" else None,
        )
        assert spec is not None
        assert spec.loader is not None
        module = self._modules[path] = sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(module)  # dataclasses and pickle look a class's module up in sys.modules
        return module

    def import_module(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> ModuleType:
        """Do what an import statement of a file in this folder does: what lies in the folder comes first."""
        top, dot, rest = name.partition(".")
        if level == 0 and (path := self._find(top)) is not None:
            name = self.load(path).__name__ + dot + rest
        return builtins.__import__(name, globals, locals, fromlist, level)

    def _find(self, name: str) -> Path | None:
        places = (self._folder / name / "__init__.py", self._folder / f"{name}.py")
        return next((place for place in places if place.is_file()), None)


class _Loader(SourceFileLoader):
    """Runs a file as it is now, never from a cache, with the imports of its folder."""

    def __init__(self, name: str, path: str, folder: _Folder) -> None:
        super().__init__(name, path)
        self.folder = folder

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_data(self.path)
        if (noted := _sources.get()) is not None:
            noted[self.path] = source
        return self.source_to_code(source, self.path)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": self.folder.import_module}
        super().exec_module(module)


class _PartsOfPackages(MetaPathFinder):
    """Finds the modules inside of users' packages, and nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top = sys.modules.get(fullname.partition(".")[0])
        loader = top and top.__spec__ and top.__spec__.loader
        if path is None or not isinstance(loader, _Loader):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path, loader.folder)
        return spec


sys.meta_path.insert(0, _PartsOfPackages())
