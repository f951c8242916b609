"""Use of the page by mouse and keyboard: search, filter, sort, group, compare, export, play."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from view.browser.conftest import Errors, ViewServer
from view.missing_modules import hide

OpenTab = Callable[..., Any]
NUM_RUNS = 9
DRAWN = ".canvas svg"


def rows(tab: Any) -> Any:
    return tab.locator("tr[data-row]")


def row(tab: Any, text: str) -> Any:
    return rows(tab).filter(has_text=text).first


def wait_for_rows(tab: Any, number: int) -> None:
    tab.wait_for_function("n => document.querySelectorAll('tr[data-row]').length === n", arg=number)


def wait_for_charts(tab: Any) -> None:
    """Wait until every chart is drawn or shows why it cannot be."""
    tab.wait_for_function(
        "() => [...document.querySelectorAll('figure[data-chart]')]"
        ".every(figure => figure.querySelector('.canvas svg, .chart-problem'))"
    )


def run_address(tab: Any, text: str) -> str:
    found: str = row(tab, text).locator("a[href*='/run/']").first.get_attribute("href")
    return found


def test_the_printed_address_opens_the_runs(view: ViewServer, browser: Any) -> None:
    context = browser.new_context()
    try:
        tab = context.new_page()
        tab.goto(f"{view.address('/')}?token={view.token}")
        assert "token" not in tab.url
        assert rows(tab).count() == NUM_RUNS
        (cookie,) = context.cookies()
        assert (cookie["sameSite"], cookie["httpOnly"], cookie["path"]) == ("Strict", True, "/")
        assert tab.evaluate("document.cookie") == ""
        other = browser.new_context()
        refused = other.new_page()
        assert refused.goto(view.address("/")).status == 401
        assert "fedge view" in refused.inner_text("body")
        other.close()
    finally:
        context.close()


def test_search_filter_and_sort(view: ViewServer, open_tab: OpenTab) -> None:
    tab = open_tab(view)
    assert rows(tab).count() == NUM_RUNS
    tab.get_by_label("Search").fill("rate-0.01")
    wait_for_rows(tab, 3)
    assert "q=rate-0.01" in tab.url
    tab.reload()
    assert rows(tab).count() == 3
    tab.goto(view.address("/?where=algorithm.learning_rate>=0.1&where=status=complete&column=accuracy"))
    assert rows(tab).count() >= 3
    tab.get_by_role("link", name=re.compile("^accuracy")).first.click()
    tab.wait_for_function("() => document.querySelector('th[aria-sort=ascending], th[aria-sort=descending]')")
    assert "sort=" in tab.url
    tab.goto(view.address("/?where=status=damaged"))
    assert rows(tab).count() == 1
    assert "rounds.jsonl" in rows(tab).inner_text()
    tab.goto(view.address("/?q=nothing-like-this"))
    assert "No run matches" in tab.inner_text("main")


def test_groups_state_n_of_all(view: ViewServer, open_tab: OpenTab) -> None:
    tab = open_tab(view)
    tab.get_by_label("Group by").select_option("settings")
    tab.wait_for_function("() => document.body.innerText.includes('3 of 3')")
    assert "group=settings" in tab.url
    tab.wait_for_function(
        "() => [...document.querySelectorAll('svg.spark')].some(each => each.ariaLabel.includes('over 3 of 3 runs'))"
    )
    assert "--group settings" in tab.inner_text("main .command")


def test_select_and_compare_over_another_axis(view: ViewServer, open_tab: OpenTab) -> None:
    tab = open_tab(view, "/?q=rate-0.1")
    for box in tab.locator("tr[data-row] input[type=checkbox]").all()[:2]:
        box.check()
    tab.locator("[data-compare]").first.click()
    tab.wait_for_url("**/compare?*")
    wait_for_charts(tab)
    assert tab.url.count("run=") >= 1
    curves = tab.locator("figure[data-chart*='/chart/curves']").first
    curves.locator(DRAWN).wait_for()
    title = curves.locator(DRAWN).inner_html()
    tab.locator("select[name=x]").first.select_option("flops")
    tab.wait_for_function(
        "before => document.querySelector(\"figure[data-chart*='/chart/curves'] svg\")?.innerHTML !== before", arg=title
    )
    assert "x=flops" in tab.url


@pytest.mark.parametrize("suffix", ["SVG", "PNG", "CSV"])
def test_exports_of_a_chart(view: ViewServer, open_tab: OpenTab, tmp_path: Path, suffix: str) -> None:
    tab = open_tab(view, "/compare?q=rate-0")
    figure = tab.locator("figure[data-chart*='/chart/curves']").first
    figure.locator("summary").first.click()
    with tab.expect_download() as waiting:
        figure.get_by_role("link", name=suffix).click()
    file = tmp_path / "file"
    waiting.value.save_as(file)
    start = file.read_bytes()[:200]
    assert {"SVG": b"<svg" in start, "PNG": start.startswith(b"\x89PNG"), "CSV": b"mean" in start}[suffix]
    figure.locator(DRAWN).wait_for()
    assert figure.locator(".command").first.inner_text().startswith("fedge plot")


def test_the_offline_page_needs_no_server(
    view: ViewServer, open_tab: OpenTab, serious: Callable[[Any], list[str]], tmp_path: Path
) -> None:
    tab = open_tab(view, "/compare?q=rate-0")
    with tab.expect_download() as waiting:
        tab.locator("a[href*='/export/compare.html']").first.click()
    file = tmp_path / "page.html"
    waiting.value.save_as(file)
    saved = tab.context.new_page()
    tab.close()
    view.process.kill()
    asked: list[str] = []
    saved.on("request", lambda request: asked.append(request.url))
    saved.goto(file.as_uri())
    assert "6 of 6 selected runs" in saved.inner_text("main")
    assert saved.locator("figure svg").count() >= 1
    assert serious(saved) == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    saved.close()


def test_cells_are_played(view: ViewServer, open_tab: OpenTab) -> None:
    tab = open_tab(view)
    tab.goto(view.address(run_address(tab, "cells")))
    wait_for_charts(tab)
    grid = "figure[data-chart*='/chart/grid']"
    output = tab.locator("[data-player] output")
    assert output.inner_text() == "4"
    before = tab.locator(f"{grid} svg").first.inner_html()
    slider = tab.locator("[data-round]")
    slider.fill("0")
    assert output.inner_text() == "1"
    tab.wait_for_function(
        "([css, before]) => document.querySelector(css + ' svg')?.innerHTML !== before", arg=[grid, before]
    )
    button = tab.locator("[data-play]")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    tab.wait_for_function("() => document.querySelector('[data-player] output').textContent === '4'")
    tab.wait_for_function("() => document.querySelector('[data-play]').getAttribute('aria-pressed') === 'false'")


def test_keys(view: ViewServer, open_tab: OpenTab) -> None:
    tab = open_tab(view)
    tab.wait_for_function("() => document.getElementById('live').classList.contains('on')")
    tab.keyboard.press("/")
    assert tab.evaluate("document.activeElement.type") == "search"
    tab.keyboard.type("rate-0.1")
    wait_for_rows(tab, 3)
    tab.keyboard.press("Escape")
    tab.keyboard.press("j")
    tab.keyboard.press("x")
    tab.keyboard.press("j")
    tab.keyboard.press("x")
    assert tab.locator("tr[data-row] input:checked").count() == 2
    tab.keyboard.press("?")
    assert tab.locator("dialog[open]").count() == 1
    tab.keyboard.press("Escape")
    tab.keyboard.press("c")
    tab.wait_for_url("**/compare?*")
    tab.go_back()
    tab.keyboard.press("j")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/run/*")


def test_tags_and_notes_are_saved(view: ViewServer, open_tab: OpenTab, runs: Path) -> None:
    tab = open_tab(view)
    tab.goto(view.address(run_address(tab, "cells")))
    tab.locator("input[name=tags]").fill("good, <b>bold</b>")
    tab.locator("textarea[name=note]").fill("<script>window.__pwned=1</script>")
    tab.locator("form[data-note] button").first.click()
    tab.wait_for_function("() => document.querySelector('.saved').textContent.includes('saved')")
    tab.goto(view.address("/?where=tag=good"))
    assert rows(tab).count() == 1
    assert "<b>bold</b>" in rows(tab).inner_text()
    assert tab.evaluate("window.__pwned") is None
    assert (runs / "fedge-notes.json").exists()


def test_below_a_root_path_behind_a_proxy(start_view: Callable[..., ViewServer], runs: Path, open_tab: OpenTab) -> None:
    view = start_view(runs, "--root-path", "/lab/fedge")
    assert view.root == "/lab/fedge"
    tab = open_tab(view)
    assert rows(tab).count() == NUM_RUNS
    tab.wait_for_function("() => document.getElementById('live').classList.contains('on')")
    tab.locator("a[href*='/run/']").first.click()
    assert "/lab/fedge/run/" in tab.url
    wait_for_charts(tab)


def test_charts_state_what_to_install(
    start_view: Callable[..., ViewServer], runs: Path, open_tab: OpenTab, errors: Errors
) -> None:
    """Only the charting library is missing: the page works, and each chart is replaced by the reason."""
    view = start_view(runs, hooks=[(hide.__module__, hide.__name__, {"names": ["vl_convert"]})])
    tab = open_tab(view, "/compare?q=rate-0")
    wait_for_charts(tab)
    problems = set(tab.locator(".chart-problem").all_inner_texts())
    assert problems == {"charts need vl_convert, which is not installed; pip install 'fedge[view]'"}
    errors.expect("vega.js")
    errors.expect("409")
