"""One run in a terminal."""

from __future__ import annotations

import json

from rich.console import Console

from fedge.cli.details import details
from fedge.runs import Run


def test_headings_of_rounds_are_folded_at_words_and_never_cut(write_run, tmp_path):
    path = write_run(tmp_path / "run", complete=False)
    metrics = {"accuracy": 0.5, "user_accuracy": 0.5, "loss": 1.2345, "train_loss": 1.2345}
    costs = {"bytes_up": 7970000, "bytes_down": 7971000, "sim_seconds": 1.662, "seconds": 0.01622}
    (path / "rounds.jsonl").write_text(json.dumps({"round": 1, **metrics, **costs}) + "\n")

    def shown(width):
        console = Console(width=width, color_system=None)
        with console.capture() as captured:
            console.print(list(details(Run(path)))[2])
        return captured.get()

    narrow, wide = shown(80), shown(200)
    assert "user accuracy (%)" in wide
    assert max(map(len, narrow.splitlines())) <= 80
    assert sorted(narrow.replace("─", "").split()) == sorted(wide.replace("─", "").split())
