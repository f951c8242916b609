"""News of runs while there are readers: only new records, or all of them after a resume."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.page_runs import make_run

from fedge.core.lock import Lock
from fedge.view import watcher as watching
from fedge.view.histories import Histories, find_record
from fedge.view.news import News
from fedge.view.run_index import RunIndex
from fedge.view.watcher import Watcher


@pytest.fixture
def watcher(runs: Path) -> Watcher:
    index = RunIndex(runs)
    made = Watcher(index, Histories(index), News())
    made.look()
    return made


def append(run: Path, *rounds: int) -> None:
    with (run / "rounds.jsonl").open("a") as file:
        file.writelines(f"{json.dumps({'round': number, 'accuracy': 0.5})}\n" for number in rounds)


def records(news: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    return [data for kind, data in news if kind == "records"]


def test_no_news_without_changes(watcher: Watcher) -> None:
    assert watcher.look() == []


def test_only_new_records_travel(watcher: Watcher, runs: Path) -> None:
    run = runs / "begun/seed-1"
    append(run, 5)
    (first,) = records(watcher.look())
    assert (first["from"], first["records"]) == (None, [])  # a page requests what it lacks
    append(run, 6, 7)
    (second,) = records(watcher.look())
    assert second["from"] == first["to"]
    assert [record["round"] for record in second["records"]] == [6, 7]
    assert not second["restarted"]
    append(run, 8)
    (third,) = records(news := watcher.look())
    assert [kind for kind, _ in news] == ["records", "run"]  # the row of the run brings its curve too
    assert third["from"] == second["to"]
    assert [record["round"] for record in third["records"]] == [8]


def test_changes_between_the_page_and_the_first_scan(runs: Path) -> None:
    index = RunIndex(runs)
    index.scan()  # a page is made
    append(runs / "begun/seed-1", 5)
    made = Watcher(index, Histories(index), News())
    assert [data["round"] for kind, data in made.look() if kind == "run"] == [5]


def test_a_log_cut_by_a_resume_is_read_again(watcher: Watcher, runs: Path) -> None:
    run = runs / "begun/seed-1"
    append(run, 5)
    watcher.look()
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"generation": 2}))
    lines = (run / "rounds.jsonl").read_text().splitlines(keepends=True)
    (run / "rounds.jsonl").write_text("".join(lines[:2]))
    append(run, 3)
    (found,) = records(watcher.look())
    assert found["restarted"]
    assert [record["round"] for record in found["records"]] == [1, 2, 3]


def test_added_and_removed_runs(watcher: Watcher, runs: Path) -> None:
    make_run(runs / "new" / "seed-1")
    (kind, data), *_ = watcher.look()
    assert kind == "runs"
    assert len(data["added"]) == 1
    (runs / "new").rename(runs / ".gone")
    assert watcher.look() == [("runs", {"added": [], "removed": data["added"]})]


def test_a_run_that_went_and_came_back_is_followed_anew(watcher: Watcher, runs: Path) -> None:
    run, away = runs / "begun/seed-1", runs / ".away"
    append(run, 5)
    watcher.look()
    run.rename(away)
    watcher.look()
    away.rename(run)
    (found,) = records(watcher.look())
    assert (found["from"], found["records"], found["restarted"]) == (None, [], False)


def test_a_run_damaged_meanwhile(watcher: Watcher, runs: Path) -> None:
    (runs / "begun/seed-1/rounds.jsonl").write_text("nonsense\n")
    (item,) = [data for kind, data in watcher.look() if kind == "run"]
    assert item["status"] == "damaged"
    assert "rounds.jsonl" in item["problem"]


def test_a_link_in_place_of_records_is_not_followed(watcher: Watcher, runs: Path, tmp_path: Path) -> None:
    file = runs / "begun/seed-1/rounds.jsonl"
    (tmp_path / "secret").write_text('{"round": 1, "accuracy": 0.125}\n')
    file.unlink()
    file.symlink_to(tmp_path / "secret")
    news = watcher.look()
    assert records(news) == []
    (item,) = [data for kind, data in news if kind == "run"]
    assert item["status"] == "damaged"
    assert "0.125" not in json.dumps(news)


def test_news_of_a_server(watcher: Watcher, runs: Path) -> None:
    run = runs / "begun/seed-1"
    (run / "registry.sqlite").write_bytes(b"")
    append(run, 5)
    (run / "status.json").write_text(json.dumps({"state": "open", "round": 5, "time": "2026-11-18T04:00:00Z"}))
    (run / "events.jsonl").write_text('{"event": "join", "name": "a"}\n')
    (found,) = [data for kind, data in watcher.look() if kind == "server"]
    assert (found["status"]["round"], found["events"]) == (5, [{"event": "join", "name": "a"}])
    assert watcher.look() == []
    with (run / "events.jsonl").open("a") as file:
        file.write('{"event": "leave", "name": "a"}\n{"event": "jo')
    (found,) = [data for kind, data in watcher.look() if kind == "server"]
    assert found == {"key": found["key"], "events": [{"event": "leave", "name": "a"}]}
    (run / "events.jsonl").rename(run / "events.jsonl.1")
    (run / "events.jsonl").write_text('{"event": "join", "name": "b"}\n')
    (found,) = [data for kind, data in watcher.look() if kind == "server"]
    assert found["events"] == [{"event": "join", "name": "b"}]


def test_a_server_whose_run_completes_between_two_scans(watcher: Watcher, runs: Path) -> None:
    run = runs / "begun/seed-1"
    (run / "registry.sqlite").write_bytes(b"")
    append(run, 5)
    (run / "events.jsonl").write_text('{"event": "receive", "client": 0}\n')
    (run / "summary.json").write_text(json.dumps({"rounds": 5, "accuracy": 0.5}))
    (found,) = [data for kind, data in watcher.look() if kind == "server"]
    assert found["events"] == [{"event": "receive", "client": 0}]
    with (run / "events.jsonl").open("a") as file:  # clients leave when the run is complete
        file.write('{"event": "leave", "client": 0}\n')
    (found,) = [data for kind, data in watcher.look() if kind == "server"]
    assert found["events"] == [{"event": "leave", "client": 0}]
    assert watcher.look() == []


def statuses(news: list[tuple[str, dict[str, Any]]]) -> list[str]:
    return [data["status"] for kind, data in news if kind == "run"]


def test_a_run_that_begins_and_ends_without_a_record(watcher: Watcher, runs: Path) -> None:
    lock = Lock(runs / "begun/seed-1/lock")
    assert statuses(watcher.look()) == ["running"]
    assert watcher.look() == []
    lock.release()
    assert statuses(watcher.look()) == ["unfinished"]
    assert watcher.look() == []


def test_a_run_that_completes(watcher: Watcher, runs: Path) -> None:
    (runs / "begun/seed-1/summary.json").write_text(json.dumps({"rounds": 4, "accuracy": 0.5}))
    assert statuses(watcher.look()) == ["complete"]
    (runs / "begun/seed-1/summary.json").unlink()
    assert statuses(watcher.look()) == ["unfinished"]


def test_the_curve_of_a_changed_run(watcher: Watcher, runs: Path) -> None:
    append(runs / "begun/seed-1", 5)
    (key,) = [data["key"] for kind, data in watcher.look() if kind == "run"]
    entry = watcher._index.entries[key]
    history = watcher._histories.known(entry)
    assert entry.path == "begun/seed-1"
    assert history is not None
    assert (len(history.spark), history.spark[-1]) == (5, 0.5)


def test_events_of_a_run_without_a_server_are_not_read(watcher: Watcher, runs: Path) -> None:
    (runs / "begun/seed-1/events.jsonl").write_text('{"event": "join"}\n')
    assert watcher.look() == []


def test_nothing_is_scanned_without_readers(watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_EVERY_S", 0.0)
    looks = 0

    def look() -> list[tuple[str, dict[str, Any]]]:
        nonlocal looks
        looks += 1
        return [("run", {"key": str(looks)})]

    monkeypatch.setattr(watcher, "look", look)
    news = watcher._news

    async def until(happened: Any) -> None:
        async with asyncio.timeout(60):
            while not happened():
                await asyncio.sleep(0.001)

    async def turns() -> None:
        for _ in range(200):  # of the event loop, in which it would have looked
            await asyncio.sleep(0)

    async def scene() -> None:
        task = asyncio.create_task(watcher.run())
        await turns()
        assert looks == 0
        stream = news.stream()
        assert b"hello" in await anext(stream)
        assert b'"key":"1"' in await anext(stream)
        await until(lambda: looks > 3)
        await stream.aclose()
        await until(lambda: not news.wanted.is_set())
        seen = looks
        await turns()
        assert looks == seen
        watcher.polled()
        await until(lambda: looks > seen + 3)
        assert news.wanted.is_set()
        monkeypatch.setattr(watching, "_POLL_S", 0.0)  # the reader is gone
        await until(lambda: not news.wanted.is_set())
        assert not task.done()
        task.cancel()

    asyncio.run(scene())


def test_a_slow_scan_is_followed_by_a_long_pause(watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a large folder the watcher takes at most a sixth of the time."""
    now, pauses = 0.0, list[float]()

    def look() -> list[Any]:
        nonlocal now
        now += 2.0 if not pauses else 0.01
        return []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise asyncio.CancelledError

    monkeypatch.setattr(watcher, "look", look)
    monkeypatch.setattr(watching.time, "monotonic", lambda: now)
    monkeypatch.setattr(watching.asyncio, "sleep", pause)

    async def scene() -> None:
        watcher.polled()
        with pytest.raises(asyncio.CancelledError):
            await watcher.run()

    asyncio.run(scene())
    assert pauses == [10.0, 0.4]


