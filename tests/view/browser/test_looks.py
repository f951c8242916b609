"""Every page in light and dark, wide and narrow: nothing overflows, and axe finds nothing serious."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.page_runs import make_run

from view.browser.conftest import Errors, ViewServer
from view.browser.test_pages import rows, wait_for_charts
from view.hostile_strings import STRINGS
from view.test_hostile_strings import make_hostile_server


def pages_of(tab: Any, view: ViewServer, errors: Errors) -> dict[str, str]:
    """The addresses of one page of each kind."""
    tab.goto(view.address("/"))
    links = {kind: f"a[href*='/{kind}/']" for kind in ("run", "server")}
    found = {kind: tab.locator(css).first.get_attribute("href") for kind, css in links.items()}
    cells = rows(tab).filter(has_text="cells").first.locator("a[href*='/run/']").first.get_attribute("href")
    damaged = rows(tab).filter(has_text="damaged").first.locator("a[href*='/run/']").first.get_attribute("href")
    groups = {"groups": "/?group=settings", "compare": "/compare?where=status=complete", "error": "/?sort=nothing"}
    return {"runs": "/", **groups, **found, "cells": cells, "damaged": damaged}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_page(
    start_view: Callable[..., ViewServer], runs: Path, open_context: Callable[..., Any], errors: Errors,
    serious: Callable[[Any], list[str]], width: int, scheme: str,
) -> None:  # fmt: skip
    make_hostile_server(runs / "server", ["plain"])
    view = start_view(runs)
    tab = open_context(view, width=width, scheme=scheme).new_page()
    problems = []
    for name, path in pages_of(tab, view, errors).items():
        tab.goto(view.address(path))
        wait_for_charts(tab)
        shape = tab.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        problems += [f"{name}: {shape[0]} pixels in {shape[1]}"] if shape[0] > shape[1] else []
        problems += [f"{name}: {finding}" for finding in serious(tab)]
    errors.expect("400")
    assert not problems, "\n".join(problems)


def test_hostile_texts_run_no_script(
    start_view: Callable[..., ViewServer], runs: Path, open_context: Callable[..., Any], errors: Errors
) -> None:
    sample = [text for text in STRINGS if len(text) < 300]
    make_hostile_server(runs / "hostile", sample)
    for number, text in enumerate(sample[::4]):
        make_run(runs / f"h{number}", number, 3, name=text, data={"name": text, "own": text})
    view = start_view(runs)
    tab = open_context(view).new_page()
    tab.goto(view.address("/?limit=1000"))
    hostile = tab.locator("a[href*='/server/']").first.get_attribute("href")
    for path in ("/?limit=1000&group=data.name", "/compare", hostile, hostile.replace("/server/", "/run/")):
        tab.goto(view.address(path))
        wait_for_charts(tab)
        assert tab.evaluate("window.__pwned") is None
        assert tab.url.startswith(view.address())
    for text in sample[::10]:
        tab.goto(view.address("/"))
        tab.get_by_label("Search").fill(text.replace("\n", " "))
        tab.wait_for_function("() => document.querySelector('.empty, .part-problem, tr[data-row]')")
        assert tab.evaluate("window.__pwned") is None
    errors.expect("400")
