"""Read plain dictionaries into typed options, reporting all problems at once.

Options are msgspec structs owned by the component they configure. Where several kinds are possible (algorithms,
partitions, ...), the field's type is a union of structs distinguished by their tag, which users write as `name`. A
table without a name has the kind of the field's default, if there is one. If the union is of parts, a name may also
refer to a user-defined part: see `core/parts.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from math import isfinite
from reprlib import Repr
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)

import msgspec
from msgspec import UNSET, Struct, StructMeta

from fedge.core import advice
from fedge.core.errors import ConfigError, nearest
from fedge.core.parts import Origin, Part, find_own, own_entries

T = TypeVar("T", bound=Struct)

_SHORT = Repr()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict = 3, 10, 10
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 120

_MAX_INTEGER = 2**63 - 1
"""The largest integer that TOML guarantees and arrays can hold."""
_MAX_FLOAT = 1e38
"""Approximately the largest value of float32."""


class OptionsMeta(StructMeta):
    """Metaclass of all options: an unknown keyword argument raises the same error as an unknown key in a file."""

    if not TYPE_CHECKING:  # type checkers derive the signature from the fields

        def __call__(self, *args: Any, **given: Any) -> Any:
            if given.keys() <= set(self.__struct_fields__):
                return super().__call__(*args, **given)
            path = self.part.word.partition(" ")[0] if self.part else ""
            fields = {field.name: field.type for field in fields_of(self)}
            unknown = [key for key in given if key not in fields]
            raise ConfigError(*(f"{self.__name__}: {unknown_key(key, path, fields)}" for key in unknown))


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Options(Struct, metaclass=OptionsMeta, kw_only=True, frozen=True, forbid_unknown_fields=True, tag_field="name"):
    """Base class of the options of one component.

    If there are several kinds, each has a tag, the name by which users choose it; a single kind has tag=False.
    Options constructed in Python are checked like those of a file: a ConfigError names every invalid field.
    """

    part: ClassVar[Part | None] = None
    """The part that it is a kind of, if users can define their own."""
    origin: ClassVar[Origin | None] = None
    """Its origin, if it is not built in."""

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if own := cls.__dict__.get("__post_init__"):
            setattr(cls, "__post_init__", _checked(own))  # noqa: B010 - type checkers forbid assigning a method

    def __post_init__(self) -> None:
        problems: list[str] = []
        for field in fields_of(type(self)):
            if (value := getattr(self, field.name)) is not field.default:
                _check(value, field.type, field.encode_name, problems)
        if problems:
            raise ConfigError(*problems)


def _checked(own: Callable[[Any], None]) -> Callable[[Any], None]:
    """Wrap a kind's own `__post_init__`: fields are checked first, and its ValueError becomes a ConfigError."""

    def post_init(self: Any) -> None:
        Options.__post_init__(self)
        try:
            own(self)
        except ConfigError:
            raise
        except ValueError as error:
            raise ConfigError(str(error)) from None

    return post_init