def test_streams_end_with_the_server() -> None:
    async def read(stream: AsyncIterator[bytes]) -> list[bytes]:
        return [item async for item in stream]

    async def scene() -> None:
        news = News()
        waiting, behind = news.stream(), news.stream()
        await anext(behind)
        reading = asyncio.create_task(read(waiting))
        while news.num_readers < 2:
            await asyncio.sleep(0)
        await news.publish("run", {})
        await news.close()
        async with asyncio.timeout(60):
            assert (await reading)[0].startswith(b"id: 0\nevent: hello")
            await read(behind)
        assert news.num_readers == 0

    asyncio.run(scene())


def test_a_reader_that_leaves_disturbs_no_other() -> None:
    """A closed connection cancels its reader again and again, also while another one begins to wait."""

    async def scene() -> None:
        news = News()
        leaving, staying = news.stream(), news.stream()
        await anext(leaving)
        await anext(staying)
        left = asyncio.ensure_future(anext(leaving))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        left.cancel()
        stayed = asyncio.ensure_future(anext(staying))
        await asyncio.sleep(0)
        left.cancel()
        async with asyncio.timeout(10):
            await asyncio.wait([left])
            await news.publish("run", {})
            assert await stayed == b"id: 1\nevent: run\ndata: {}\n\n"
        await staying.aclose()

    asyncio.run(scene())


