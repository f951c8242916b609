"""Updates without reloading: records, added and removed runs, resumed and damaged runs, servers."""

from __future__ import annotations

import http.client
import json
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count, islice, pairwise
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any

import pytest
from benchmarks.page_runs import make_records, make_run, make_runs

from e2e.command import Fedge, wait_until
from e2e.experiments import SMALL, changed, write
from net.deployment import Deployment
from net.scenes import FEDAVG
from view.browser.conftest import WAIT_MS, Errors, ViewServer
from view.browser.counting_proxy import CountingProxy
from view.browser.test_pages import row, rows, run_address, wait_for_charts

OpenTab = Callable[..., Any]
_NUM_POINTS = """() => Math.max(0, ...[...document.querySelectorAll(
    "figure[data-chart*='/chart/curves'] .mark-line path")]
    .map(path => (path.getAttribute('d') ?? '').split(/[LC]/).length))"""
"""The number of points of the longest line in the chart of curves."""


def append(run: Path, *rounds: int) -> None:
    """Write records as a training run does: each in one call."""
    records = {record["round"]: record for record in make_records(1, max(rounds), 0.05)}
    with (run / "rounds.jsonl").open("ab", buffering=0) as file:
        for number in rounds:
            file.write(json.dumps(records[number]).encode() + b"\n")


def wait_live(tab: Any) -> None:
    tab.wait_for_function("() => document.getElementById('live').classList.contains('on')")


def wait_text(tab: Any, text: str, within: str = "main") -> None:
    tab.wait_for_function("([css, text]) => document.querySelector(css)?.innerText.includes(text)", arg=[within, text])


@pytest.fixture
def begun(runs: Path) -> Path:
    """A run that has recorded 40 rounds; the test acts as its process."""
    return make_run(runs / "begun" / "seed-1", rounds=40, finished=False, rate=0.05)


@pytest.fixture
def live(start_view: Callable[..., ViewServer], begun: Path, runs: Path) -> ViewServer:
    return start_view(runs)


def test_records_are_appended_within_a_second(live: ViewServer, open_tab: OpenTab, begun: Path) -> None:
    """The time is printed and not asserted, because a busy machine may be slower."""
    tab = open_tab(live)
    tab.goto(live.address(run_address(tab, "begun")))
    wait_for_charts(tab)
    wait_live(tab)
    figure = tab.query_selector("figure[data-chart*='/chart/curves']")
    waits = []
    for number in range(41, 47):
        before = tab.evaluate(_NUM_POINTS)
        written = time.monotonic()
        append(begun, number)
        tab.wait_for_function(f"before => ({_NUM_POINTS})() > before", arg=before, polling=20)
        waits.append(time.monotonic() - written)
        wait_text(tab, f"round {number}")
    assert tab.evaluate("figure => figure.isConnected", figure)  # the same chart, longer
    assert tab.evaluate(_NUM_POINTS) == 46
    print(f"\nrecords were drawn after {median(waits):.2f} s (median), {max(waits):.2f} s (most)")


def test_a_record_is_drawn_once_over_summed_costs(live: ViewServer, open_tab: OpenTab, begun: Path) -> None:
    """The chart already has records written while it loads: appending them again would count them twice."""
    tab = open_tab(live)
    path = run_address(tab, "begun")
    held: list[Any] = []
    tab.route("**/api/chart/curves*", lambda route: (append(begun, 41, 42), route.continue_())[1], times=1)
    tab.route("**/api/run/*/records*", lambda route: held.append(route), times=1)  # they arrive when the chart is drawn
    with tab.expect_request("**/api/run/*/records*"):
        tab.goto(live.address(f"{path}?x=bytes_up"))
    wait_for_charts(tab)
    held[0].continue_()
    wait_text(tab, "round 42")
    append(begun, 43)
    wait_text(tab, "round 43")
    tab.wait_for_function(f"() => ({_NUM_POINTS})() >= 43")
    assert tab.evaluate(_NUM_POINTS) == 43


