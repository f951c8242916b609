"""Loading of functions and classes from users' files, named as `path/to/file.py:name`.

A file may import other files from its folder, as if it were run by Python. Neither they nor the folder become visible
to other code: modules get unique names, and `sys.path` does not change.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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

from fedge.core.errors import ConfigError, nearest

_PREFIX = "fedge_user_"  # of the module names of users' files

_sources: ContextVar[dict[str, bytes] | None] = ContextVar("_sources", default=None)


def load_function(reference: str, where: str) -> Callable[..., Any]:
    """Return the function of that name; raises ConfigError, with the configuration path `where`, if it is not one."""
    function, module = load_object(reference, where)
    if not callable(function):
        name = reference.rpartition(":")[2]
        raise ConfigError(f"{where}: {name!r} in {module.__file__} must be a function, got {type(function).__name__}")
    return function


def load_object(reference: str, where: str) -> tuple[object, ModuleType]:
    """Return the object that `path/to/file.py:name` refers to and its module; raises ConfigError if there is none."""
    path, name = _parse(reference, where)
    module = _load_file(path, where)
    if not hasattr(module, name):
        names = [known for known, value in vars(module).items() if callable(value) and not known.startswith("_")]
        raise ConfigError(f"{where}: {path} defines no {name!r}{nearest(name, names)}; {_listed(path)}")
    return getattr(module, name), module


def _load_file(path: Path, where: str) -> ModuleType:
    """Return the module of a file; it runs again only if the file, or one that it imports, has changed."""
    if not path.is_file():
        raise ConfigError(f"{where}: there is no file {path}; give the path of an existing Python file")
    folder = _folder_of(sys.modules.get(_name(path, path)))
    if folder is None or not folder.is_current:
        folder = _Folder(path)
    try:
        module = folder.load(path)
    except (Exception, SystemExit) as error:
        for name in [name for name, module in sys.modules.items() if _folder_of(module) is folder]:
            del sys.modules[name]
        raise ConfigError(f"{where}: {path} failed on import: {describe(error, f'{path}:')}") from error
    return module


def sources_of(module: ModuleType) -> Mapping[str, bytes]:
    """Return the content, by path, of a user's file and of all files that it imports from its folder on loading."""
    folder = _folder_of(module)
    return folder.needs(folder.root) if folder else {}


def loaded_files() -> list[tuple[str, dict[str, bytes]]]:
    """Return the users' files loaded in this process, each with its sources, for `adopt` in another process."""
    found = [(module, _folder_of(module)) for module in list(sys.modules.values())]
    return [
        (str(folder.root), dict(folder.sources))
        for module, folder in found
        if folder and module.__file__ == str(folder.root)
    ]


def adopt(files: Sequence[tuple[str, Mapping[str, bytes]]]) -> None:
    """Load files of another process under the same module names; they need not exist on this machine."""
    for file, sources in files:
        _Folder(Path(file), sources).load(Path(file))


@contextmanager
def noting_sources() -> Iterator[Mapping[str, bytes]]:
    """Collect the content, by path, of all users' files read inside the block, including their imports."""
    noted: dict[str, bytes] = {}
    token = _sources.set(noted)
    try:
        yield noted
    finally:
        _sources.reset(token)


def describe(error: BaseException, reference: str, source: bool = True) -> str:
    """Return a message with the exception that a user's code raised and its line; with the line's text if `source`."""
    path = str(_path(reference.rpartition(":")[0]))
    frames = [frame for frame in extract_tb(error.__traceback__) if frame.filename == path]
    line = f": {frames[-1].line}" if frames and source else ""
    place = f" (line {frames[-1].lineno} of {path}{line})" if frames else ""
    if isinstance(error, SyntaxError) and error.filename == path:
        place = f" (line {error.lineno} of {path}: {(error.text or '').strip()})"
        return f"{type(error).__name__}: {error.msg}{place}"
    return f"{type(error).__name__}: {error}{place}"


def _parse(reference: str, where: str) -> tuple[Path, str]:
    file, _, name = reference.rpartition(":")
    if reference.endswith(".py") and (path := _path(reference)).is_file():
        raise ConfigError(f"{where}: expected {reference}:NAME, got a file without a name; {_listed(path)}")
    if not file.endswith(".py") or not name.isidentifier():
        raise ConfigError(f"{where}: expected path/to/file.py:NAME, got {reference!r}")
    return _path(file), name


