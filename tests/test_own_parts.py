"""User-defined parts round-trip by name through a written configuration, in another process and folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from typer.testing import CliRunner

import fedge
from fedge.cli import app
from fedge.config import load, parse, plain
from fedge.runs.read import Run
from own_parts import BASE, SETTINGS, write_own

READ = """
import json, sys, tomllib
from fedge.config import parse, plain
read = {"{": json.loads}
texts = json.loads(sys.stdin.read())
print(json.dumps([plain(parse(read.get(text[0], tomllib.loads)(text))) for text in texts]))
"""


@pytest.mark.full
def test_every_kind_round_trips_by_name_to_another_process(tmp_path: Path) -> None:
    """Through a run's config.json and through `fedge config`; the other process runs in another folder."""
    mine, elsewhere = write_own(tmp_path / "home"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    texts, expected = [], []
    for kind, settings in SETTINGS.items():
        file = mine.parent / "experiment.toml"
        file.write_text(tomli_w.dumps(BASE | settings))
        config = load(file)
        assert parse(plain(config)) == config
        found = fedge.run(file, runs=tmp_path / "runs")
        assert isinstance(found, Run)
        assert set(found.code) == {str(mine), str(mine.with_name("mine_helper.py"))}, kind
        written = (found.path / "config.json").read_text()
        told = CliRunner().invoke(app, ["config", str(file)]).stdout
        for text in (written, told):
            assert text.count(f"{mine}:") == str(settings).count("mine.py:"), kind
        texts += [written, told]
        expected += 2 * [json.loads(json.dumps(plain(config)))]
    read = subprocess.run(
        [sys.executable, "-c", READ], input=json.dumps(texts), cwd=elsewhere, capture_output=True, text=True, check=True
    )
    assert json.loads(read.stdout) == expected


def inline(value: Any) -> str:
    """Return a value as TOML on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {inline(each)}" for key, each in value.items()) + " }"
    return f"[{', '.join(map(inline, value))}]" if isinstance(value, list) else json.dumps(value)


@pytest.mark.parametrize("kind", SETTINGS)
def test_changes_start_at_the_working_directory(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, there = write_own(tmp_path / "here"), tmp_path / "there"
    there.mkdir()
    file = there / "experiment.toml"
    file.write_text(tomli_w.dumps(BASE))
    monkeypatch.chdir(mine.parent)
    ((table, settings),) = SETTINGS[kind].items()
    expected = parse({**BASE, "name": "own", table: settings}, mine.parent)
    assert load(file, [f"{table}={inline(settings)}"]) == expected
    assert str(plain(expected)).count(f"{mine}:") == str(settings).count("mine.py:")
