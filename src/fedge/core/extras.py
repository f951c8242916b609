"""Modules of optional extras, imported when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fedge.core.errors import FedgeError


def need(module: str, extra: str, what: str = "this needs", package: str = "") -> Any:
    """Return a module. Raises FedgeError that names the extra if it is not installed.

    The message begins with `what`, such as "images need", and names the package, by default the module's first part.
    """
    try:
        return import_module(module)
    except ImportError:
        name = package or module.partition(".")[0]
        raise FedgeError(f"{what} {name}, which is not installed; pip install 'fedge[{extra}]'") from None