def test_fields_that_are_recorded_later_can_be_chosen(live: ViewServer, open_tab: OpenTab, begun: Path) -> None:
    """A page that was opened before the first round offers what the rounds bring, without being loaded again."""
    (begun / "rounds.jsonl").write_bytes(b"")
    tab = open_tab(live, "/?q=begun")
    tab.goto(live.address(run_address(tab, "begun")))
    wait_live(tab)
    wait_text(tab, "No round has been recorded yet")
    record = make_records(1, 1, 0.05)[0]
    for number, late, offered in ((1, ("accuracy", "loss"), "train_loss"), (2, (), "accuracy")):
        written = {name: value for name, value in record.items() if name not in late} | {"round": number}
        with (begun / "rounds.jsonl").open("ab", buffering=0) as file:
            file.write(json.dumps(written).encode() + b"\n")
        tab.locator(f"select[name=y] option[value={offered}]").wait_for(state="attached", timeout=15_000)
    assert tab.locator("select[name=x]").input_value() == "round"


def test_bytes_of_a_live_tick(live: ViewServer, begun: Path) -> None:
    """Only the new record is transferred: that of a run with 40 rounds is as large as that of a short one."""
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=WAIT_MS / 1000)
    connection.request("GET", "/api/live", headers=live.headers)
    stream = connection.getresponse()
    assert stream.headers["content-type"].startswith("text/event-stream")

    lines: list[bytes] = []

    def read() -> None:
        with suppress(OSError, ValueError, AttributeError, http.client.HTTPException):
            lines.extend(iter(stream.readline, b""))

    def found(kind: bytes, text: bytes, start: int) -> bool:
        return any(line == b"event: %s\n" % kind and text in after for line, after in pairwise(lines[start:]))

    def both(number: int, start: int) -> bool:
        return found(b"records", b'"round":%d,' % number, start) and found(b"run", b'"round":%d,' % number, start)

    Thread(target=read, daemon=True).start()
    numbers = count(41)
    while not any(b'"records":[{' in line for line in lines):  # until the run is followed
        append(begun, next(numbers))
        seen, later = len(lines), time.monotonic() + 2
        wait_until(partial(lambda seen, later: len(lines) > seen + 3 or time.monotonic() > later, seen, later))
    sizes = []
    for number in islice(numbers, 3):
        start = len(lines)
        append(begun, number)
        wait_until(partial(both, number, start))
        sizes.append(len(b"".join(lines[start:])) + 1)
    size = max(sizes)
    connection.close()
    print(f"\na live tick takes {size} bytes; the records so far take {(begun / 'rounds.jsonl').stat().st_size}")
    assert size < 2_000


def test_bytes_of_a_tick_on_the_table_of_runs(
    start_view: Callable[..., ViewServer], open_tab: OpenTab, tmp_path: Path
) -> None:
    """Of a table with a hundred rows, only the row of the changed run is transferred; the count includes the news."""
    make_runs(tmp_path / "many", 999, 3)
    begun = make_run(tmp_path / "many" / "begun" / "seed-1", rounds=40, finished=False, rate=0.05)
    view = start_view(tmp_path / "many")
    with CountingProxy(view.port) as proxy:
        tab = open_tab(view, "/", port=proxy.port)
        wait_live(tab)
        tab.wait_for_function("() => document.querySelectorAll('tr[data-row] svg.spark').length === 100")
        table = tab.query_selector("table.runs")
        append(begun, 41)
        wait_text(tab, "41/40", "table.runs")
        sizes = []
        for number in (42, 43, 44):
            before = proxy.num_bytes
            append(begun, number)
            wait_text(tab, f"{number}/40", "table.runs")
            sizes.append(proxy.num_bytes - before)
        print(f"\na tick of the table of runs takes {max(sizes)} bytes")
        assert max(sizes) < 4_000
        assert tab.evaluate("table => table.isConnected", table)