def _listed(path: Path) -> str:
    """Return a list of the classes and functions of a file, as text, without running it."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        body = []
    names = [node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    public = ", ".join(name for name in names if not name.startswith("_"))
    return f"it defines {public}" if public else "it defines no class and no function: write one there"


def _path(file: str) -> Path:
    return Path(file).expanduser().resolve()


def _name(root: Path, path: Path) -> str:
    """Return a module name with a hash of both paths, so that files of the same name do not replace each other."""
    digest = blake2b(f"{root}\0{path}".encode(), digest_size=8).hexdigest()
    return f"{_PREFIX}{path.stem}_{digest}"


def _folder_of(module: ModuleType | None) -> _Folder | None:
    spec = getattr(module, "__spec__", None)
    loader = getattr(spec, "loader", None)
    return loader.folder if isinstance(loader, _Loader) else None


class _Folder:
    """The modules of a folder as seen from one of its files, the root; each is read once."""

    def __init__(self, root: Path, given: Mapping[str, bytes] | None = None) -> None:
        """With `given`, files are read from this mapping and not from the disk."""
        self.root = root
        self.sources: dict[str, bytes] = {}
        self._given = given
        self._modules: dict[Path, ModuleType] = {}
        self._needs: dict[Path, set[str]] = {}  # files that each loaded module depends on
        self._loading: list[set[str]] = []  # the same for modules being loaded, outermost first

    @property
    def is_current(self) -> bool:
        """Whether no file has changed since it was read."""
        try:
            return all(Path(path).read_bytes() == content for path, content in self.sources.items())
        except OSError:
            return False

    def load(self, path: Path) -> ModuleType:
        """Return the module of a file, or of a package by its `__init__.py`."""
        if path not in self._modules:
            self._loading.append(set())
            try:
                self._run(path)
            finally:
                self._needs[path] = self._loading.pop()
        self._note(self._needs.get(path, ()))  # empty while the module is being loaded
        return self._modules[path]

    def needs(self, path: Path) -> dict[str, bytes]:
        """Return the content of a module's file and of the files that it imports on loading."""
        return {file: self.sources[file] for file in self._needs[path]}

    def _run(self, path: Path) -> None:
        name = _name(self.root, path)
        for old in [known for known in sys.modules if known.startswith(f"{name}.")]:
            del sys.modules[old]  # outdated submodules of the package
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

    def read(self, path: str) -> bytes:
        """Return the content of a file and record that it was read."""
        content = self.sources[path] = Path(path).read_bytes() if self._given is None else self._given[path]
        self._note([path])
        return content

    def _note(self, paths: Iterable[str]) -> None:
        if self._loading:
            self._loading[-1].update(paths)
        if (noted := _sources.get()) is not None:
            noted |= {path: self.sources[path] for path in paths}

    def has(self, path: Path) -> bool:
        return path.is_file() if self._given is None else str(path) in self._given

    def import_module(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> ModuleType:
        """Import a module for a file in this folder; modules in the folder take precedence."""
        top, dot, rest = name.partition(".")
        if level == 0 and (path := self._find(top)) is not None:
            name = self.load(path).__name__ + dot + rest
        return builtins.__import__(name, globals, locals, fromlist, level)

    def _find(self, name: str) -> Path | None:
        places = (self.root.parent / name / "__init__.py", self.root.parent / f"{name}.py")
        return next(filter(self.has, places), None)


class _Loader(SourceFileLoader):
    """Runs the current content of a file, never a cached version, with the imports of its folder."""

    def __init__(self, name: str, path: str, folder: _Folder) -> None:
        super().__init__(name, path)
        self.folder = folder

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.folder.read(self.path), self.path)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": self.folder.import_module}
        super().exec_module(module)


class _PartsOfPackages(MetaPathFinder):
    """Finds modules inside users' packages, and nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        folder = _folder_of(sys.modules.get(fullname.partition(".")[0]))
        if path is None or folder is None:
            return None
        for place in path:
            inner = Path(place, fullname.rpartition(".")[2])
            for file in filter(folder.has, (inner / "__init__.py", inner.with_suffix(".py"))):
                places = [str(inner)] if file.parent == inner else None
                loader = _Loader(fullname, str(file), folder)
                return spec_from_file_location(fullname, file, loader=loader, submodule_search_locations=places)
        return PathFinder.find_spec(fullname, path, target)


sys.meta_path.insert(0, _PartsOfPackages())
