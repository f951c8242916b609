"""Names of runs and folders are data: they cannot inject code into a terminal, a browser, Markdown or a chart."""

import csv
import json
import os
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from fedge.core.printable import printable
from fedge.report.page_style import SORT_SCRIPT
from fedge.report.run_display import Bar, RunLines, RunPicture
from hostile import LABELS

pytestmark = pytest.mark.full

UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800-\udfff]")
BYTES_THAT_ARE_NO_TEXT = "caf\udce9"


@pytest.fixture
def runs(write_run: Callable[..., Path], tmp_path: Path) -> Path:
    """Two runs for every label; also folders whose names are not UTF-8 or contain control sequences."""
    folder = tmp_path / "runs"
    for i, label in enumerate(LABELS):
        target = {"metric": "accuracy", "value": 0.6}
        results = {"rounds": 2, "accuracy": 0.75, "rounds_to_target": 2}
        algorithm = {"name": label, label: label}
        for seed in (1, 2):
            path = folder / f"{i}-{seed}"
            write_run(path, summary=results, seed=seed, name=label, algorithm=algorithm, target=target)
            (path / "environment.json").write_text(json.dumps({"cpu": label, "fedge": label}))
    write_run(folder / "\x1b[31mred\nline", summary={"rounds": 2, "accuracy": 0.5})
    write_run(folder / BYTES_THAT_ARE_NO_TEXT, summary={"rounds": 2, "accuracy": 0.5})
    (write_run(folder / "\x1b[2Jdamaged") / "config.json").write_text("{")
    return folder


@pytest.mark.parametrize("label", [*LABELS, BYTES_THAT_ARE_NO_TEXT])
def test_printable(label: str) -> None:
    shown = printable(label)
    assert not UNSAFE.search(shown)
    assert "\n" not in shown
    assert "\t" not in shown
    shown.encode()
    if label != BYTES_THAT_ARE_NO_TEXT:
        assert json.loads(f'"{printable(json.dumps(label, ensure_ascii=False)[1:-1])}"') == label


def test_safe_text_is_unchanged() -> None:
    assert printable("fedavg+learning_rate-0.1 é漢 <b>") == "fedavg+learning_rate-0.1 é漢 <b>"
    assert printable("a\nb\x1b", "\n") == "a\nb\\u001b"


@pytest.mark.parametrize(
    "command", [["list"], ["list", "--format", "json"], ["show"], ["show", "--format", "json"]], ids=" ".join
)
def test_lists(fedge, runs: Path, command: list[str]) -> None:
    result = fedge(command[0], runs, *command[1:])
    assert result.exit_code == 0
    assert not UNSAFE.search(result.stdout)
    assert not UNSAFE.search(result.stderr)
    assert "\\u001b[2Jdamaged" in result.stderr or "json" in command
    if "json" in command:
        said = json.loads(result.stdout)
        names = {run.get("name") for run in (said["runs"] if command[0] == "show" else said)}
        assert set(LABELS) <= names


def test_one_run(fedge, runs: Path) -> None:
    for i in range(len(LABELS)):
        for form in ("text", "json"):
            result = fedge("show", runs / f"{i}-1", "--format", form)
            assert result.exit_code == 0
            assert not UNSAFE.search(result.stdout)


def test_errors(fedge, tmp_path: Path) -> None:
    for label in LABELS:
        result = fedge("config", tmp_path / "none.toml", "--set", f"name={json.dumps(label)}")
        assert result.exit_code == 2
        assert not UNSAFE.search(result.stderr)
    result = fedge("show", tmp_path / "\x1b[2J")
    assert result.exit_code == 6
    assert "\\u001b[2J" in result.stderr


