"""Run directories with invalid files: every page answers and states the problem."""

from __future__ import annotations

import asyncio
import json
import os
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.page_runs import make_run
from starlette.testclient import TestClient

from edge_rounds import edge_line
from fedge.view.histories import Histories
from fedge.view.news import News
from fedge.view.run_index import RunIndex
from fedge.view.watcher import Watcher
from hostile import NUMBERS, OTHERS, TEXTS
from mutations import mutate, watched
from view.page_checks import check_page

pytestmark = pytest.mark.full

OpenPage = Callable[..., TestClient]
FILES = ("config.json", "rounds.jsonl", "summary.json", "environment.json", "names.json")
FILES += ("edge.jsonl", "clients.jsonl", "events.jsonl", "status.json", "lock")
NUM_RUNS = 60
VALUES = [*NUMBERS, *(text for text in TEXTS if len(text) < 1000), *OTHERS]


def make_full_run(path: Path, seed: int) -> Path:
    """Write a run with every file that a page reads."""
    run = make_run(path, seed, 4, finished=seed % 3 > 0)
    edge = [edge_line(i, 2, 2, [(0, 0, 1, 2, 0, 1), (1, 3, 1, 1, 1, 1)], None) for i in (1, 2, 3)]
    clients = [{"client": i, "num_train": 9, "user_accuracy": 0.5} for i in range(3)]
    events: list[dict[str, Any]] = [{"event": "join", "client": 0, "name": "a"}]
    events += [{"event": "reject", "client": 0, "reason": "late", "round": 1, "time": "2026-11-18T04:00:00Z"}]
    for name, lines in (("edge", edge), ("clients", clients), ("events", events)):
        (run / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    status = {"state": "open", "round": 2, "num_rounds": 4, "asked": 3, "received": 1, "accepted": 1, "deadline_s": 9.0}
    status |= {"time": "2026-11-18T04:00:00Z", "clients": {"idle": 2}, "not_joined": {"a": "b"}, "bytes_up": 7}
    (run / "status.json").write_text(json.dumps(status))
    (run / "names.json").write_text(json.dumps({"classes": ["a", "b"], "clients": ["x", "y"]}))
    (run / "lock").write_text("123 456 elsewhere 0b5e\n")
    (run / "registry.sqlite").write_bytes(b"")
    return run


def change_value(value: Any, rng: random.Random) -> Any:
    """Return JSON with one value somewhere in it replaced, removed or added."""
    inner = (
        list(value.items() if isinstance(value, dict) else enumerate(value)) if isinstance(value, dict | list) else []
    )
    if not inner or rng.random() < 0.1:
        return rng.choice(VALUES)
    key, below = rng.choice(inner)
    if isinstance(value, dict):
        if rng.random() < 0.1:
            return {name: one for name, one in value.items() if name != key}
        return value | {key: change_value(below, rng)}
    return [change_value(one, rng) if i == key else one for i, one in enumerate(value)]


def damage(file: Path, rng: random.Random) -> str:
    """Change a file in one of many ways; return which."""
    data = file.read_bytes() if file.exists() else b'{"rounds": 1, "accuracy": 0.5}'
    deep = b'{"a":' * 5_000 + b"1" + b"}" * 5_000
    ways: dict[str, Callable[[], bytes]] = {
        "bytes": lambda: mutate(data, rng),
        "values": lambda: change_values(file, data, rng),
        "cut": lambda: data[: rng.randrange(len(data) + 1)],
        "empty": lambda: b"",
        "deep": lambda: deep + b"\n",
        "binary": lambda: rng.randbytes(3_000),
        "list": lambda: b"[]\n",
        "number": lambda: b"1e999\n",
        "nan": lambda: data.replace(b": 1", b": NaN"),
        "huge": lambda: data.replace(b": 1", b": 1" + b"0" * 350),
        "large": lambda: data.replace(b": 1", b": 1" + b"0" * 280),
        "twice": lambda: data + data,
        "long line": lambda: data + b'{"round": 9, "x": "' + b"y" * 200_000 + b'"}\n',
    }
    way = rng.choice(["values"] * 8 + list(ways))
    file.write_bytes(ways[way]())
    return f"{file.name}: {way}"


def change_values(file: Path, data: bytes, rng: random.Random) -> bytes:
    if file.name == "lock":
        return mutate(data, rng)
    try:
        json.loads(data.splitlines()[0] if file.suffix == ".jsonl" else data)
    except (ValueError, IndexError, RecursionError):  # it was damaged before
        return mutate(data, rng)
    lines = data.splitlines() if file.suffix == ".jsonl" else [data]
    changed = rng.randrange(len(lines))
    found = [change_value(json.loads(line), rng) if i == changed else json.loads(line) for i, line in enumerate(lines)]
    return b"".join(json.dumps(one).encode(errors="replace") + b"\n" for one in found)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 8))])
