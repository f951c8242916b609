"""A check that a page has only elements of the templates, whatever texts its runs contain."""

from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import fedge.view

TEMPLATES = Path(fedge.view.__file__).parent / "templates"
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]")
_JINJA = re.compile(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}", re.DOTALL)
_ADDRESSES = {"href", "src", "action", "data-chart", "formaction", "poster", "srcset", "data"}


class _Elements(HTMLParser):
    """The elements of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str]]] = []
        self.ended: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        self.ended.append(tag)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data[:80]!r}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"an instruction: {data[:80]!r}")


@cache
def known_elements() -> frozenset[tuple[str, str]]:
    """Every pair of an element and an attribute (or no attribute) that the templates have."""
    found = set()
    for file in TEMPLATES.rglob("*.html"):
        for tag, attributes in _Elements(_JINJA.sub("", file.read_text())).found:
            found |= {(tag, ""), *((tag, name) for name in attributes)}
    return frozenset(found)


def check_page(text: str, root: str = "") -> None:
    """Raise an AssertionError if text of a run became markup of the page."""
    odd = UNPRINTABLE.search(text)
    assert odd is None, f"{odd[0]!r} in {text[max(0, odd.start() - 80) : odd.end() + 20]!r}"
    for tag, attributes in _Elements(text).found:
        assert (tag, "") in known_elements(), f"an element that no template has: {tag} {attributes}"
        for name, value in attributes.items():
            assert (tag, name) in known_elements(), f"an attribute that no template has: {tag} {name}={value[:80]!r}"
            if name in _ADDRESSES:
                assert value.startswith(("#", f"{root}/")), f"{tag} {name}={value[:80]!r}"
                assert not value.startswith("//"), value
            if tag == "script" and name == "src":
                assert value.startswith(f"{root}/static/"), value