class Tags(HTMLParser):
    """Collects the elements and attributes that a browser would see."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found += [tag, *(name for name, _ in attributes)]


def test_reports(fedge, runs: Path, tmp_path: Path) -> None:
    for suffix in ("html", "md", "tex"):
        assert fedge("report", runs, "-o", tmp_path / f"report.{suffix}").exit_code == 0
        text = (tmp_path / f"report.{suffix}").read_text(encoding="utf-8")
        assert not UNSAFE.search(text)
        assert "漢字" in text
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    page = Tags(text.replace(f"<script>{SORT_SCRIPT}</script>", "")).found
    assert not {"script", "img", "b", "onerror"} & set(page)
    assert "svg" in page
    outside = list(_outside_fences((tmp_path / "report.md").read_text(encoding="utf-8")))
    assert any("alert(1)" in line for line in outside)
    for line in outside:
        assert "<" not in line
        assert not re.search(r"(?<!\\)(\\\\)*\[click\]", line)
    table = (tmp_path / "report.tex").read_text(encoding="utf-8")
    assert "\\input" not in table


def _outside_fences(text: str) -> Iterator[str]:
    fence = None
    for line in text.splitlines():
        found = re.match("`{3,}$", line)
        if found and fence in (None, found[0]):
            fence = None if fence else found[0]
        elif fence is None:
            yield line


@pytest.mark.parametrize("suffix", ["svg", "png", "html"])
@pytest.mark.parametrize("kind", ["curves", "bars"])
def test_charts(fedge, runs: Path, tmp_path: Path, kind: str, suffix: str) -> None:
    chart = tmp_path / f"chart.{suffix}"
    assert fedge("plot", runs, "--kind", kind, "-o", chart).exit_code == 0
    if suffix == "svg":
        assert not UNSAFE.search(chart.read_text(encoding="utf-8"))
        assert not {"script", "img", "onerror"} & set(Tags(chart.read_text(encoding="utf-8")).found)
    if suffix == "html":
        page = chart.read_text(encoding="utf-8")
        assert "<script>alert(1)" not in page
        assert "</script><script>alert" not in page
        assert "\\u003c/script>\\u003cscript>alert(1)" in page.replace("  ", "")  # where labels of bars may be broken


def test_exports(fedge, runs: Path, tmp_path: Path) -> None:
    assert fedge("export", runs, "--to", "csv", "-o", tmp_path / "all.csv").exit_code == 0
    with (tmp_path / "all.csv").open(encoding="utf-8", newline="") as file:
        names = {row["name"] for row in csv.DictReader(file)}
    assert set(LABELS) <= names
    assert fedge("export", runs, "--to", "parquet", "-o", tmp_path / "all.parquet").exit_code == 0
    assert fedge("export", runs, "--to", "hfl-json", "-o", tmp_path / "hfl").exit_code == 0
    files = list((tmp_path / "hfl").iterdir())
    assert {json.loads(file.read_text())["config"]["fedge"]["name"] for file in files} >= set(LABELS)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", file.name) for file in files)
    assert fedge("export", runs, "--to", "tensorboard", "-o", tmp_path / "events").exit_code == 0
    (made,) = (tmp_path / "events").glob("*red*")
    assert re.fullmatch(r"\\u001b\[31mred\\u000aline-[0-9a-f]{8}", made.name)


@pytest.mark.parametrize("label", LABELS)
def test_progress(label: str, capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(force_terminal=False, width=500, no_color=True)
    bar = Bar(console)
    bar.show(RunPicture(label, 1, 2, "0:01 left", label))
    bar.notice(label)
    bar.close()
    RunLines().show(RunPicture(label, 1, 2, "0:01 left", label))
    said = capsys.readouterr()
    assert not UNSAFE.search(said.out)
    assert not UNSAFE.search(said.err)
    assert "round 1/2" in said.out
    assert "round 1/2" in said.err


def test_closed_streams(runs: Path, fedge_process) -> None:
    def start(redirect: str) -> tuple[int, str]:
        process = fedge_process("list", runs, preexec_fn=lambda: [os.close(int(fd)) for fd in redirect.split()])
        _, err = process.communicate(timeout=60)
        return process.returncode, err

    code, err = start("1")
    assert code == 7
    assert err.splitlines()[-1].startswith("error: cannot write the result: Bad file descriptor")
    assert "Traceback" not in err
    assert start("2")[0] == 0
    assert start("1 2")[0] == 7
    assert start("0 1 2")[0] == 7
