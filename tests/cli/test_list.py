"""`fedge list`"""

from __future__ import annotations

import json


def test_says_of_each_run_how_far_it_is(fedge, write_run, tmp_path):
    write_run(tmp_path / "b", accuracies=[0.5], complete=False, seed=7)
    write_run(tmp_path / "a", accuracies=[0.25, 0.875], name="other", algorithm={"name": "scaffold"})
    lines = fedge("list", tmp_path).stdout.splitlines()
    assert lines[0].split() == ["name", "status", "rounds", "accuracy", "seed", "algorithm", "path"]
    assert [line.split() for line in lines[2:]] == [
        ["other", "complete", "2/2", "87.50%", "1", "scaffold", str(tmp_path / "a")],
        ["made", "unfinished", "1/2", "50.00%", "7", "fedavg", str(tmp_path / "b")],
    ]


def test_as_json(fedge, write_run, tmp_path):
    path = write_run(tmp_path / "a", accuracies=[0.25, 0.875])
    (found,) = json.loads(fedge("list", tmp_path, "--format", "json").stdout)
    assert found == {
        "path": str(path),
        "status": "complete",
        "problem": None,
        "name": "made",
        "algorithm": "fedavg",
        "seed": 1,
        "rounds": 2,
        "num_rounds": 2,
        "accuracy": 0.875,
    }


def test_default_folder_is_runs(fedge, write_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs" / "first")
    assert "runs/first" in fedge("list").stdout


def test_a_run_without_rounds_and_one_that_is_damaged(fedge, write_run, tmp_path):
    write_run(tmp_path / "new", accuracies=[], complete=False)
    (write_run(tmp_path / "old") / "config.json").write_text("{")
    result = fedge("list", tmp_path)
    assert result.exit_code == 0
    new, old = (line.split() for line in result.stdout.splitlines()[2:])
    assert new[1:4] == ["unfinished", "0/2", "–"]
    assert old == ["–", "damaged", "–", "–", "–", "–", str(tmp_path / "old")]
    assert result.stderr.startswith("warning: ")
    assert "config.json is damaged" in result.stderr


def test_no_runs(fedge, tmp_path):
    result = fedge("list", tmp_path)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"warning: no runs in {tmp_path}; start one with `fedge run FILE`\n"
    assert fedge("list", tmp_path, "--format", "json").stdout == "[]\n"


def test_no_folder(fedge, tmp_path):
    result = fedge("list", tmp_path / "absent")
    assert result.exit_code == 6
    assert str(tmp_path / "absent") in result.stderr


def test_names_are_not_taken_for_markup(fedge, write_run, tmp_path):
    write_run(tmp_path / "a", name="[red]x[/red]")
    assert "[red]x[/red]" in fedge("list", tmp_path).stdout


def test_a_table_in_a_pipe_is_not_folded(fedge, write_run, tmp_path):
    path = write_run(tmp_path / ("long" * 50))
    assert str(path) in fedge("list", tmp_path).stdout