def test_a_changed_row_leaves_the_other_rows_unchanged(live: ViewServer, open_tab: OpenTab, begun: Path) -> None:
    """A reader who selects rows is not disturbed by runs that train."""
    tab = open_tab(live)
    wait_live(tab)
    boxes = "tr[data-row] input[type=checkbox]"
    changing, other = row(tab, "begun"), row(tab, "rate-0.01")
    for each in (changing, other):
        each.locator("input[type=checkbox]").check()
    tab.evaluate("document.querySelector('.scroll').scrollLeft = 5")
    changing.locator("input[type=checkbox]").focus()
    still = other.element_handle()
    for number in (41, 42):
        append(begun, number)
        wait_text(tab, f"{number}/40", "table.runs")
    assert tab.evaluate("still => still.isConnected", still)
    assert tab.locator(f"{boxes}:checked").count() == 2
    assert "begun" in tab.evaluate("document.activeElement.ariaLabel")
    changing.evaluate("row => { row.tabIndex = -1; row.focus() }")
    append(begun, 43)
    wait_text(tab, "43/40", "table.runs")
    assert "begun" in tab.evaluate("document.activeElement.closest('tr').textContent")


def test_a_row_moves_to_its_sorted_position(live: ViewServer, open_tab: OpenTab, begun: Path) -> None:
    tab = open_tab(live, "/?sort=-rounds&where=status!=damaged")
    other = make_run(begun.parent.parent / "begun-too" / "seed-1", rounds=60, finished=False, rate=0.05)
    wait_live(tab)
    first = "document.querySelector('tr[data-row] .path').textContent"
    tab.wait_for_function(f"() => {first}.includes('begun-too')")
    row(tab, "begun-too").locator("input[type=checkbox]").check()
    append(begun, *range(41, 62))
    tab.wait_for_function(f"() => !{first}.includes('begun-too')")
    assert tab.locator("tr[data-row] input:checked").count() == 1
    assert tab.inner_text(".chosen-count") == "1 selected"
    shutil.rmtree(other.parent)
    tab.wait_for_function("() => !document.querySelector('table.runs').innerText.includes('begun-too')")


def test_ten_tabs_share_one_stream(
    live: ViewServer, open_context: Callable[..., Any], open_tab: OpenTab, begun: Path
) -> None:
    path = run_address(open_tab(live), "begun")
    with CountingProxy(live.port) as proxy:
        context = open_context(live, port=proxy.port)
        tabs = [context.new_page() for _ in range(10)]
        for tab in tabs:
            tab.goto(live.address(path, proxy.port))
        for tab in tabs:
            wait_live(tab)
        assert proxy.count("/api/live") == 1
        append(begun, 41)
        for tab in tabs:
            wait_text(tab, "round 41")
        assert proxy.count("/api/live") == 1
        assert proxy.count("/api/news") == 0
        context.close()


@pytest.mark.parametrize("why", ["no SharedWorker", "a proxy that holds streams back"])
def test_polling_replaces_streams_that_do_not_work(
    live: ViewServer, open_context: Callable[..., Any], begun: Path, why: str
) -> None:
    with CountingProxy(live.port, hold_streams=True) as proxy:
        context = open_context(live, port=proxy.port)
        if why == "no SharedWorker":
            context.add_init_script("delete window.SharedWorker; delete window.EventSource")
        tab = context.new_page()
        tab.goto(live.address("/", proxy.port))
        tab.goto(live.address(run_address(tab, "begun"), proxy.port))
        wait_live(tab)
        wait_until(lambda: proxy.count("/api/news") > 0)
        append(begun, 41)
        wait_text(tab, "round 41")
        context.close()


def test_a_reconnected_stream_misses_no_event(
    live: ViewServer, open_context: Callable[..., Any], open_tab: OpenTab, begun: Path, errors: Errors
) -> None:
    """The last record of a run may be written while the stream is down."""
    with CountingProxy(live.port) as proxy:
        context = open_context(live, port=proxy.port)
        tab = context.new_page()
        tab.goto(live.address("/", proxy.port))
        tab.goto(live.address(run_address(tab, "begun"), proxy.port))
        wait_live(tab)
        other = open_tab(live, run_address(open_tab(live), "begun"))  # it receives the news that this one misses
        wait_live(other)
        append(begun, 41)
        wait_text(tab, "round 41")
        with proxy.down():
            tab.wait_for_function("() => !document.getElementById('live').classList.contains('on')")
            append(begun, 42)
            wait_text(other, "round 42")
        wait_live(tab)
        wait_text(tab, "round 42")
        context.close()
    errors.clear()  # the browser reports each connection that fails


