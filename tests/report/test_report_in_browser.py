"""A report in a real Chromium: a phone and print cut nothing off, tables sort, and axe has no serious finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.full

REPORT = Path(__file__).parents[2] / "docs/examples/report.html"
PAPER = 680  # pixels between the margins of A4
CUT = """() => [...document.querySelectorAll("table, figure")]
  .filter((part) => part.getBoundingClientRect().right > document.body.getBoundingClientRect().right + 1)
  .map((part) => part.textContent.trim().slice(0, 40))"""


@pytest.fixture
def open_report(browser: Any) -> Iterator[Any]:
    opened = []

    def make(width: int, scheme: str = "light", media: str = "screen") -> Any:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        opened.append(page)
        page.emulate_media(media=media, color_scheme=scheme)
        page.goto(REPORT.as_uri())
        return page

    yield make
    for page in opened:
        page.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_never_scrolls_sideways(open_report: Any, width: int) -> None:
    page = open_report(width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    clipped = (
        "[...document.querySelectorAll('figure svg')].filter(s => getComputedStyle(s).overflow !== 'visible').length"
    )
    assert page.evaluate(clipped) == 0  # text is wider in another font


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_readers_without_a_screen_or_a_mouse_lose_nothing(
    open_report: Any, serious: Callable[[Any], list[str]], width: int, scheme: str
) -> None:
    page = open_report(width, scheme)
    assert serious(page) == []
    assert (
        page.locator("figure svg").evaluate_all("svgs => svgs.map(svg => svg.ariaLabel)")
        == page.locator("figcaption").all_inner_texts()
    )


def test_print_cuts_no_table_and_has_two_figures_side_by_side(open_report: Any) -> None:
    page = open_report(PAPER, media="print")
    page.evaluate("document.querySelectorAll('td + td').forEach((td) => { td.innerText = '17.75 (16/18 reached)'; })")
    assert page.evaluate(CUT) == []
    tops = page.evaluate("[...document.querySelectorAll('figure')].map((f) => f.getBoundingClientRect().top)")
    assert tops[0] == tops[1] < tops[2]


def test_print_is_white_in_dark_mode(open_report: Any) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    assert open_report(PAPER, "dark").evaluate(colour) == "rgb(23, 25, 28)"
    page = open_report(PAPER, "dark", "print")
    assert page.evaluate(colour) == "rgb(255, 255, 255)"
    axis = "getComputedStyle(document.querySelector('figure svg text[fill=\"#222222\"]')).fill"
    assert page.evaluate(axis) == "rgb(34, 34, 34)"


def test_a_click_sorts_a_table_by_number_and_another_click_reverses_it(open_report: Any) -> None:
    page = open_report(1280)
    head = page.locator("table.sortable").first.locator("th").nth(2)
    rows = "[...document.querySelector('table.sortable').tBodies[0].rows]"
    cells = f"() => {rows}.map((row) => parseFloat(row.cells[2].innerText))"
    head.locator("button").click()
    first = page.evaluate(cells)
    assert first == sorted(first)
    assert head.get_attribute("aria-sort") == "ascending"
    head.locator("button").click()
    assert page.evaluate(cells) == sorted(first, reverse=True)
