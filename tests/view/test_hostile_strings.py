"""Two hundred hostile texts in every place of a run, a note or a URL: they are shown without effect."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from benchmarks.page_runs import make_run
from starlette.testclient import TestClient

from fedge.core.printable import printable
from fedge.view.guard import CSRF_HEADER, AccessRules
from view.hostile_strings import FILE_NAMES, STRINGS
from view.page_checks import check_page

OpenPage = Callable[..., TestClient]
EVERYWHERE = STRINGS[::7]
"""A sample, for places that need a request per text."""


def test_there_are_two_hundred_hostile_strings() -> None:
    assert len(set(STRINGS)) >= 200


def make_hostile_run(path: Path, texts: list[str], seed: int = 1, **changes: Any) -> Path:
    """Write a run in which a text is the name, a setting, the name of a metric, a client's name and so on."""
    first = texts[0]
    settings = {"data": {"name": first, "dir": first, first: {first: first}}, "tags": texts, **changes}
    run = make_run(path, seed, rounds=3, name=first, **settings)
    config = json.loads((run / "config.json").read_text())
    config["algorithm"] = {"name": first, "learning_rate": 0.1, f"own {first}": first}
    (run / "config.json").write_text(json.dumps(config))
    (run / "environment.json").write_text(json.dumps({"started": first, first: first, "host": texts}))
    clients = [{"client": i, "name": text, "user_accuracy": 0.5, "note": text} for i, text in enumerate(texts)]
    (run / "clients.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in clients))
    (run / "names.json").write_text(json.dumps({"classes": texts, "clients": texts}))
    return run


def make_hostile_server(path: Path, texts: list[str]) -> Path:
    run = make_hostile_run(path, texts)
    (run / "summary.json").unlink()
    (run / "registry.sqlite").write_bytes(b"")
    status = {"state": texts[0], "time": "2026-11-18T04:00:00Z", "waiting_for": texts[0], "asked": 2, "received": 1}
    status |= {"clients": dict.fromkeys(texts, 1), "not_joined": dict(zip(texts, texts, strict=True))}
    (run / "status.json").write_text(json.dumps(status))
    kinds = ("join", "reject", "refuse", "drop", "fail")
    events = [
        {"time": text, "event": kinds[i % 5], "client": i, "name": text, "reason": text, f"x{text}": text}
        for i, text in enumerate(texts)
    ] + [{"event": text, "name": text} for text in texts[:20]]
    (run / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    return run


def keys(page: TestClient, query: str = "limit=1000") -> dict[str, str]:
    return {row["path"]: row["key"] for row in page.get(f"/api/runs?{query}").json()["rows"]}


@pytest.mark.full
def test_names_settings_and_notes_in_the_tables(tmp_path: Path, open_page: OpenPage) -> None:
    folder = tmp_path / "runs"
    for number, text in enumerate(STRINGS):
        make_hostile_run(folder / f"r{number:03}", [text], seed=number)
    page = open_page(folder)
    found = page.get("/api/runs?limit=1000").json()
    assert not found["damaged"], [row["problem"] for row in found["rows"] if row["problem"]][:3]
    assert {row["name"] for row in found["rows"]} >= {text for text in STRINGS if text and text == printable(text)}
    notes = {
        row["key"]: {"tags": [text[:40]], "note": text[:4000]} for row, text in zip(found["rows"], STRINGS, strict=True)
    }
    ids = {json.loads((folder / row["path"] / "config.json").read_text())["id"]: row["key"] for row in found["rows"]}
    (folder / "fedge-notes.json").write_text(json.dumps({name: notes[key] for name, key in ids.items()}))
    for path in ("/?limit=1000", "/?limit=1000&group=data.name", "/?group=settings&sort=-name", "/compare?limit=50"):
        answer = page.get(path)
        assert answer.status_code == 200, path
        check_page(answer.text)
    assert "&lt;script&gt;" in page.get("/?limit=1000").text
    assert page.get("/api/compare").status_code == 200
    for kind in ("curves", "parallel", "importance", "users", "bars"):
        answer = page.get(f"/api/chart/{kind}?y=accuracy")
        assert answer.status_code in (200, 400), (kind, answer.text)
        assert answer.json()
    text = page.get("/export/runs.csv").text
    assert not [line for line in text.splitlines() if line.startswith(("=", "+", "@"))]


def test_pages_of_runs_and_servers(tmp_path: Path, open_page: OpenPage) -> None:
    folder = tmp_path / "runs"
    make_hostile_server(folder / "all", [text for text in STRINGS if len(text) < 200])
    for number, text in enumerate(EVERYWHERE):
        make_hostile_server(folder / f"r{number:03}", [text])
    page = open_page(folder)
    found = keys(page)
    assert len(found) == len(EVERYWHERE) + 1
    for path, key in found.items():
        for kind in ("run", "server"):
            answer = page.get(f"/{kind}/{key}")
            assert answer.status_code == 200, (kind, path, answer.text)
            check_page(answer.text)
            assert page.get(f"/api/{kind}/{key}").status_code == 200
            assert "&lt;" in answer.text or path != "all"


def test_names_of_folders(tmp_path: Path, open_page: OpenPage) -> None:
    folder = tmp_path / "runs"
    for number, name in enumerate(FILE_NAMES):
        make_run(Path(os.fsdecode(os.fsencode(folder) + b"/" + name)), seed=number, finished=number % 2 == 0)
    page = open_page(folder)
    found = keys(page)
    assert len(found) == len(FILE_NAMES)
    check_page(page.get("/").text)
    check_page(page.get("/compare").text)
    for path, key in found.items():
        answer = page.get(f"/run/{key}")
        assert answer.status_code == 200, path
        check_page(answer.text)
        assert page.get(f"/api/run/{key}").json()["path"] == path
        assert page.get(f"/api/chart/curves?run={key}").status_code == 200


PARAMETERS = {
    "/": ("q", "where", "run", "group", "values", "round", "sort", "column", "offset", "limit"),
    "/api/runs": ("q", "where", "run", "group", "values", "round", "sort", "column", "offset", "limit"),
    "/compare": ("q", "where", "run", "x", "y", "outcome", "baseline", "top", "seeds"),
    "/api/compare": ("q", "where", "run", "x", "y", "outcome", "baseline"),
    "/api/chart/curves": ("x", "y", "by", "at", "seeds", "top", "log", "run"),
    "/export/chart/curves.csv": ("x", "y", "by", "run", "q"),
    "/api/news": ("since",),
}


@pytest.mark.full
@pytest.mark.parametrize("path", PARAMETERS)
def test_parameters_of_addresses(page: TestClient, path: str) -> None:
    names = PARAMETERS[path]
    for number, text in enumerate(STRINGS):
        name = names[number % len(names)]
        for value in (text[:2000], f"name={text[:500]}") if name == "where" else (text[:2000],):
            answer = page.get(path, params={name: value})
            assert answer.status_code in (200, 400, 404), (name, value, answer.text[:500])
            check_answer(answer)


def check_answer(answer: Any) -> None:
    """Check that a page has no foreign markup, or that it is JSON; an error has a message."""
    kind = answer.headers["content-type"]
    if kind.startswith("text/html"):
        check_page(answer.text)
        if answer.status_code >= 400:
            assert 'class="warning"' in answer.text
    elif kind == "application/json":
        found = answer.json()
        assert answer.status_code == 200 or len(found["error"]) > 10
    else:
        assert kind.startswith(("text/csv", "text/plain"))


@pytest.mark.parametrize(
    "path", ["/{}", "/run/{}", "/server/{}", "/api/run/{}", "/api/chart/{}", "/export/chart/{}", "/static/{}"]
)
def test_paths(page: TestClient, path: str) -> None:
    for text in STRINGS:
        if text.strip("/") in ("", ".", ".."):
            continue
        answer = page.get(path.format(quote(text[:500].encode(errors="replace"), safe="")))
        if answer.url.path in ("/", "/compare") or (path == "/static/{}" and answer.status_code == 200):
            continue
        assert answer.status_code in (400, 404), (text, answer.text)
        check_answer(answer)


@pytest.mark.full
def test_hosts_and_headers(page: TestClient) -> None:
    for text in STRINGS:
        value = text[:500].encode("latin-1", errors="replace").replace(b"\r", b"").replace(b"\n", b"").strip()
        headers = [(name, value) for name in (b"cookie", b"fedge-part", b"origin", b"range", b"accept-encoding")]
        assert page.get("/api/news", headers=headers).status_code == 200
        assert page.get("/api/news", headers=[(b"host", value)]).status_code in (200, 400), text
        assert page.get("/api/news", headers=[(b"authorization", value)]).status_code == 401
    for text in EVERYWHERE:
        part = page.get("/", headers=[(b"fedge-part", text[:500].encode("latin-1", errors="replace").strip())])
        assert part.status_code == 400
        check_answer(part)


def test_tags_and_notes(runs: Path, open_page: OpenPage) -> None:
    rules = AccessRules()
    page = open_page(runs, rules)
    key = keys(page)["begun/seed-1"]
    for text in EVERYWHERE:
        body = {"tags": [text[:40]], "note": text[:4000]}
        answer = page.post(f"/api/notes/{key}", json=body, headers={CSRF_HEADER: rules.csrf})
        assert answer.status_code == 200, answer.text
        check_page(page.get(f"/run/{key}").text)
        check_page(page.get("/?q=begun").text)
