"""From plain dictionaries to typed options, with every problem said at once.

Options are msgspec structs owned by the component they configure. Where one of several kinds may stand (algorithms,
partitions, ...), the field's type is a union of structs told apart by their tag, which users write as `name`. A table
without a name is of the kind that is the field's default, if it has one. Where the union is of parts, a name may also
be that of a part of the user's own: see `core/parts.py`.
"""

from __future__ import annotations

import types
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
"""What TOML promises to hold, and arrays can."""
_MAX_FLOAT = 1e38
"""What float32 can hold."""


class OptionsMeta(StructMeta):
    """The kind of all classes of options: an unknown keyword is the same error as an unknown key of a file."""

    if not TYPE_CHECKING:  # for which the fields say what a class is called with

        def __call__(self, *args: Any, **given: Any) -> Any:
            if given.keys() <= set(self.__struct_fields__):
                return super().__call__(*args, **given)
            path = self.part.word.partition(" ")[0] if self.part else ""
            fields = {field.name: field.type for field in msgspec.structs.fields(self)}
            unknown = [key for key in given if key not in fields]
            raise ConfigError(*(f"{self.__name__}: {unknown_key(key, path, fields)}" for key in unknown))


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Options(Struct, metaclass=OptionsMeta, kw_only=True, frozen=True, forbid_unknown_fields=True, tag_field="name"):
    """What one component can be told.

    One of several of its kind has a tag, the name that users write to choose it; the only one of its kind: tag=False.
    Constructed in Python, options are checked like those of a file: a ConfigError names every field that is wrong.
    """

    part: ClassVar[Part | None] = None
    """What it is a kind of, if users may name their own instead."""
    origin: ClassVar[Origin | None] = None
    """Where it comes from, if it is not built in."""

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if own := cls.__dict__.get("__post_init__"):
            setattr(cls, "__post_init__", _checked(own))  # noqa: B010 - types forbid to assign a method

    def __post_init__(self) -> None:
        problems: list[str] = []
        for name, encoded, kind, default in _fields(type(self)):
            if (value := getattr(self, name)) is not default:
                _check(value, kind, encoded, problems)
        if problems:
            raise ConfigError(*problems)


def _checked(own: Callable[[Any], None]) -> Callable[[Any], None]:
    """What a kind checks itself, which may rely on fields that are valid one by one; a ConfigError, too."""

    def post_init(self: Any) -> None:
        Options.__post_init__(self)
        try:
            own(self)
        except ConfigError:
            raise
        except ValueError as error:
            raise ConfigError(str(error)) from None

    return post_init


@lru_cache
def _fields(kind: type[Struct]) -> list[tuple[str, str, object, object]]:
    """Attribute, name in a file, type and default of each field."""
    return [(field.name, field.encode_name, field.type, field.default) for field in msgspec.structs.fields(kind)]


def _check(value: object, kind: object, path: str, problems: list[str]) -> None:
    """Collect what is wrong with a field of options; options inside of it were checked when they were made."""
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
    """Whether it is the candidate, or has a kind of options in common with it, as an algorithm of a user's own has."""
    shared = set(kind.__mro__) & set(candidate.__mro__)
    return bool(shared - {Options, Struct, *Struct.__mro__})


def _plain_part(kind: object) -> object:
    """The type of the values of a field that are no options; None if there are none."""
    if not structs(kind):
        return kind
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    plain = [part for part in get_args(kind) if not structs(part)]
    return Union[tuple(plain)] if plain else None  # noqa: UP007 - the parts are known only here


def read(raw: object, kind: type[T], path: str = "") -> T:
    """A typed value of a plain one; a ConfigError with all problems and their paths."""
    problems: list[str] = []
    try:
        value = _read(raw, kind, path, problems)
    except RecursionError:
        raise ConfigError(f"{path or 'configuration'}: its tables or lists are nested too deep") from None
    if problems:
        raise ConfigError(*problems)
    return cast(T, value)


def tag(kind: type[Struct]) -> str | None:
    """The name that users write to choose this kind; None if it calls a function of the user's own."""
    return cast("str | None", kind.__struct_config__.tag) or None


def choose(name: str, kinds: Iterable[type[Struct]], what: str, known: Iterable[str] | None = None) -> type[Struct]:
    """The kind of that name: a built-in one, else one of the user's own or of an installed package.

    With `known` the built-in ones are no kinds, and have these names.
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
    """The problem with a key of the table at a path, whose keys have these types; with what was probably meant."""
    below = {name: [inner for one in structs(kind) for inner in one.__struct_fields__] for name, kind in fields.items()}
    known = None if advice.is_misspelt(key, fields) else advice.meant(key, path, below)
    close = nearest(key, fields) if known is None else f", did you mean {known!r}?"
    where = f"{path}.{key}".lstrip(".")
    return f"{where}: unknown key{close}; valid here: {', '.join(fields) or 'nothing'}{advice.note(path)}"


def structs(kind: object) -> list[type[Struct]]:
    """The struct types of a field: one, those of a union, or none."""
    if get_origin(kind) is Annotated:
        return structs(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        return [found for part in get_args(kind) for found in structs(part)]
    return [kind] if isinstance(kind, type) and issubclass(kind, Struct) else []


def item(kind: object) -> object:
    """What a field that holds a list holds; None for other fields."""
    if get_origin(kind) is Annotated:
        return item(get_args(kind)[0])
    return get_args(kind)[0] if get_origin(kind) is list else None


def show(value: object) -> str:
    """The value as Python writes it, shortened where it is long or nested deep: for error messages."""
    return _SHORT.repr(value)


def without_none(value: Any) -> Any:
    """A plain value as TOML can write it: it has no word for nothing, so what is not set is left out."""
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
    """By field, what to write for the kind that has it; for the first, if several have."""
    return {field: f'{key} = "{tag(kind)}"' for kind in reversed(kinds) for field in kind.__struct_fields__}


def _struct(
    raw: object, kind: type[Struct], path: str, problems: list[str], elsewhere: Mapping[str, str] | None = None
) -> object:
    """A table of this kind; `elsewhere` says which keys would be known if the table named another kind."""
    if not isinstance(raw, Mapping):
        keys = [f"{path}.{field.name}" for field in msgspec.structs.fields(kind) if raw in advice.words(field.type)]
        keys = keys or [f"{path}.{name}" for name in kind.__struct_fields__]
        problems.append(f"{path}: expected a table, got {show(raw)}; set {', '.join(keys)}")
        return None
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
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
    """Whether null stands for the default: it is no value of the option itself."""
    return value is None and not field.required and not advice.takes(field.type, NoneType)


def _plain(raw: object, kind: object, path: str, problems: list[str], exact: bool = False) -> Any:
    """A value of a type without structs; unless it must be of that type already, 1e3 is an integer too."""
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
    """What is expected in place of a value that no option can take, whatever it declares; of lists, the first such."""
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
