from hashlib import sha256
from typing import Annotated

from msgspec import Meta

from fedge.core.effect import NO_EFFECT, digest, omit, paths_without_effect
from fedge.core.schema import Options

Folder = Annotated[str | None, Meta(description="where", extra=NO_EFFECT)]


class Inner(Options, tag="inner"):
    size: int = 1
    dir: Folder = None


class Other(Options, tag="other"):
    size: int = 1


class Outer(Options, tag=False):
    rate: Annotated[float, Meta(gt=0)] = 0.5
    log: Annotated[Inner | None, Meta(extra={**NO_EFFECT, "unit": "s"})] = None
    source: Annotated[Inner | Other, Meta(description="either")] = Inner()
    limit: Annotated[int, Meta(ge=1, extra={"unit": "s"})] = 1


def test_options_without_effect_are_those_that_declare_it() -> None:
    assert paths_without_effect(Outer()) == ["log", "source.dir"]
    assert paths_without_effect(Outer(log=Inner(dir="x"), source=Other())) == ["log"]


def test_omit() -> None:
    settings = {"a": 1, "b": {"c": 2, "d": {"e": 3, "f": 4}}, "g": None}
    assert omit(settings, ["a", "b.d.e", "g.h", "b.c.x", "z"]) == {"b": {"c": 2, "d": {"f": 4}}, "g": None}
    assert settings == {"a": 1, "b": {"c": 2, "d": {"e": 3, "f": 4}}, "g": None}
    assert omit(settings, ["b"]) == {"a": 1, "g": None}


def test_digest_is_that_of_sorted_json() -> None:
    expected = sha256(b'{"a":[1,{"x":1,"y":2}],"b":{"c":2.5,"d":null}}').hexdigest()
    assert digest({"a": [1, {"x": 1, "y": 2}], "b": {"c": 2.5, "d": None}}) == expected
    assert digest({"b": {"d": None, "c": 2.5}, "a": [1, {"y": 2, "x": 1}]}) == expected
    assert digest({"b": {"d": None, "c": 2.5}, "a": [{"y": 2, "x": 1}, 1]}) != expected
