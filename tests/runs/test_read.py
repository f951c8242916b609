import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedge.core.effect import digest
from fedge.core.errors import RunError
from fedge.runs.directory import RunDirectory, create_repeats
from fedge.runs.files import seed_path
from fedge.runs.read import Run, find_runs


def make(path: Path, complete: bool = True) -> Path:
    with RunDirectory.create(path, {"name": path.name}, {"fedge": "1"}) as run:
        run.append({"round": 1})
        run.save({"x": torch.tensor([1.5])}, {"round": 1})
        if complete:
            run.write_clients([{"client": 0}])
            run.write_summary({"rounds": 1})
    return path


def test_complete(tmp_path: Path) -> None:
    run = Run(make(tmp_path / "a"))
    assert run.status == "complete"
    assert run.problem is None
    assert run.config == {"name": "a"}
    assert run.environment == {"fedge": "1"}
    assert run.rounds == [{"round": 1}]
    assert run.clients == [{"client": 0}]
    assert run.summary == {"rounds": 1}
    assert run.state()["x"].tolist() == [1.5]


def test_identity_and_effect(tmp_path: Path) -> None:
    config = {"name": "a", "data": {"name": "digits", "dir": "/here"}, "trace": None}
    for path, folder in (("a", "/here"), ("b", "/there")):
        own = config | {"data": {"name": "digits", "dir": folder}}
        RunDirectory.create(tmp_path / path, own, {}, ["data.dir", "trace"]).close()
    first, second = Run(tmp_path / "a"), Run(tmp_path / "b")
    assert first.config == config
    assert first.effective == second.effective == {"name": "a", "data": {"name": "digits"}, "clock": "simulated"}
    assert first.digest == second.digest == digest(first.effective)
    assert first.id != second.id

    old = Run(tmp_path / "old")  # made before runs had ids
    old.path.mkdir()
    (old.path / "config.json").write_text(json.dumps(config | {"format": 1}))
    assert (old.id, old.config, old.effective) == (None, config, config | {"clock": "simulated"})


def test_unfinished(tmp_path: Path) -> None:
    run = Run(make(tmp_path / "a", complete=False))
    assert run.status == "unfinished"
    assert run.summary is None
    assert run.clients == []


def test_running(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, {}, {}) as writer:
        run = Run(tmp_path)
        assert run.status == "running"
        assert run.rounds == []
        with pytest.raises(RunError, match=r"has no checkpoint yet: expected checkpoint/state\.safetensors"):
            run.state()
        writer.append({"round": 1})
        assert Run(tmp_path).rounds == [{"round": 1}]
        writer.write_summary({})
        assert Run(tmp_path).status == "running"
    assert Run(tmp_path).status == "complete"


def test_a_partial_line_is_not_read(tmp_path: Path) -> None:
    make(tmp_path, complete=False)
    with (tmp_path / "rounds.jsonl").open("ab") as file:
        file.write(b'{"round": 2, "lo')
    assert Run(tmp_path).rounds == [{"round": 1}]
    assert Run(tmp_path).status == "unfinished"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rounds.jsonl", b'{"round": 1, "lo\n{"round": 2}\n'),
        ("summary.json", b'{"rounds": '),
        ("config.json", b"nonsense"),
        ("config.json", b'{"format": 3}'),
    ],
)
def test_damaged(tmp_path: Path, name: str, content: bytes) -> None:
    make(tmp_path)
    (tmp_path / name).write_bytes(content)
    run = Run(tmp_path)
    assert run.status == "damaged"
    assert run.problem is not None
    assert str(tmp_path) in run.problem


def test_reading_changes_nothing(tmp_path: Path) -> None:
    make(tmp_path)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    run = Run(tmp_path)
    _ = run.status, run.rounds, run.clients, run.environment, run.state(), find_runs(tmp_path)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == before


def test_finds_one_run(tmp_path: Path) -> None:
    make(tmp_path / "a")
    assert [run.path for run in find_runs(tmp_path / "a")] == [tmp_path / "a"]


def test_finds_all_runs_below(tmp_path: Path) -> None:
    make(tmp_path / "b")
    make(tmp_path / "a" / "deep" / "er", complete=False)
    create_repeats(tmp_path / "c", {"seeds": [1, 2]})
    for seed in (2, 1):
        make(seed_path(tmp_path / "c", seed))
    make(tmp_path / ".trash" / "d")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "rounds.txt").write_text("no run")
    found = [(str(run.path.relative_to(tmp_path)), run.status) for run in find_runs(tmp_path)]
    assert found == [
        ("a/deep/er", "unfinished"),
        ("b", "complete"),
        ("c/seed-1", "complete"),
        ("c/seed-2", "complete"),
    ]


def test_reports_why_some_directories_are_not_runs(tmp_path: Path) -> None:
    make(tmp_path / "good")
    for name, file, content in (
        ("foreign", "config.json", '{"model_type": "bert"}'),
        ("half", "environment.json", "{}"),
        ("newer", "config.json", '{"format": 3}'),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(content)
    make(tmp_path / "foreign" / "inner")
    found = {str(run.path.relative_to(tmp_path)): run for run in find_runs(tmp_path)}
    assert [name for name, run in found.items() if run.problem is None] == ["foreign/inner", "good"]
    assert "is not a run of fedge" in (found["foreign"].problem or "")
    assert "expected config.json" in (found["half"].problem or "")
    assert "has format 3" in (found["newer"].problem or "")
    assert len(found) == 5


def test_nothing_to_find(tmp_path: Path) -> None:
    assert find_runs(tmp_path) == []
    with pytest.raises(RunError, match="no directory at"):
        find_runs(tmp_path / "absent")


def test_repeats_are_not_one_run(tmp_path: Path) -> None:
    create_repeats(tmp_path / "c", {"seeds": [1]})
    assert find_runs(tmp_path / "c") == []
    assert "holds repeats" in (Run(tmp_path / "c").problem or "")


def test_a_list_of_runs_needs_no_torch(tmp_path: Path) -> None:
    make(tmp_path / "a")
    code = """
import sys
from pathlib import Path
from fedge.runs import find_runs
print([run.status for run in find_runs(Path(sys.argv[1]))], {"torch", "numpy"} & set(sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "['complete'] set()\n"
