"""Objects that a Python program lends to its runs: modules, functions and arrays that a file cannot name.

A configuration refers to them by digest. Inside a `lending` block, code that builds from the configuration can borrow
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

PYTHON = "python"
"""The name of a lent part in a configuration."""

_lent: ContextVar[Mapping[str, Any] | None] = ContextVar("_lent", default=None)


@contextmanager
def lending(objects: Mapping[str, Any]) -> Iterator[None]:
    """Lend objects, by digest, to all code that runs in this block."""
    token = _lent.set({**(_lent.get() or {}), **objects})
    try:
        yield
    finally:
        _lent.reset(token)


def borrow(digest: str) -> Any:
    """Return the object lent under this digest; None if there is none."""
    return (_lent.get() or {}).get(digest)


def explain_missing(part: str, type: str) -> str:
    """Return the error message for a part that only another Python program can provide."""
    return (
        f"{part}: {type!r} was defined in Python, and only the program that started the run has it; "
        "resume the run from that program with Experiment.run(resume=True)"
    )
