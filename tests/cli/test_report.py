"""`fedge report` and `fedge export`"""

from __future__ import annotations

import io
import json
import sys
from contextlib import nullcontext

import pytest

from fedge.cli.output import working


@pytest.fixture
def runs(write_run, tmp_path):
    for name in ("fedavg", "scaffold"):
        write_run(tmp_path / "runs" / name, summary={"rounds": 2, "accuracy": 0.75}, algorithm={"name": name})
    return tmp_path / "runs"


@pytest.mark.parametrize(("suffix", "starts"), [("html", "<!doctype html>"), ("md", "# My runs"), ("tex", "% needs")])
def test_each_form(fedge, runs, tmp_path, suffix, starts):
    if suffix == "html":
        pytest.importorskip("vl_convert", reason="needs the extra `view`")
    file = tmp_path / "new" / f"report.{suffix}"
    result = fedge("report", runs, "-o", file, "--title", "My runs")
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"report: {file}\n", "")
    text = file.read_text()
    assert text.startswith(starts)
    for name in ("FedAvg", "SCAFFOLD"):
        assert name in text
    if suffix != "tex":
        assert f"from {runs}" in text.replace("\\_", "_")


def test_the_report_lists_runs_left_out(fedge, runs, tmp_path):
    (runs / "fedavg" / "summary.json").write_text("{")
    result = fedge("report", runs, "-o", tmp_path / "report.md")
    assert "summary.json is damaged" in result.stderr
    assert "summary.json is damaged" in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize(
    ("name", "code", "says"), [("report.pdf", 2, ".html, .md or .tex"), ("report", 2, "no suffix")]
)
def test_an_unknown_form(fedge, runs, tmp_path, name, code, says):
    result = fedge("report", runs, "-o", tmp_path / name)
    assert result.exit_code == code
    assert says in result.stderr


def test_a_place_that_cannot_be_written(fedge, runs, tmp_path):
    (tmp_path / "file").write_text("")
    result = fedge("report", runs, "-o", tmp_path / "file" / "report.md")
    assert result.exit_code == 7
    assert "cannot write" in result.stderr


def test_no_runs(fedge, tmp_path):
    assert fedge("report", tmp_path, "-o", tmp_path / "report.md").exit_code == 6
    assert fedge("export", tmp_path, "--to", "csv", "-o", tmp_path / "x.csv").exit_code == 6


def test_export(fedge, runs, tmp_path):
    result = fedge("export", runs, "--to", "hfl-json", "-o", tmp_path / "results")
    assert (result.exit_code, result.stdout) == (0, f"exported: {tmp_path / 'results'}\n")
    found = json.loads((tmp_path / "results" / "made-0.json").read_text())
    assert found["results"]["test_accuracy"] == [0.5, 0.75]


def test_export_to_something_unknown(fedge, runs, tmp_path):
    result = fedge("export", runs, "--to", "excel", "-o", tmp_path / "x")
    assert result.exit_code == 2
    assert "excel" in result.stderr


def test_the_baseline_of_a_report(fedge, runs, tmp_path):
    result = fedge("report", runs, "-o", tmp_path / "report.md", "--baseline", "scaffold")
    assert result.exit_code == 0
    assert "### Accuracy against SCAFFOLD" in (tmp_path / "report.md").read_text()
    result = fedge("report", runs, "-o", tmp_path / "report.md", "--baseline", "nothing")
    assert result.exit_code == 2
    assert "baseline: no group of runs is 'nothing'" in result.stderr


def test_work_that_takes_time_is_named_on_a_terminal_only(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with working("drawing"):
            pass
        assert ("drawing" in stream.getvalue()) == shown


def test_a_report_names_its_steps(fedge, runs, tmp_path, monkeypatch):
    steps = []
    monkeypatch.setattr("fedge.cli.output.working", lambda what: steps.append(what) or nullcontext())
    assert fedge("report", runs, "-o", tmp_path / "report.md").exit_code == 0
    assert steps == ["reading runs", "writing the report"]
