"""Processes without some modules; imports nothing from fedge, because that would import the hidden modules."""

import sys
from collections.abc import Sequence
from importlib import metadata


class _Hiding:
    """A finder that reports some modules as missing."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(self, name: str, *_: object) -> None:
        if name in self._names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def hide(names: Sequence[str]) -> None:
    """Make some modules appear not installed in this process."""
    for loaded in [loaded for loaded in sys.modules if loaded.partition(".")[0] in names]:
        del sys.modules[loaded]
    sys.meta_path.insert(0, _Hiding(names))
    known = metadata.version

    def version(name: str) -> str:
        if name.replace("-", "_").removesuffix("_python") in names:
            raise metadata.PackageNotFoundError(name)
        return known(name)

    metadata.version = version
