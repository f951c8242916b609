"""News of runs while somebody watches: only what is new, and again from the start after a resume."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.page_runs import make_run

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


def test_nothing_new(watcher: Watcher) -> None:
    assert watcher.look() == []


def test_only_new_records_travel(watcher: Watcher, runs: Path) -> None:
    run = runs / "begun/seed-1"
    append(run, 5)
    (first,) = records(watcher.look())
    assert (first["from"], first["records"]) == (None, [])  # a page asks for what it lacks
    append(run, 6, 7)
    (second,) = records(watcher.look())
    assert second["from"] == first["to"]
    assert [record["round"] for record in second["records"]] == [6, 7]
    assert not second["restarted"]


def test_what_changed_between_the_page_and_the_first_look(runs: Path) -> None:
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


def test_runs_that_come_and_go(watcher: Watcher, runs: Path) -> None:
    make_run(runs / "new" / "seed-1")
    (kind, data), *_ = watcher.look()
    assert kind == "runs"
    assert len(data["added"]) == 1
    (runs / "new").rename(runs / ".gone")
    assert watcher.look() == [("runs", {"added": [], "removed": data["added"]})]


def test_a_run_damaged_meanwhile(watcher: Watcher, runs: Path) -> None:
    (runs / "begun/seed-1/rounds.jsonl").write_text("nonsense\n")
    (item,) = [data for kind, data in watcher.look() if kind == "run"]
    assert item["status"] == "damaged"
    assert "rounds.jsonl" in item["problem"]


def test_news_of_a_server(watcher: Watcher, runs: Path) -> None:
    run = runs / "begun/seed-1"
    (run / "registry.sqlite").write_bytes(b"")
    append(run, 5)
    (run / "status.json").write_text(json.dumps({"state": "open", "round": 5, "time": "2026-11-18T04:00:00Z"}))
    (run / "events.jsonl").write_text('{"event": "join", "name": "a"}\n')
    (found,) = [data for kind, data in watcher.look() if kind == "server"]
    assert (found["status"]["round"], found["events"]) == (5, [{"event": "join", "name": "a"}])
    with (run / "events.jsonl").open("a") as file:
        file.write('{"event": "leave", "name": "a"}\n{"event": "jo')
    (found,) = [data for kind, data in watcher.look() if kind == "server"]
    assert found == {"key": found["key"], "events": [{"event": "leave", "name": "a"}]}
    (run / "events.jsonl").rename(run / "events.jsonl.1")
    (run / "events.jsonl").write_text('{"event": "join", "name": "b"}\n')
    (found,) = [data for kind, data in watcher.look() if kind == "server"]
    assert found["events"] == [{"event": "join", "name": "b"}]


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


def test_what_is_no_longer_kept_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        news = News()
        for _ in range(2_500):
            await news.publish("run", {})
        assert news.since(400) is None
        assert len(news.since(500) or ()) == 2_000

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
