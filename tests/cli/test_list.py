"""`fedge list`"""

from __future__ import annotations

import json
import os

import pytest

from mutations import watched


def test_prints_the_progress_of_each_run(fedge, write_run, tmp_path):
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


@pytest.fixture
def sweep(write_run, tmp_path):
    """Two settings with three seeds each, and a run that was stopped."""
    for rate in (0.1, 0.3):
        for seed in (1, 2, 3):
            settings = {"name": "fedavg", "learning_rate": rate}
            write_run(
                tmp_path / f"rate-{rate}" / f"seed-{seed}", [0.1, rate + seed / 10], seed=seed, algorithm=settings
            )
    write_run(tmp_path / "stopped", accuracies=[0.9, 0.2, 0.3], complete=False, seed=7, rounds=3)
    return tmp_path


def listed(fedge, *options):
    result = fedge("list", *options, "--format", "json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--where", "status=unfinished"], ["stopped"]),
        (["--where", "algorithm.learning_rate=0.3", "--where", "seed>=2"], ["rate-0.3/seed-2", "rate-0.3/seed-3"]),
        (["--where", "accuracy>0.55"], ["rate-0.3/seed-3"]),
        (["--search", "RATE-0.1 seed-2"], ["rate-0.1/seed-2"]),
        (["--where", "seed!=7", "--sort=-accuracy", "--where", "accuracy>=0.4"],
         ["rate-0.3/seed-3", "rate-0.3/seed-2", "rate-0.1/seed-3", "rate-0.3/seed-1"]),
        (["--where", "accuracy<0.35", "--sort", "accuracy"], ["rate-0.1/seed-1", "stopped", "rate-0.1/seed-2"]),
        (["--where", "accuracy>0.8", "--values", "best"], ["stopped"]),
        (["--where", "accuracy=0.2", "--values", "at", "--round", "2"], ["rate-0.1/seed-1", "stopped"]),
    ],
)  # fmt: skip
def test_selected_and_sorted(fedge, sweep, options, names):
    found = [row["path"].removeprefix(f"{sweep}/") for row in listed(fedge, sweep, *options)]
    assert found == names


def test_chosen_columns(fedge, sweep):
    options = ("--search", "stopped", "--column", "algorithm.name", "--column", "accuracy", "--values", "best")
    lines = fedge("list", sweep, *options).stdout.splitlines()
    head = ["name", "status", "rounds", "algorithm.name", "accuracy", "(best)", "algorithm", "path"]
    assert lines[0].split() == head
    assert lines[2].split()[2:6] == ["3/3", "fedavg", "90.00%", "fedavg"]
    (row,) = listed(fedge, sweep, *options)
    assert row["values"] == {"algorithm.name": "fedavg", "accuracy": 0.9}
    assert (row["accuracy"], row["seed"]) == (0.3, 7)  # fields of a list without options stay


def test_groups_have_mean_interval_and_n(fedge, sweep):
    options = ("--group", "algorithm.learning_rate", "--column", "accuracy", "--where", "accuracy>0.25")
    low, high, others = listed(fedge, sweep, *options)
    assert [row["group"] for row in (low, high, others)] == ["0.1", "0.3", "Others"]
    assert low["values"]["accuracy"]["mean"] == pytest.approx(0.35)
    assert (low["count"], low["finished"], others["finished"]) == (2, 2, 0)
    cell = high["values"]["accuracy"]
    assert cell["mean"] == pytest.approx(0.5)
    assert cell["high"] - cell["mean"] == pytest.approx(4.302652729911275 * 0.1 / 3**0.5)
    assert (cell["n"], cell["of"]) == (3, 3)
    assert high["paths"] == [str(sweep / "rate-0.3" / f"seed-{seed}") for seed in (1, 2, 3)]
    text = fedge("list", sweep, *options).stdout.splitlines()
    assert text[0].split() == ["group", "finished", "accuracy"]
    assert text[3].split() == ["0.3", "3", "of", "3", "50.0±24.8", "%", "(n", "3", "of", "3)"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--where", "accuracy"], "where: expected a name"),
        (["--where", "acuracy>1"], "did you mean 'accuracy'"),
        (["--sort", "nothing"], "sort: no run has a setting or result 'nothing'"),
        (["--values", "at"], "round: expected the round of values=at"),
        (["--values", "at", "--round", "-1"], "round: expected a whole number"),
    ],
)
def test_wrong_options_are_explained(fedge, sweep, options, told):
    result = fedge("list", sweep, *options)
    assert result.exit_code == 2
    assert told in result.stderr


def test_a_filter_without_matches(fedge, sweep):
    result = fedge("list", sweep, "--search", "nothing")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith("warning: none of the 7 runs in ")


def test_linked_files_are_read(fedge, sweep):
    file = sweep / "stopped" / "rounds.jsonl"
    file.rename(sweep / "elsewhere")
    file.symlink_to(sweep / "elsewhere")
    assert [row["rounds"] for row in listed(fedge, sweep, "--where", "status=unfinished")] == [3]


def test_a_pipe_in_place_of_records_is_not_read(fedge, sweep):
    file = sweep / "stopped" / "rounds.jsonl"
    file.unlink()
    os.mkfifo(file)
    for options in ([], ["--values", "at", "--round", "1"]):
        with watched():
            (row,) = listed(fedge, sweep, "--where", "status=damaged", *options)
        assert row["problem"].startswith("rounds.jsonl: expected a regular file, got a symbolic link")


def test_a_configuration_that_is_too_large_is_reported(fedge, sweep):
    file = sweep / "stopped" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"text": "x" * 2_000_000}))
    (row,) = listed(fedge, sweep, "--search", "stopped")
    assert row["status"] == "damaged"
    assert row["problem"].startswith("config.json: expected at most 1,048,576 bytes, got 2,000,")


def test_a_column_that_is_given_twice(fedge, sweep):
    assert (
        fedge("list", sweep, "--column", "seed", "--column", "seed").stdout.splitlines()[0].split().count("seed") == 1
    )


def test_nothing_is_stored(fedge, sweep, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(sweep / "cache"))
    before = sorted(sweep.rglob("*"))
    assert len(listed(fedge, sweep, "--group", "settings", "--values", "best")) == 3
    assert sorted(sweep.rglob("*")) == before


def test_a_run_in_use_by_another_host(fedge, sweep):
    (sweep / "stopped" / "lock").write_text("12345 678 far-away 0b5e\n")
    (row,) = listed(fedge, sweep, "--search", "stopped")
    assert row["status"] == "elsewhere"
