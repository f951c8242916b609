"""Objects that a Python program lends to its runs: modules, functions and arrays, which no file can name.

A configuration has their digest. While a block lends them, whatever the configuration builds finds them by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

PYTHON = "python"
"""The name of such a part in a configuration."""

_lent: ContextVar[Mapping[str, Any] | None] = ContextVar("_lent", default=None)


@contextmanager
def lending(objects: Mapping[str, Any]) -> Iterator[None]:
    """Lend objects, by their digests, to whatever is built in this block."""
    token = _lent.set({**(_lent.get() or {}), **objects})
    try:
        yield
    finally:
        _lent.reset(token)


def borrow(digest: str) -> Any:
    """Return the object that is lent with this digest; None if there is none."""
    return (_lent.get() or {}).get(digest)


def explain_missing(part: str, type: str) -> str:
    """Say why something that only a Python program has cannot be built here, and what to do."""
    return (
        f"{part}: {type!r} was given from Python, and only the program that started the run has it; "
        "continue the run there with Experiment.run(resume=True)"
    )
