"""The table of runs while runs train: only rows of changed runs, or the whole table if more changes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.page_runs import make_run
from starlette.testclient import TestClient

OpenPage = Callable[..., TestClient]


def ask(page: TestClient, query: str = "", order: str = "", changed: str = "") -> Any:
    """Ask for the rows as the page does."""
    known = {"Fedge-Order": order, "Fedge-Changed": changed} if order else {}
    answer = page.get(f"/?{query}", headers={"Fedge-Part": "rows", **known})
    assert answer.status_code == 200, answer.text
    return answer


def order_of(page: TestClient, query: str = "") -> str:
    found = re.search(r'data-order="(\w+)"', ask(page, query).text)
    assert found is not None
    return found[1]


def key_of(page: TestClient, path: str) -> str:
    (found,) = page.get(f"/api/runs?where=path={path}").json()["rows"]
    key: str = found["key"]
    return key


def append(run: Path, **record: Any) -> None:
    with (run / "rounds.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")


def test_only_rows_of_changed_runs_are_sent(runs: Path, open_page: OpenPage) -> None:
    page = open_page(runs)
    order, key = order_of(page), key_of(page, "begun/seed-1")
    append(runs / "begun/seed-1", round=5, accuracy=0.4321)
    later = open_page(runs)  # a page looks at the files again after half a second, a new one at once
    found = ask(later, "", order, f"{key} {'0' * 16}")
    assert found.headers["Fedge-Order"] == order
    assert re.findall(r'<tr data-row="(\w+)"', found.text) == [key]
    assert "43.21%" in found.text
    assert "<table" not in found.text
    assert ask(later, "", order).text.strip() == ""


@pytest.mark.parametrize("query", ["group=settings", "group=algorithm.learning_rate", "group=sweep"])
def test_rows_of_groups(runs: Path, open_page: OpenPage, query: str) -> None:
    page = open_page(runs)
    order, key = order_of(page, query), key_of(page, "rate-0.3/seed-2")
    found = ask(page, query, order, key)
    assert found.headers["Fedge-Order"] == order
    assert found.text.count("<tr") == 1
    assert key in found.text


@pytest.mark.parametrize(
    ("query", "accuracy"),
    [
        ("sort=-accuracy", 0.99),  # it moves to the top
        ("where=accuracy>0.9", 0.99),  # it appears
        ("where=accuracy<0.5", 0.99),  # it disappears
    ],
)
def test_the_whole_table_is_sent_if_rows_move_appear_or_disappear(
    runs: Path, open_page: OpenPage, query: str, accuracy: float
) -> None:
    make_run(runs / "best" / "seed-1", 1, 10, 0.5)
    page = open_page(runs)
    order, key = order_of(page, query), key_of(page, "begun/seed-1")
    append(runs / "begun/seed-1", round=5, accuracy=accuracy)
    found = ask(open_page(runs), query, order, key)
    assert "Fedge-Order" not in found.headers
    assert "<table" in found.text or "No run matches" in found.text


def test_the_whole_table_is_sent_for_another_view_or_another_number_of_runs(runs: Path, open_page: OpenPage) -> None:
    page = open_page(runs)
    order = order_of(page)
    for query in ("values=best", "q=rate", "sort=path", "column=loss", "limit=3"):
        assert "Fedge-Order" not in ask(page, query, order).headers, query
    assert "Fedge-Order" in ask(page, "", order).headers
    limited = order_of(page, "limit=3")
    make_run(runs / "zzz" / "seed-1")  # on a later page of rows, but counted on all
    found = ask(open_page(runs), "limit=3", limited)
    assert "Fedge-Order" not in found.headers
    assert "9 of 9 runs" in found.text


def test_a_group_that_loses_a_run_is_another_row(runs: Path, open_page: OpenPage) -> None:
    query = "group=settings"
    order = order_of(open_page(runs), query)
    (runs / "rate-0.3" / "seed-3").rename(runs / "rate-0.3" / ".seed-3")
    make_run(runs / "rate-0.1" / "seed-4", 4, 10, 0.1)
    assert "Fedge-Order" not in ask(open_page(runs), query, order).headers
