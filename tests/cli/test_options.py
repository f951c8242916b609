"""Options of components, described in the terms of an experiment file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, field

from fedge.cli.options import Option, options, write_type
from fedge.core.schema import Options

Positive = Annotated[float, Meta(gt=0)]


class Red(Options, tag="red"):
    """Like blood."""


class Blue(Options, tag="blue"):
    """Like the sky.

    And some seas.
    """

    depth: int = 1


class Own(Options, tag=False, kw_only=True):
    """A user-defined part."""

    name: str


class Box(Options, tag=False):
    """Holds things."""

    size: int = 3


class Everything(Options, tag="everything", kw_only=True):
    """One of each."""

    needed: Annotated[int, Meta(ge=1, description="must be there")]
    unset: Annotated[float, Meta(gt=0, lt=1, description="may be there")] | None = None
    word: Annotated[Literal["a", "b"], Meta(description="one of two")] = "a"
    colour: Annotated[Red | Blue, Meta(description="which colour")] = Red()
    deep: Red | Blue = Blue(depth=2)
    box: Box = Box()
    flag: bool = False
    words: list[str] = field(default_factory=list)


def test_options():
    assert options(Everything) == [
        Option("needed", "integer >= 1", None, True, "must be there"),
        Option("unset", "number > 0, < 1", None, False, "may be there"),
        Option("word", '"a" | "b"', '"a"', False, "one of two"),
        Option("colour", "table: red, blue", '"red"', False, "which colour"),
        Option("deep", "table: red, blue", '{ name = "blue", depth = 2 }', False, ""),
        Option("box", "table", "{ size = 3 }", False, "Holds things."),
        Option("flag", "boolean", "false", False, ""),
        Option("words", "list of string", "[]", False, ""),
    ]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (int | None, "integer"),
        (Annotated[int | None, Meta(ge=0)], "integer >= 0"),
        (Annotated[Positive, Meta(description="of something")], "number > 0"),
        (Annotated[Positive, Meta(lt=1)], "number > 0, < 1"),
        (Annotated[Positive | None, Meta(lt=1)], "number > 0, < 1"),
        (Positive | list[Positive], "number > 0 | list of number > 0"),
        (float | Red | Blue, "number | table: red, blue"),
        (Red | Own, "table: red, FILE.py:FUNCTION"),
        (Box | None, "table"),
        (dict[str, Any], "table"),
        (Literal["x"] | list[str], '"x" | list of string'),
        (Any, "value"),
    ],
)
def test_types(kind, expected):
    assert write_type(kind) == expected