def test_a_record_written_while_the_page_is_transferred_is_shown(
    live: ViewServer, open_context: Callable[..., Any], open_tab: OpenTab, begun: Path
) -> None:
    """The event was published before the page could listen."""
    path = run_address(open_tab(live), "begun")
    context = open_context(live)
    first, second = context.new_page(), context.new_page()
    first.goto(live.address(path))
    wait_live(first)

    def travel(route: Any) -> None:
        made = route.fetch()
        append(begun, 41)
        wait_text(first, "round 41")
        route.fulfill(response=made)

    second.route("**/run/*", travel, times=1)
    second.goto(live.address(path))
    wait_text(second, "round 41")
    second.wait_for_function(f"() => ({_NUM_POINTS})() === 41")


def test_a_row_that_changes_while_the_table_is_transferred_is_updated(
    live: ViewServer, open_context: Callable[..., Any], begun: Path
) -> None:
    context = open_context(live)
    first, second = context.new_page(), context.new_page()
    first.goto(live.address("/"))
    wait_live(first)

    def travel(route: Any) -> None:
        made = route.fetch()
        append(begun, 41)
        wait_text(first, "41/40")
        route.fulfill(response=made)

    second.route(live.address("/"), travel, times=1)
    second.goto(live.address("/"))
    wait_text(second, "41/40")


@pytest.mark.parametrize("how", ["polling", "a hidden tab"])
def test_two_rows_that_change_at_once(
    live: ViewServer, open_context: Callable[..., Any], begun: Path, runs: Path, how: str
) -> None:
    """Each change requests its row, and no request cancels that of another row."""
    other = make_run(runs / "begun-too" / "seed-1", rounds=60, finished=False, rate=0.05)
    context = open_context(live)
    tab = context.new_page()
    if how == "polling":
        tab.add_init_script("delete window.SharedWorker; delete window.EventSource")
    else:
        tab.add_init_script("Object.defineProperty(document, 'hidden', {get: () => window.away === true})")
    tab.goto(live.address("/"))
    wait_live(tab)
    tab.wait_for_function("() => document.querySelectorAll('tr[data-row] svg.spark').length > 5")
    for turn in range(3):
        tab.evaluate("window.away = true")
        for number in range(2):
            append(begun, 41 + 2 * turn + number)
            append(other, 61 + 2 * turn + number)
            heard = context.new_page()  # once it shows them, the news has been published
            heard.goto(live.address("/"))
            wait_text(heard, f"{61 + 2 * turn + number}/60")
            heard.close()
        tab.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")
        wait_text(tab, f"{42 + 2 * turn}/40", "table.runs")
        wait_text(tab, f"{62 + 2 * turn}/60", "table.runs")
    context.close()


def test_a_chart_older_than_the_one_it_replaces_is_drawn_again(
    live: ViewServer, open_tab: OpenTab, begun: Path
) -> None:
    tab = open_tab(live)
    tab.goto(live.address(run_address(tab, "begun")))
    wait_for_charts(tab)
    wait_live(tab)
    late: list[bool] = []

    def delay(route: Any) -> None:
        made = route.fetch()
        append(begun, 41)
        tab.wait_for_function(f"() => ({_NUM_POINTS})() === 41")  # it is appended to the old chart
        late.append(True)
        route.fulfill(response=made)

    tab.route("**/api/chart/curves*", delay, times=1)
    with tab.expect_request(lambda request: bool(late) and "/api/chart/curves" in request.url):
        tab.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")
    tab.wait_for_function(f"() => ({_NUM_POINTS})() === 41")