@lru_cache(1024)
def fields_of(kind: type[Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return the fields of options; msgspec evaluates their types again at every call."""
    return msgspec.structs.fields(kind)


def _check(value: object, kind: object, path: str, problems: list[str]) -> None:
    """Collect the problems of a field; nested options were already checked when they were constructed."""
    candidates = structs(kind)
    if isinstance(value, list) and structs(item(kind)):
        for i, each in enumerate(value):
            _check(each, item(kind), f"{path}[{i}]", problems)
    elif not isinstance(value, Struct) and (plain := _plain_part(kind)) is not None:
        _plain(value, plain, path, problems, exact=True)
    elif not any(_is_like(type(value), candidate) for candidate in candidates):
        names = ", ".join(one.__name__ for one in candidates) or "a plain value"
        problems.append(f"{path}: expected {names}, got {show(value)}")


def _is_like(kind: type, candidate: type) -> bool:
    """Whether a class is the candidate or shares a base class of options with it, as user-defined algorithms do."""
    shared = set(kind.__mro__) & set(candidate.__mro__)
    return bool(shared - {Options, Struct, *Struct.__mro__})


def _plain_part(kind: object) -> object:
    """Return the type of a field without its structs; None if nothing else is allowed."""
    if not structs(kind):
        return kind
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    plain = [part for part in get_args(kind) if not structs(part)]
    return Union[tuple(plain)] if plain else None  # noqa: UP007 - members are known only at runtime


def read(raw: object, kind: type[T], path: str = "") -> T:
    """Return a typed value from a plain one; raises ConfigError with all problems and their paths."""
    problems: list[str] = []
    try:
        value = _read(raw, kind, path, problems)
    except RecursionError:
        raise ConfigError(f"{path or 'configuration'}: its tables or lists are nested too deep") from None
    if problems:
        raise ConfigError(*problems)
    return cast(T, value)


def tag(kind: type[Struct]) -> str | None:
    """Return the name by which users choose this kind; None if it calls a user-defined function."""
    return cast("str | None", kind.__struct_config__.tag) or None


def choose(name: str, kinds: Iterable[type[Struct]], what: str, known: Iterable[str] | None = None) -> type[Struct]:
    """Return the kind of that name: built-in, user-defined or from an installed package.

    With `known`, built-in names are these and are not kinds. Raises ConfigError if the name is unknown.
    """
    kinds = list(kinds)
    by_tag = {tag(kind): kind for kind in kinds} if known is None else {}
    found = by_tag[name] if name in by_tag else find_own(name, kinds, what)
    if found is not None:
        return found
    built_in = [each for each in known or by_tag if each is not None]
    names = sorted({*built_in, *(entry.name for entry in own_entries(kinds))})
    raise ConfigError(f"{what}: unknown name {show(name)}{nearest(name, names)}; known: {', '.join(names)}")


def unknown_key(key: str, path: str, fields: Mapping[str, object]) -> str:
    """Return the message about an unknown key of the table at `path` with these fields, including a suggestion."""
    below = {name: [inner for one in structs(kind) for inner in one.__struct_fields__] for name, kind in fields.items()}
    known = None if advice.is_misspelt(key, fields) else advice.meant(key, path, below)
    close = nearest(key, fields) if known is None else f", did you mean {known!r}?"
    where = f"{path}.{key}".lstrip(".")
    return f"{where}: unknown key{close}; valid here: {', '.join(fields) or 'nothing'}{advice.note(path)}"


def structs(kind: object) -> list[type[Struct]]:
    """Return the struct types of a field: one, those of a union, or none."""
    return [part for part in advice.parts(kind) if isinstance(part, type) and issubclass(part, Struct)]


def item(kind: object) -> object:
    """Return the item type of a list field; None for other fields."""
    if get_origin(kind) is Annotated:
        return item(get_args(kind)[0])
    return get_args(kind)[0] if get_origin(kind) is list else None


def show(value: object) -> str:
    """Return the repr of a value for error messages, shortened if it is long or deeply nested."""
    return _SHORT.repr(value)


def without_none(value: Any) -> Any:
    """Return a plain value without entries that are None, which TOML cannot express."""
    if isinstance(value, Mapping):
        return {key: without_none(inner) for key, inner in value.items() if inner is not None}
    return [without_none(inner) for inner in value] if isinstance(value, list) else value


def _read(raw: object, kind: object, path: str, problems: list[str], default: object = None) -> object:
    if get_origin(kind) is Annotated and structs(kind):
        kind = get_args(kind)[0]
    candidates = structs(kind)
    if structs(item(kind)) and not isinstance(raw, list) and not candidates:
        written = f"; write {path}=[{show(raw)}]" if isinstance(raw, str) else ""
        problems.append(f"{path}: expected a list, got {show(raw)}{written}")
        return None
    if isinstance(raw, list) and structs(item(kind)):
        return [_read(each, item(kind), f"{path}[{i}]", problems) for i, each in enumerate(raw)]
    if not candidates:
        return _plain(raw, kind, path, problems)
    plain = _plain_part(kind)
    if isinstance(raw, str) and (number := advice.unitless(raw, plain, path)) is not None:
        problems.append(f"{path}: expected a number or a table, got {show(raw)}; {number}")
        return None
    if plain is not None and not isinstance(raw, (Mapping, str)) and (raw is None or plain is not type(None)):
        return _plain(raw, plain, path, problems)
    if len(candidates) == 1 and (tag(candidates[0]) is None or (isinstance(raw, Mapping) and "name" not in raw)):
        return _struct(raw, candidates[0], path, problems)
    key = candidates[0].__struct_config__.tag_field or "name"
    if isinstance(raw, str):
        raw = {key: raw}
    has_default = type(default) in candidates
    if isinstance(raw, Mapping) and key not in raw and has_default:
        return _struct(raw, cast("type[Struct]", type(default)), path, problems, _owners(key, candidates))
    if not isinstance(raw, Mapping) or not isinstance(raw.get(key), str):
        names = ", ".join(sorted(name for name in map(tag, candidates) if name is not None))
        given = raw.get(key, raw) if isinstance(raw, Mapping) else raw
        several = advice.replacement(given, str, f"{path}.{key}") if isinstance(given, list) else ""
        problems.append(f"{path}: expected a table with a {key}, one of {names}; got {show(raw)}{several}")
        return None
    try:
        chosen = choose(raw[key], candidates, f"{path}.{key}")
    except ConfigError as error:
        problems.extend(error.problems)
        return None
    raw = {other: value for other, value in raw.items() if other != key}
    return _struct(raw, chosen, path, problems, _owners(key, candidates) if has_default else None)


def _owners(key: str, kinds: Sequence[type[Struct]]) -> dict[str, str]:
    """Return, for each field, what to write to choose the first kind that has it."""
    return {field: f'{key} = "{tag(kind)}"' for kind in reversed(kinds) for field in kind.__struct_fields__}


def _struct(
    raw: object, kind: type[Struct], path: str, problems: list[str], elsewhere: Mapping[str, str] | None = None
) -> object:
    """Read a table as this kind; `elsewhere` maps keys of other kinds to what to write to choose that kind."""
    if not isinstance(raw, Mapping):
        keys = [f"{path}.{field.name}" for field in fields_of(kind) if raw in advice.words(field.type)]
        keys = keys or [f"{path}.{name}" for name in kind.__struct_fields__]
        problems.append(f"{path}: expected a table, got {show(raw)}; set {', '.join(keys)}")
        return None
    fields = {field.encode_name: field for field in fields_of(kind)}
    found, before = {}, len(problems)
    for key, value in raw.items():
        where = f"{path}.{key}".lstrip(".")
        if key in fields and _is_unset(value, fields[key]):
            continue
        if key in fields:
            found[fields[key].name] = _read(value, fields[key].type, where, problems, fields[key].default)
        elif elsewhere and key in elsewhere:
            problems.append(f"{where}: needs {elsewhere[key]} in the same table")
        else:
            problems.append(unknown_key(key, path, {name: field.type for name, field in fields.items()}))
    missing = [name for name, field in fields.items() if field.required and name not in raw]
    problems.extend(f"{path}.{name}".lstrip(".") + ": is required" for name in missing)
    if len(problems) > before:
        return None
    try:
        return kind(**found)
    except ConfigError as error:
        problems.extend(f"{path}: {problem}".removeprefix(": ") for problem in error.problems)
        return None


def _is_unset(value: object, field: msgspec.structs.FieldInfo) -> bool:
    """Whether null means the default, because the option itself cannot be null."""
    return value is None and not field.required and not advice.takes(field.type, NoneType)


def _plain(raw: object, kind: object, path: str, problems: list[str], exact: bool = False) -> Any:
    """Read a value of a type without structs; unless `exact`, whole floats such as 1e3 count as integers."""
    if raw is UNSET:
        return raw
    if (expected := _unusable(raw)) is not None:
        problems.append(f"{path}: expected {expected}, got {show(raw)}")
        return None
    reason = ""
    for value in (raw,) if exact else (raw, advice.without_fraction(raw)):
        try:
            return msgspec.convert(value, cast(Any, kind))
        except msgspec.ValidationError as error:
            reason = str(error).partition(" - at ")[0].replace("`", "").partition(", got")[0]
    expected = advice.expectation(kind) or f"{reason[:1].lower()}{reason[1:]}".removesuffix(" | null")
    problems.append(f"{path}: {expected}, got {show(raw)}{advice.replacement(raw, kind, path)}")
    return None


def _unusable(value: object) -> str | None:
    """Return what is expected in place of a value that no option can hold, or of the first one in a list; else None."""
    if isinstance(value, (list, tuple)):
        return next(filter(None, map(_unusable, value)), None)
    if isinstance(value, float) and not isfinite(value):
        return "a finite number"
    if isinstance(value, float) and abs(value) > _MAX_FLOAT:
        return f"a number of at most {_MAX_FLOAT:g}"
    if isinstance(value, int) and abs(value) > _MAX_INTEGER:
        return "a whole number of at most 64 bits"
    if isinstance(value, str) and ("\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value)):
        return "text in UTF-8 without NUL"
    return None