def test_fuzzed_runs(tmp_path: Path, open_page: OpenPage, seed: int) -> None:
    folder, rng = tmp_path / "runs", random.Random(seed)
    how: dict[str, str] = {}
    for number in range(NUM_RUNS):
        run = make_full_run(folder / f"r{number:03}", number)
        how[run.name] = damage(run / FILES[number % len(FILES)], rng)
    make_run(folder / "sound")
    page = open_page(folder)
    rows = page.get("/api/runs?limit=1000").json()["rows"]
    found = {row["path"].split("/")[0]: row for row in rows}
    assert set(found) == {*how, "sound"}
    assert found["sound"]["status"] == "complete"
    assert all(row["problem"] for row in rows if row["status"] == "damaged")
    failed, done = [], set[str]()
    for name, row in found.items():
        done.add(name)
        for address in addresses(row["key"], charts=len(done) % 5 == seed % 5):
            answer = page.get(address)
            failed += [(name, how.get(name), address)] if answer.status_code not in (200, 400, 404, 409) else []
            if answer.headers["content-type"].startswith("text/html"):
                check_page(answer.text)
                assert answer.status_code == 200 or 'class="warning"' in answer.text, (how.get(name), address)
            elif answer.status_code not in (200, 500):
                assert len(answer.json()["error"]) > 10, (how.get(name), address)
    assert not failed
    for address in ("/?limit=1000", "/?group=settings", "/?group=data.name&values=best", "/?values=at&round=2"):
        answer = page.get(address)
        assert answer.status_code == 200, address
        check_page(answer.text)
    for address in ("/compare", "/api/compare", "/api/chart/curves", "/export/runs.csv", "/api/chart/pareto"):
        assert page.get(address).status_code in (200, 400), address


def addresses(key: str, charts: bool = False) -> list[str]:
    kinds = ("curves", "grid", "timeline", "users") if charts else ()
    return [
        f"/run/{key}",
        f"/api/run/{key}",
        f"/api/run/{key}/records",
        f"/server/{key}",
        f"/api/server/{key}",
        *(f"/api/chart/{kind}?run={key}" for kind in kinds),
    ]


def test_runs_that_change_while_they_are_watched(tmp_path: Path) -> None:
    folder, rng = tmp_path / "runs", random.Random(3)
    runs = [make_full_run(folder / f"r{number}", number) for number in range(10)]
    index = RunIndex(folder)
    watcher = Watcher(index, Histories(index), News())
    watcher.look()
    for number in range(60):
        run = runs[number % len(runs)]
        with watched():
            damage(run / FILES[rng.randrange(len(FILES))], rng)
            watcher.look()
        if number % 3 == 0:
            make_full_run(run, number)


def test_the_watcher_survives_unexpected_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "runs" / "a")
    index = RunIndex(tmp_path / "runs")
    news = News()
    watcher = Watcher(index, Histories(index), news)
    monkeypatch.setattr("fedge.view.watcher._EVERY_S", 0.0)
    outcomes: list[Any] = [RuntimeError("broken"), [("run", {"key": "a"})]]

    def look() -> Any:
        found = outcomes.pop(0) if outcomes else []
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(watcher, "look", look)

    async def scene() -> None:
        watching = asyncio.create_task(watcher.run())
        stream = news.stream()
        await anext(stream)
        async with asyncio.timeout(60):
            assert b'"key":"a"' in await anext(stream)
        assert not watching.done()
        watching.cancel()
        await stream.aclose()

    asyncio.run(scene())


@pytest.mark.parametrize(
    "name", ["config.json", "rounds.jsonl", "events.jsonl", "status.json", "lock", "clients.jsonl"]
)
@pytest.mark.parametrize("kind", ["fifo", "folder", "link", "unreadable"])
def test_special_files(
    tmp_path: Path, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    for constant in ("_FRESH_S", "_SHARE"):  # each request looks at the files again
        monkeypatch.setattr(f"fedge.view.workspace.{constant}", 0)
    run = make_full_run(tmp_path / "runs" / "odd", 3)
    make_run(tmp_path / "runs" / "sound")
    (tmp_path / "secret").write_text('{"secret": "s3cr3t", "event": "s3cr3t", "round": 1}\n')
    page = open_page(tmp_path / "runs")
    assert page.get("/api/runs").json()["damaged"] == 0
    page.get("/api/runs")
    (run / name).unlink()
    if kind == "fifo":
        os.mkfifo(run / name)
    elif kind == "folder":
        (run / name).mkdir()
    elif kind == "link":
        (run / name).symlink_to(tmp_path / "secret")
    else:
        (run / name).touch(mode=0)
    fresh = open_page(tmp_path / "runs")
    for asked in (page, fresh):
        rows = {row["path"]: row for row in asked.get("/api/runs").json()["rows"]}
        assert rows["sound"]["status"] == "complete"
        for address in (*addresses(rows["odd"]["key"]), "/", "/?values=at&round=1", "/compare", "/api/compare"):
            answer = asked.get(address)
            assert answer.status_code in (200, 400, 404, 409), (address, answer.text)
            assert "s3cr3t" not in answer.text


def test_memory_is_bounded(tmp_path: Path, open_page: OpenPage) -> None:
    """An event log of 60 MB is read from its end; the memory for a run does not grow with its records."""
    run = make_full_run(tmp_path / "runs" / "long", 3)
    line = json.dumps({"event": "reject", "reason": "x" * 1_000}) + "\n"
    (run / "events.jsonl").write_text(line * 60_000)
    page = open_page(tmp_path / "runs")
    key = page.get("/api/runs").json()["rows"][0]["key"]
    page.get(f"/server/{key}")
    tracemalloc.start()
    try:
        answer = page.get(f"/server/{key}")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answer.status_code == 200
    assert peak < 30e6
