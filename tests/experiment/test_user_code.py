"""User files: copied and hashed with each run, and never changed unnoticed."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fedge.api.functions import run
from fedge.api.run import Run
from fedge.config import change
from fedge.core.errors import RunError
from fedge.core.progress import Silent
from fedge.experiment.start import resume
from fedge.runs.files import SUMMARY, seed_path

MINE = "from helper import WIDTH\nfrom torch import nn\n\ndef build(shape, num_outputs):\n" + (
    "    return nn.Sequential(nn.Flatten(), nn.Linear(784, WIDTH), nn.Linear(WIDTH, num_outputs))\n"
)
HELPER = "WIDTH = 4\n"


@pytest.fixture
def raw(tmp_path: Path) -> dict[str, Any]:
    """Return an experiment with a model in mine.py, which imports helper.py."""
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "helper.py").write_text(HELPER)
    return {
        "name": "own",
        "data": {"name": "digits", "clients": 4},
        "model": f"{tmp_path}/mine.py:build",
        "algorithm": {"name": "fedavg", "local_steps": 1},
        "rounds": 2,
        "engine": {"name": "loop"},
    }


def train(raw: dict[str, Any], folder: Path, **changes: Any) -> Run:
    found = run(raw, runs=folder / "runs", **changes)
    assert isinstance(found, Run)
    return found


def hash_of(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def test_a_run_keeps_hashes_and_copies(raw: dict[str, Any], tmp_path: Path) -> None:
    found = train(raw, tmp_path)
    expected = {f"{tmp_path}/helper.py": hash_of(HELPER), f"{tmp_path}/mine.py": hash_of(MINE)}
    assert found.code == expected
    config = json.loads((found.path / "config.json").read_text())
    assert (config["code"], config["code_changes"]) == (expected, [])
    copies = {file.name: file.read_text() for file in (found.path / "code").iterdir()}
    assert copies == {f"helper-{hash_of(HELPER)[:12]}.py": HELPER, f"mine-{hash_of(MINE)[:12]}.py": MINE}
    assert "code" not in found.config


def test_a_run_without_user_files_has_none(tmp_path: Path, raw: dict[str, Any]) -> None:
    found = train(raw | {"model": "logistic"}, tmp_path)
    assert found.code == {}
    assert not (found.path / "code").exists()


@pytest.mark.parametrize("name", ["mine.py", "helper.py"])
def test_an_edited_file_is_refused_on_resume(name: str, raw: dict[str, Any], tmp_path: Path) -> None:
    found = train(raw, tmp_path)
    text = (tmp_path / name).read_text()
    (tmp_path / name).write_text(text + "\n")
    records = (found.path / "rounds.jsonl").read_bytes()
    copy = found.path / "code" / f"{Path(name).stem}-{hash_of(text)[:12]}.py"
    with pytest.raises(RunError, match=f"^{tmp_path / name} is not the file .* its copy is {copy}.*--accept-code$"):
        resume(found.path, ["rounds=3"], Silent())
    assert copy.read_text() == text
    assert (found.path / "rounds.jsonl").read_bytes() == records
    assert (found.path / SUMMARY).exists()
    with pytest.raises(RunError, match="is not the file"):
        Run(found.path).model  # noqa: B018
    (tmp_path / name).write_text(text)
    resume(found.path, ["rounds=3"], Silent())
    assert Run(found.path).last("round") == 3


def test_an_accepted_change_is_recorded(raw: dict[str, Any], tmp_path: Path) -> None:
    found = train(raw, tmp_path)
    before, edited = found.code, HELPER + "# better\n"
    (tmp_path / "helper.py").write_text(edited)
    resume(found.path, ["rounds=3"], Silent(), accept_code=True)
    now = Run(found.path)
    assert now.code == before | {f"{tmp_path}/helper.py": hash_of(edited)}
    config = json.loads((found.path / "config.json").read_text())
    assert config["code_changes"] == [{"round": 2, "before": before}]
    assert (found.path / "code" / f"helper-{hash_of(edited)[:12]}.py").read_text() == edited
    assert now.model is not None
    resume(found.path, ["rounds=4"], Silent())  # from now on, this is the code of the run
    assert len(json.loads((found.path / "config.json").read_text())["code_changes"]) == 1


def test_an_older_run_adopts_the_files(raw: dict[str, Any], tmp_path: Path) -> None:
    found = train(raw, tmp_path)
    code, config = found.code, json.loads((found.path / "config.json").read_text())
    del config["code"], config["code_changes"]
    (found.path / "config.json").write_text(json.dumps(config))
    resume(found.path, ["rounds=3"], Silent())
    assert Run(found.path).code == code


def test_all_repeats_use_the_same_user_files(raw: dict[str, Any], tmp_path: Path) -> None:
    """The file changes while the first seed trains."""

    class Editing(Silent):
        def end(self, summary: object) -> None:
            (tmp_path / "helper.py").write_text("WIDTH = 5\n")

    repeats = change(raw, {"seeds": [1, 2]})
    with pytest.raises(RunError, match=r"helper\.py is not the file that other runs in .*/own were made with"):
        run(repeats, runs=tmp_path / "runs", progress=Editing())
    path = tmp_path / "runs" / "own"
    assert not seed_path(path, 2).exists()
    with pytest.raises(RunError, match=r"helper\.py is not the file"):
        resume(path, [], Silent())
    resume(path, [], Silent(), accept_code=True)
    assert Run(seed_path(path, 1)).code != Run(seed_path(path, 2)).code


def test_changes_from_python_are_relative_to_the_working_directory(
    raw: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(), there.mkdir()
    (here / "t.csv").write_text("\n".join(["x,y", *(f"{row},{row % 2}" for row in range(40))]))
    (there / "mine.py").write_text(MINE.replace("784", "1"))
    data = {"name": "table", "file": "no.csv", "target": "y", "clients": 2}
    (there / "helper.py").write_text(HELPER)
    (there / "x.toml").write_text(tomli_w.dumps(raw | {"model": "mine.py:build", "data": data}))
    monkeypatch.chdir(here)
    found = run(there / "x.toml", runs=tmp_path / "runs", **{"data.file": "t.csv"})
    assert isinstance(found, Run)
    assert found.config["data"]["file"] == str(here / "t.csv")
    assert found.config["model"]["name"].startswith(str(there / "mine.py"))


def test_files_and_data_are_found_from_another_folder(
    raw: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"{row},{row % 2}" for row in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["x,y", *rows]))
    (tmp_path / "mine.py").write_text(MINE.replace("784", "1"))
    monkeypatch.chdir(tmp_path)
    found = train(raw | {"data": {"name": "table", "file": "t.csv", "target": "y", "clients": 2}}, tmp_path)
    monkeypatch.chdir("/")
    resume(found.path, ["rounds=3"], Silent())
    assert Run(found.path).last("round") == 3
