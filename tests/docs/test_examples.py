"""What `scripts/make_examples.py` makes is of the present code."""

from __future__ import annotations

import json
import re
from html import unescape
from itertools import product
from pathlib import Path

import pytest
from msgspec import convert

from fedge.report.document import Document, describe_runs
from fedge.report.edge_records import EdgeRound
from fedge.report.style import save
from fedge.report.tables import RESULTS
from fedge.report.timeline import timeline
from fedge.report.writers import page
from fedge.runs import Run
from fedge.sweeps.plan import load, work_out

DOCS = Path(__file__).parents[2] / "docs"
REPORT = (DOCS / "examples/report.html").read_text(encoding="utf-8")
AGAIN = "run `python scripts/make_examples.py`"


def headings(text: str, level: int) -> list[str]:
    return [unescape(found) for found in re.findall(rf"<h{level}>(.*?)</h{level}>", text)]


def test_the_report_has_the_present_style() -> None:
    empty = page(Document("A small sweep on digits", []))
    head = empty[: empty.index("</h1>")]
    assert "<style>" in head
    assert REPORT.startswith(head), AGAIN


@pytest.mark.full
def test_the_report_has_the_sections_and_columns_of_today(tmp_path: Path) -> None:
    """Made-up runs that differ in the same settings are described in the same sections."""
    runs = []
    for i, (name, rate, steps, seed) in enumerate(product(("fedavg", "scaffold"), (0.1, 0.5), (5, 20), (1, 2, 3))):
        path = tmp_path / str(i)
        path.mkdir()
        algorithm = {"name": name, "learning_rate": rate, "local_steps": steps}
        target = {"metric": "accuracy", "value": 0.8}
        config = {"format": 2, "name": "digits", "seed": seed, "rounds": 2, "algorithm": algorithm, "target": target}
        (path / "config.json").write_text(json.dumps(config))
        records = [{"round": 1, "accuracy": 0.5 + 0.01 * i}, {"round": 2, "accuracy": 0.8 + 0.001 * i}]
        (path / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        costs = {"bytes_up_to_target": 10**6 + i, "bytes_down_to_target": 10**6, "flops_to_target": 10**9 + i}
        (path / "summary.json").write_text(json.dumps({"rounds": 2, "rounds_to_target": 2, **costs}))
        runs.append(Run(path))
    made = page(describe_runs(runs))
    assert headings(REPORT, 2) == headings(made, 2), AGAIN
    for text in (REPORT, made):
        assert unescape(re.sub("<[^>]*>", "", text)).count(RESULTS["rounds_to_target"].format(goal="80%")) >= 1, AGAIN
    assert "mean: " in REPORT


def test_the_timeline_has_the_present_style(tmp_path: Path) -> None:
    """A made-up round of a run without cells, so that only words and type are compared."""
    line = {"round": 1, "clients": [0], "cell": [0], "late": [False], "deadline_s": 0.05, "occupancy": [1]}
    times = {"down_s": [0.01], "compute_s": [0.01], "wait_s": [0.01], "up_s": [0.01], "finish_s": [0.04]}
    edge = {"rows": 1, "cols": 1, "merged": False, "latency": [0.04], "classes": None}
    save(timeline(convert(line | times | edge, EdgeRound)), tmp_path / "timeline.svg")
    made, shown = ((file / "timeline.svg").read_text(encoding="utf-8") for file in (tmp_path, DOCS))
    words = {text for text in re.findall(r"<text[^>]*>([a-z][^<]*)</text>", made) if not text.startswith("round")}
    assert {"time since the start of the round (ms)", "deadline 50 ms", "wait"} <= words
    assert [text for text in words if text not in shown] == [], AGAIN


def test_the_report_is_of_the_sweep_beside_it() -> None:
    planned = work_out(load(DOCS / "examples/sweep.toml"))
    runs = [run for trial in planned.trials for run in trial.runs(Path())]
    assert len(runs) == 36
    text = unescape(re.sub("<[^>]*>", " ", REPORT))
    for run in runs:
        assert re.search(rf"/{re.escape(f'{run.path.parent.name}/{run.path.name}')}\s", text), AGAIN
