"""Digests of the bytecode of functions and classes, to detect whether two are the same program."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from types import CodeType, FunctionType
from typing import Any

_SIMPLE = (bool, int, float, complex, str, bytes, type(None))


def digest_code(source: Any) -> str:
    """Return the SHA-256, in hex, of the code of a function, class or callable object, excluding torch's own code."""
    found = sha256()
    for piece in _code_of(source, getattr(source, "__module__", None), set()):
        found.update(piece)
    return found.hexdigest()


def _code_of(thing: Any, home: str | None, seen: set[int]) -> Iterator[bytes]:
    """Yield the bytecode of a function or class, and of everything it uses from its own module.

    Unlike source, bytecode is also available for code typed in an interpreter, and comments do not change it.
    """
    if isinstance(thing, partial):
        yield repr(
            [repr(value) for value in (*thing.args, *sorted(thing.keywords.items())) if _is_simple(value)]
        ).encode()
        thing = thing.func
    thing = inspect.unwrap(getattr(thing, "__func__", thing))
    if id(thing) in seen or getattr(thing, "__module__", None) != home or (home or "").partition(".")[0] == "torch":
        return
    seen.add(id(thing))
    if isinstance(thing, type):
        yield thing.__qualname__.encode()
        for base in thing.__bases__:
            yield from _code_of(base, home, seen)
        for _, value in sorted(vars(thing).items()):
            for part in (value.fget, value.fset) if isinstance(value, property) else (value,):
                yield from _code_of(part, home, seen)
    elif isinstance(thing, FunctionType):
        yield from _code_bytes(thing.__code__)
        used = inspect.getclosurevars(thing)
        values = {**used.globals, **used.nonlocals}
        for name, value in (*sorted(values.items()), *enumerate(thing.__defaults__ or ())):
            if _is_simple(value):
                yield f"{name} {value!r}".encode()
            else:
                yield from _code_of(value, home, seen)
    elif not callable(thing):
        return
    else:
        yield from _code_of(type(thing), home, seen)


def _code_bytes(code: CodeType) -> Iterator[bytes]:
    yield code.co_code
    yield repr((code.co_names, code.co_varnames)).encode()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_bytes(constant)
        else:  # the order of a set differs between processes
            yield repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant).encode()


def _is_simple(value: object) -> bool:
    return isinstance(value, _SIMPLE) or (isinstance(value, tuple | list) and all(map(_is_simple, value)))
