"""A new user's path in a folder outside the checkout; `benchmarks/new_user.py` times it from a clone."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from benchmarks.new_user import STEPS, NewUser

from e2e.command import environment
from net.deployment import assert_same as assert_same_state
from net.deployment import server_state, unmeasured_records


@pytest.mark.full
def test_every_step(tmp_path: Path) -> None:
    pytest.importorskip("nbclient", reason="needs the extra `notebook`")
    user = NewUser(tmp_path, Path(sys.executable), environment())
    told = {step: getattr(user, step)() for step in STEPS}
    runs = tmp_path / "runs"
    summaries = {
        str(file.parent.relative_to(runs)): json.loads(file.read_text()) for file in runs.rglob("summary.json")
    }
    assert summaries["first"]["accuracy"] > 0.5  # ten classes
    assert summaries["csv"]["accuracy"] > 0.8  # two linearly separable classes
    rounds = {name: summaries[name]["rounds"] for name in ("model", "own", "killed", "real")}
    assert rounds == {"model": 3, "own": 300, "killed": 300, "real": 3}
    assert {"steps/step-0.5", "steps/step-1"} <= summaries.keys()
    assert 0 < told["kill"] < 300
    assert unmeasured_records(runs / "killed") == unmeasured_records(runs / "own")
    assert_same_state(server_state(runs / "killed"), server_state(runs / "own"))
    config = json.loads((runs / "real" / "config.json").read_text())
    assert config["algorithm"]["name"] == f"{tmp_path}/half_step.py:HalfStep"
    cells = json.loads((tmp_path / "first.ipynb").read_text())["cells"]
    assert any("data" in output for cell in cells for output in cell.get("outputs", []))
