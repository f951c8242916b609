"""Folders with wrong clocks, huge texts, copies or missing permissions; every other run is still shown."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from benchmarks.page_runs import make_run
from starlette.testclient import TestClient

from fedge.view import run_entry, workspace
from fedge.view.guard import CSRF_HEADER, AccessRules
from fedge.view.histories import find_record
from fedge.view.page_charts import KINDS
from mutations import watched
from view.page_checks import check_page
from view.test_exports import key_of, offline
from view.view_server import ViewServer

OpenPage = Callable[..., TestClient]


@pytest.mark.parametrize(
    "started", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "0001-01-01T00:00:00", "2999-01-01T00:00:00Z"]
)
def test_a_start_at_an_absurd_time(runs: Path, open_page: OpenPage, started: str) -> None:
    (runs / "rate-0.1/seed-1/environment.json").write_text(json.dumps({"started": started}))
    page = open_page(runs)
    for path in ("/", "/?sort=started", "/export/runs.csv", "/compare"):
        assert page.get(path).status_code == 200, path
    assert len(page.get("/api/runs").json()["rows"]) == 8
    assert page.get(f"/run/{key_of(page, 'rate-0.1/seed-1')}").status_code == 200


def test_a_record_of_ten_megabytes(runs: Path, open_page: OpenPage) -> None:
    file = runs / "begun/seed-1/rounds.jsonl"
    with file.open("a") as opened:
        opened.write(json.dumps({"round": 5, "accuracy": 0.5, "text": "x" * 10_000_000}) + "\n")
        opened.write(json.dumps({"round": 6, "accuracy": 0.75}) + "\n")
    with watched():
        for number in (1, 4, 5, 6):
            found = find_record(file, number)
            assert found is not None
            assert found["round"] == number
        assert find_record(file, 7) is None
    page = open_page(runs)
    (row,) = page.get("/api/runs?where=path~begun&values=at&round=6").json()["rows"]
    assert row["values"]["accuracy"]["value"] == 0.75


@pytest.mark.parametrize("name", ["config.json", "summary.json", "environment.json"])
def test_settings_and_results_of_ten_megabytes(
    runs: Path, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    file = runs / "rate-0.1/seed-1" / name
    before = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(before | {"text": "x" * 10_000_000}))
    page = open_page(runs)
    (row,) = page.get("/api/runs?where=path=rate-0.1/seed-1").json()["rows"]
    assert row["problem"].startswith(f"{name}: expected at most 1,048,576 bytes, got 10,000,")
    assert row["problem"].endswith("; shorten its texts")
    for path in ("/", "/compare", f"/run/{row['key']}"):
        answer = page.get(path)
        assert answer.status_code == 200
        assert len(answer.content) < 1_000_000
    sizes = [(runs / "rate-0.1/seed-2" / each).stat().st_size for each in ("config.json", "summary.json")]
    monkeypatch.setattr(run_entry, "MOST_BYTES", max(sizes))
    shutil.copytree(runs / "rate-0.1/seed-2", runs / "copy")
    (row,) = open_page(runs).get("/api/runs?where=path=copy").json()["rows"]
    assert row["problem"] is None


@pytest.mark.parametrize("value", [1.7e308, 1e299, 1e150, 5e-324])
@pytest.mark.parametrize("name", ["summary.json", "rounds.jsonl"])
def test_results_at_the_ends_of_their_range(runs: Path, open_page: OpenPage, name: str, value: float) -> None:
    """Squares and sums of them are beyond any float."""
    for seed, found in ((1, value), (2, value), (3, -value)):
        file = runs / f"rate-0.1/seed-{seed}" / name
        lines = file.read_text().splitlines() if name == "rounds.jsonl" else [file.read_text()]
        last = json.dumps(json.loads(lines[-1]) | {"accuracy": found})
        file.write_text("\n".join([*lines[:-1], last, ""]))
    page = open_page(runs)
    for path in ("/", "/?group=settings", "/?group=data.name&sort=accuracy", "/compare", "/export/runs.csv"):
        answer = page.get(path)
        assert answer.status_code == 200, (path, answer.text)
    for kind in KINDS:
        answer = page.get(f"/api/chart/{kind}?y=accuracy")
        assert answer.status_code in (200, 400), (kind, answer.text)


@pytest.mark.full
@pytest.mark.parametrize("field", ["accuracy", "loss", "user_accuracy", "sim_seconds"])
@pytest.mark.parametrize("value", [1.7e308, -1.7e308])
def test_every_value_at_the_end_of_its_range(
    tmp_path: Path, open_page: OpenPage, field: str, value: float, recwarn: pytest.WarningsRecorder
) -> None:
    """Sums, differences and percentages of them are beyond any float; the terminal does not show it."""
    for seed in (1, 2, 3, 4):
        run = make_run(tmp_path / "runs" / f"seed-{seed}", seed % 2, 4, rate=seed / 10)
        for name in ("rounds.jsonl", "summary.json"):
            lines = (run / name).read_text().splitlines() if name == "rounds.jsonl" else [(run / name).read_text()]
            changed = [json.loads(line) | {field: value if i or seed < 4 else -value} for i, line in enumerate(lines)]
            (run / name).write_text("".join(f"{json.dumps(one)}\n" for one in changed))
        clients = [{"client": i, "user_accuracy": value if field == "user_accuracy" else 0.5} for i in range(3)]
        (run / "clients.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in clients))
    page = open_page(tmp_path / "runs")
    charts = [f"/api/chart/{kind}{query}" for kind in KINDS for query in ("", f"?y={field}", "?x=sim_seconds")]
    for path in ("/", "/?group=data.name", f"/compare?outcome={field}", "/compare?outcome=mean_loss", *charts):
        assert page.get(path).status_code in (200, 400), path
    assert [str(one.message) for one in recwarn] == []


def test_a_list_in_place_of_an_algorithm(tmp_path: Path, open_page: OpenPage) -> None:
    for seed in (1, 2, 3):
        run = make_run(tmp_path / "runs" / f"seed-{seed}", seed, 3, rate=seed / 10)
        config = json.loads((run / "config.json").read_text())
        config["algorithm"]["name"] = ["fedavg", seed % 2]
        (run / "config.json").write_text(json.dumps(config))
    page = open_page(tmp_path / "runs")
    for path in ("/", "/compare", "/api/chart/parallel?y=accuracy"):
        assert page.get(path).status_code == 200, path


def test_labels_of_a_hundred_thousand_characters(tmp_path: Path, open_page: OpenPage) -> None:
    """The time to draw a text grows quadratically, so it is cut; texts that differ at their end stay two curves."""
    for end in ("a", "b"):
        make_run(tmp_path / "runs" / end, 1, 3, model={"name": "x" * 100_000 + end})
    answer = open_page(tmp_path / "runs").get("/api/chart/curves")
    assert answer.status_code == 200
    assert len(answer.content) < 100_000
    rows = [row for rows in answer.json()["spec"]["datasets"].values() for row in rows]
    assert len({row["label"] for row in rows if "label" in row}) == 2


def test_a_chart_that_cannot_be_drawn_is_explained(tmp_path: Path, open_page: OpenPage) -> None:
    """vl-convert cuts long labels between the halves of a character beyond the first 65,536."""
    run = make_run(tmp_path / "runs" / "a", 1, 3, name="\N{ROCKET}" * 80)
    page = open_page(tmp_path / "runs")
    for suffix in ("svg", "png"):
        answer = page.get(f"/export/chart/curves.{suffix}")
        assert answer.status_code == 400
        assert answer.json()["error"].startswith("this chart cannot be drawn: Vega-Lite to ")
    text = offline(page, f"/export/run/{key_of(page, run.name)}.html")
    assert "this chart cannot be drawn" in text
    assert text.count("<svg") == 1  # the other chart has no such label


def test_copies_of_a_run(runs: Path, open_page: OpenPage) -> None:
    """A copied folder has the same id: it is another run with the same tags and notes, and the same seed."""
    shutil.copytree(runs / "rate-0.1/seed-1", runs / "elsewhere" / "copy")
    rules = AccessRules()
    page = open_page(runs, rules)
    keys = [key_of(page, path) for path in ("rate-0.1/seed-1", "elsewhere/copy")]
    assert len(set(keys)) == 2
    answer = page.post(f"/api/notes/{keys[0]}", json={"tags": ["t"]}, headers={CSRF_HEADER: rules.csrf})
    assert answer.status_code == 200
    assert len(page.get("/api/runs?where=tag=t").json()["rows"]) == 2
    found = page.get("/api/compare?q=fedavg&where=algorithm.learning_rate=0.1&where=status=complete").json()
    assert [one["reason"] for one in found["left_out"]] == ["repeats a seed of another run"]
    assert [group["count"] for group in found["groups"]] == [3]


def test_a_folder_that_vanishes_between_the_index_and_the_request(
    runs: Path, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace, "_FRESH_S", 1e9)  # the index is as it was
    (runs / "rate-0.3/seed-1/registry.sqlite").write_bytes(b"")
    page = open_page(runs)
    rows = page.get("/api/runs").json()["rows"]
    shutil.rmtree(runs)
    for row in rows:
        for kind in ("run", "server", "api/run", "api/server", "export/run", "export/server"):
            answer = page.get(f"/{kind}/{row['key']}{'.html' if 'export' in kind else ''}")
            assert answer.status_code in (200, 400, 404), (kind, row["path"], answer.text)
        assert page.get(f"/api/run/{row['key']}/records").status_code in (200, 404)
    for path in ("/", "/compare", "/api/compare", "/?values=at&round=2", "/export/runs.csv", "/api/chart/curves"):
        answer = page.get(path)
        assert answer.status_code in (200, 400), (path, answer.text)


@contextmanager
def modes(**wanted: tuple[Path, int]) -> Iterator[None]:
    """Give files and folders other permissions for a while."""
    before = [(path, path.stat().st_mode) for path, _ in wanted.values()]
    for path, mode in wanted.values():
        path.chmod(mode)
    try:
        yield
    finally:
        for path, mode in reversed(before):
            path.chmod(mode)


def answer(view: ViewServer, path: str) -> Any:
    got = view.get(path)
    assert got.status == 200, (path, got.read())
    return json.loads(got.read()) if "/api/" in path else got.read().decode()


def test_files_without_read_permission(start_view: Callable[..., ViewServer], runs: Path) -> None:
    files = {f"file{i}": (runs / "rate-0.1" / f"seed-{i}" / name, 0) for i, name in enumerate(
        ("config.json", "rounds.jsonl", "summary.json"), 1
    )}  # fmt: skip
    with modes(**files, folder=(runs / "rate-0.3/seed-1", 0), listed=(runs / "begun", 0o444)):
        view = start_view(runs, powerless=True)
        rows = {row["path"]: row for row in answer(view, "/api/runs")["rows"]}
        for i, name in enumerate(("config.json", "rounds.jsonl", "summary.json"), 1):
            assert name in rows[f"rate-0.1/seed-{i}"]["problem"]
            assert "ermission" in rows[f"rate-0.1/seed-{i}"]["problem"]
            check_page(answer(view, f"/run/{rows[f'rate-0.1/seed-{i}']['key']}"))
        assert rows["rate-0.3/seed-2"]["status"] == "complete"
        assert "rate-0.3/seed-1" not in rows
        check_page(answer(view, "/"))
        check_page(answer(view, "/compare"))
        assert view.process.err == ""


def test_a_folder_and_a_cache_that_cannot_be_written(
    start_view: Callable[..., ViewServer], runs: Path, cache: Path
) -> None:
    (cache / "fedge" / "view").mkdir(parents=True)
    places = [runs, cache, cache / "fedge", cache / "fedge" / "view"]
    with modes(**{str(i): (path, 0o555) for i, path in enumerate(places)}):
        view = start_view(runs, powerless=True)
        rows = answer(view, "/api/runs")["rows"]
        assert len(rows) == 8
        assert answer(view, "/api/chart/curves?q=rate")["n"] == 6
        refused = view.post(f"/api/notes/{rows[0]['key']}", {"tags": ["a"]})
        assert refused.status == 409
        assert "cannot write" in json.loads(refused.read())["error"]
        assert view.process.err == ""
    with modes(runs=(runs, 0o555)):  # notes go to the user's cache
        view = start_view(runs, powerless=True)
        assert view.post(f"/api/notes/{rows[0]['key']}", {"tags": ["a"]}).status == 200
        assert len(answer(view, "/api/runs?where=tag=a")["rows"]) == 1
    assert not (runs / "fedge-notes.json").exists()
