"""Drawings that are put into pages."""

from __future__ import annotations

from fedge.report.style import embeddable


def test_a_drawing_in_a_page_has_its_own_ids_and_no_roles() -> None:
    svg = (
        '<svg class="marks"><clipPath id="clip0"/><linearGradient id="g"/>'
        '<g role="graphics-symbol" aria-roledescription="mark" clip-path="url(#clip0)"><use href="#g"/>'
        '<text> role="b" id of url</text></g></svg>'
    )
    assert embeddable(svg, "c1") == (
        '<svg class="marks"><clipPath id="c1-clip0"/><linearGradient id="c1-g"/>'
        '<g clip-path="url(#c1-clip0)"><use href="#c1-g"/>'
        '<text> role="b" id of url</text></g></svg>'
    )