def test_a_run_that_trains_in_another_process(
    live: ViewServer, open_tab: OpenTab, fedge: Fedge, runs: Path, tmp_path: Path
) -> None:
    tab = open_tab(live)
    wait_live(tab)
    settings = changed(SMALL, name="endless", rounds=100_000)
    with fedge.start("run", write(tmp_path / "file", settings), "--runs", runs, "--quiet"):
        row(tab, "endless").wait_for()
        wait_text(tab, "running")
        tab.goto(live.address(run_address(tab, "endless")))
        wait_for_charts(tab)
        before = tab.evaluate(_NUM_POINTS)
        tab.wait_for_function(f"before => ({_NUM_POINTS})() > before", arg=before)
    wait_text(tab, "fedge resume")  # it was killed


def test_a_log_that_was_cut_is_read_again(live: ViewServer, open_tab: OpenTab, begun: Path) -> None:
    tab = open_tab(live)
    tab.goto(live.address(run_address(tab, "begun")))
    wait_for_charts(tab)
    wait_live(tab)
    append(begun, 41)
    wait_text(tab, "round 41")
    config = json.loads((begun / "config.json").read_text())
    lines = (begun / "rounds.jsonl").read_text().splitlines(keepends=True)
    other = begun / "other"
    other.write_text("".join(lines[:20]))
    (begun / "config.json").write_text(json.dumps(config | {"generation": 2}))
    other.replace(begun / "rounds.jsonl")
    append(begun, 21)
    wait_text(tab, "round 21")
    tab.wait_for_function(f"() => ({_NUM_POINTS})() === 21")
    append(begun, 22)
    tab.wait_for_function(f"() => ({_NUM_POINTS})() === 22")


def test_a_run_that_vanishes_or_is_damaged(
    live: ViewServer, open_tab: OpenTab, begun: Path, runs: Path, errors: Errors
) -> None:
    tab = open_tab(live)
    count = rows(tab).count()
    wait_live(tab)
    shown = tab.context.new_page()
    shown.goto(live.address(run_address(tab, "begun")))
    wait_live(shown)
    wait_for_charts(shown)
    (begun / "rounds.jsonl").write_text("nonsense\n")
    wait_text(shown, "rounds.jsonl is damaged")
    wait_text(tab, "rounds.jsonl is damaged")
    shutil.rmtree(begun.parent)
    wait_text(shown, "moved or removed")
    tab.wait_for_function("n => document.querySelectorAll('tr[data-row]').length === n", arg=count - 1)
    shutil.rmtree(runs)
    wait_text(tab, "No runs in")
    make_run(runs / "back", name="back")
    row(tab, "back").wait_for()
    errors.expect("404")


def test_the_server_ends(live: ViewServer, open_tab: OpenTab, errors: Errors) -> None:
    tab = open_tab(live)
    wait_live(tab)
    live.process.kill()
    tab.wait_for_function("() => document.getElementById('live').textContent.includes('lost')")
    assert rows(tab).count() > 0
    errors.clear()


def test_a_server_with_three_clients(
    live: ViewServer, open_tab: OpenTab, fedge: Fedge, tmp_path: Path, runs: Path
) -> None:
    settings = changed(FEDAVG, name="served", rounds=5)
    with Deployment(fedge, tmp_path, settings, disk=runs) as deployment:
        deployment.start_server()
        tab = open_tab(live)
        row(tab, "served").wait_for()
        tab.goto(live.address(row(tab, "served").locator("a[href*='/server/']").get_attribute("href")))
        wait_live(tab)
        wait_text(tab, "Clients by state")
        deployment.start_client(0)
        wait_text(tab, "c0")  # no round has begun, so this is news of the server itself
        deployment.start_clients(1, 2)
        for name in ("c1", "c2"):
            wait_text(tab, name)
        deployment.finish()
        wait_text(tab, "leave")
        tab.locator("figure[data-chart*='/chart/throughput'] .canvas svg").wait_for()  # none when the page was opened
        tab.goto(tab.url.replace("/server/", "/run/"))
        wait_text(tab, "round 5 of 5")
        wait_text(tab, "measured")