def test_a_reader_that_is_too_slow_starts_over() -> None:
    async def scene() -> None:
        news = News()
        stream = news.stream()
        hello = await anext(stream)
        for _ in range(2_001):
            await news.publish("run", {})
        again = await anext(stream)
        assert again.startswith(b"id: 2001\nevent: hello\n")
        assert again.partition(b"session")[2][:22] != hello.partition(b"session")[2][:22]  # so that a page reloads
        await news.publish("note", {})
        assert await anext(stream) == b"id: 2002\nevent: note\ndata: {}\n\n"
        await stream.aclose()

    asyncio.run(scene())


def test_a_quiet_stream_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedge.view.news._HEARTBEAT_S", 0.0)

    async def scene() -> None:
        stream = News().stream()
        await anext(stream)
        async with asyncio.timeout(60):
            assert [await anext(stream), await anext(stream)] == [b": alive\n\n"] * 2
        await stream.aclose()

    asyncio.run(scene())


def test_streams_and_polls_have_the_same_news() -> None:
    async def scene() -> None:
        news = News()
        stream = news.stream()
        hello = await anext(stream)
        assert hello.startswith(b"id: 0\nevent: hello\n")
        await news.publish("run", {"key": "a"})
        await news.publish("run", {"key": "b"})
        assert [await anext(stream), await anext(stream)] == [
            b'id: 1\nevent: run\ndata: {"key":"a"}\n\n',
            b'id: 2\nevent: run\ndata: {"key":"b"}\n\n',
        ]
        assert [item.data for item in news.since(1) or ()] == [b'{"key":"b"}']
        assert news.since(2) == []
        assert news.since(7) is None  # of an earlier process
        await stream.aclose()
        assert news.num_readers == 0

    asyncio.run(scene())


def test_dropped_events_are_not_silently_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        news = News()
        for _ in range(2_500):
            await news.publish("run", {})
        assert news.since(400) is None
        assert len(news.since(500) or ()) == 2_000

    asyncio.run(scene())


def test_large_news_are_kept_for_a_shorter_time() -> None:
    async def scene() -> None:
        news = News()
        for _ in range(20):
            await news.publish("run", {"text": "x" * 1_000_000})
        assert 6 <= len(news.since(14) or ()) < 8
        assert news.since(5) is None
        await news.publish("run", {"text": "x" * 10_000_000})  # the last is kept, whatever its size
        assert len(news.since(20) or ()) == 1

    asyncio.run(scene())


def test_a_record_is_found_by_bisection(tmp_path: Path) -> None:
    file = tmp_path / "rounds.jsonl"
    numbers = [1, 2, 3, 7, 8, 100, 101, 5000]
    file.write_text(
        "".join(json.dumps({"round": n, "text": "x" * (n % 7) * 3000}) + "\n" for n in numbers) + '{"round": 6'
    )
    for number in range(1, 110):
        found = find_record(file, number)
        assert (None if found is None else found["round"]) == (number if number in numbers else None)
    last = find_record(file, 5000)
    assert last is not None
