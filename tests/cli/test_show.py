"""`fedge show`"""

from __future__ import annotations

import json
import sys

import pytest

SUMMARY = {
    "rounds": 2,
    "ended_by": "rounds",
    "accuracy": 0.75,
    "best_accuracy": 0.8125,
    "local_steps": 12345,
    "bytes_up": 6_000_000,
    "sim_seconds": 9000.0,
    "seconds": 1.5,
    "rounds_to_target": None,
    "bytes_up_to_target": 4_500_000,
}


def test_one_run_has_its_summary_and_rounds(fedge, write_run, tmp_path):
    path = write_run(tmp_path / "a", accuracies=[0.5, 0.75], summary=SUMMARY)
    result = fedge("show", path)
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0] == ["made:", "fedavg,", "complete,", str(path)]
    for line in (
        "accuracy 75.00%",
        "best accuracy 81.25%",
        "ended by rounds",
        "local steps 12,345",
        "upload 6 MB",
        "edge time 2.5 h",
        "real time 1.5 s",
        "rounds to target not reached",
        "upload to target 4.5 MB",
    ):
        assert line.split() in lines
    header = ["round", "accuracy", "(%)", "train", "loss", "upload", "(MB)", "edge", "time", "(s)"]
    start = lines.index(header)
    assert lines[start + 2 :] == [["1", "50.00", "1", "3", "7.5"], ["2", "75.00", "0.5", "3", "7.5"]]


def test_only_the_last_rounds_are_shown(fedge, write_run, tmp_path):
    path = write_run(tmp_path / "a", accuracies=[0.5] * 30, complete=False)
    last = [line.split()[0] for line in fedge("show", path).stdout.splitlines()[-10:]]
    assert last == [str(number) for number in range(21, 31)]


def test_a_run_without_rounds(fedge, write_run, tmp_path):
    path = write_run(tmp_path / "a", accuracies=[], complete=False)
    assert fedge("show", path).stdout == f"made: fedavg, unfinished, {path}\n"


def test_one_run_as_json(fedge, write_run, tmp_path):
    path = write_run(tmp_path / "a", summary=SUMMARY)
    found = json.loads(fedge("show", path, "--format", "json").stdout)
    assert found["summary"] == SUMMARY
    assert found["config"]["algorithm"] == {"name": "fedavg"}
    assert [record["accuracy"] for record in found["rounds"]] == [0.5, 0.75]
    assert (found["path"], found["status"]) == (str(path), "complete")


def test_a_folder_is_compared(fedge, write_run, tmp_path):
    # two seeds of one experiment and one of another
    write_run(tmp_path / "a" / "seed-1", accuracies=[0.5], seed=1)
    write_run(tmp_path / "a" / "seed-2", accuracies=[0.75], seed=2)
    write_run(tmp_path / "b", accuracies=[0.875], name="other")
    result = fedge("show", tmp_path, "--format", "json")
    found = json.loads(result.stdout)
    assert [(row["label"], row["seeds"]) for row in found["comparison"]] == [("made", 2), ("other", 1)]
    assert found["comparison"][0]["accuracy"]["mean"] == pytest.approx(0.625)
    assert [entry["accuracy"] for entry in found["runs"]] == [0.5, 0.75, 0.875]
    text = fedge("show", tmp_path).stdout
    assert "made" in text
    assert "87.5" in text


def test_several_runs_are_compared(fedge, write_run, tmp_path):
    first = write_run(tmp_path / "a")
    second = write_run(tmp_path / "b", name="other")
    found = json.loads(fedge("show", second, first, "--format", "json").stdout)
    assert [row["label"] for row in found["comparison"]] == ["other", "made"]


def test_a_run_that_is_named_twice_counts_once(fedge, write_run, tmp_path):
    path = write_run(tmp_path / "a")
    found = json.loads(fedge("show", path, tmp_path, "--format", "json").stdout)
    assert len(found["runs"]) == 1


def test_damaged_run_is_left_out_of_a_folder_but_not_when_named(fedge, write_run, tmp_path):
    write_run(tmp_path / "good")
    bad = write_run(tmp_path / "bad", name="bad")
    (bad / "rounds.jsonl").write_text("{]\n")
    result = fedge("show", tmp_path, "--format", "json")
    assert result.exit_code == 0
    assert [row["label"] for row in json.loads(result.stdout)["comparison"]] == ["made"]
    assert "warning: left out: " in result.stderr
    result = fedge("show", bad)
    assert result.exit_code == 6
    assert "rounds.jsonl is damaged" in result.stderr


def test_a_folder_without_runs(fedge, tmp_path):
    result = fedge("show", tmp_path)
    assert result.exit_code == 6
    assert result.stderr == f"error: no runs in {tmp_path}; start one with `fedge run FILE`\n"


@pytest.mark.parametrize(("suffix", "start"), [("svg", b"<svg"), ("png", b"\x89PNG")])
def test_chart(fedge, write_run, tmp_path, suffix, start):
    pytest.importorskip("vl_convert")
    path = write_run(tmp_path / "runs" / "a")
    chart = tmp_path / "charts" / f"one.{suffix}"
    assert fedge("show", path, "--chart", chart, "--y", "train_loss").exit_code == 0
    assert chart.read_bytes().startswith(start)


def test_chart_of_a_metric_that_was_not_measured(fedge, write_run, tmp_path):
    pytest.importorskip("altair")
    path = write_run(tmp_path / "a")
    result = fedge("show", path, "--chart", tmp_path / "x.svg", "--y", "user_accuracy")
    assert result.exit_code == 2
    assert "user_accuracy" in result.stderr
    assert "train_loss" in result.stderr  # a recorded metric, as a suggestion


def test_chart_of_an_unknown_kind_is_refused_first(fedge, write_run, tmp_path):
    result = fedge("show", write_run(tmp_path / "a"), "--chart", tmp_path / "x.gif")
    assert result.exit_code == 2
    assert ".gif" in result.stderr
    assert result.stdout == ""


def test_chart_without_its_extra(fedge, write_run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    result = fedge("show", write_run(tmp_path / "a"), "--chart", tmp_path / "x.svg")
    assert result.exit_code == 1
    assert result.stderr == "error: charts need altair, which is not installed; pip install 'fedge[view]'\n"


@pytest.fixture
def sweep(write_run, tmp_path):
    """Two algorithms by two rates, two seeds each."""
    for i, name in enumerate(("fedavg", "scaffold")):
        for rate in (1, 2):
            for seed in (1, 2):
                summary = {"rounds": 2, "accuracy": 0.5 + 0.1 * i + 0.02 * rate + 0.01 * seed}
                algorithm = {"name": name, "learning_rate": rate}
                write_run(tmp_path / f"{name}-{rate}-{seed}", summary=summary, algorithm=algorithm, seed=seed)
    return tmp_path


def test_differences_from_a_baseline_and_importance(fedge, sweep):
    result = fedge("show", sweep, "--baseline", "fedavg")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Accuracy against FedAvg, other settings equal" in result.stdout
    lines = [line.split() for line in result.stdout.splitlines()]
    (paired,) = [line for line in lines if line[:7] == ["SCAFFOLD,", "η", "=", "1", "2", "of", "2"]]
    assert float(paired[7].partition("±")[0]) == 10
    assert paired[-3:] == ["no", "difference", "shown"]  # two seeds decide nothing
    assert "Parameter importance for accuracy" in result.stdout
    # sums of squares: algorithm 8 * 0.05^2 = 0.02, rate 8 * 0.01^2 = 0.0008, seeds 8 * 0.005^2 = 0.0002
    shares = {tuple(line[:-2]): line[-2] for line in lines if len(line) > 2 and line[-1] in ("2", "–")}
    assert shares["algorithm",] == "95.2"
    assert shares["learning", "rate", "η"] == "3.8"
    assert shares["seeds",] == "1.0"


def test_differences_and_importance_as_json(fedge, sweep):
    found = json.loads(fedge("show", sweep, "--baseline", "algorithm.learning_rate=1", "--format", "json").stdout)
    pairs = [(one["first"], one["second"], one["pairs"]) for one in found["pairs"]]
    assert pairs == [("FedAvg, η = 2", "FedAvg, η = 1", 2), ("SCAFFOLD, η = 2", "SCAFFOLD, η = 1", 2)]
    assert [one["difference"]["mean"] for one in found["pairs"]] == pytest.approx([0.02, 0.02])
    importance = found["importance"]
    assert (importance["outcome"], importance["runs"]) == ("accuracy", 8)
    assert [(one["setting"], one["levels"]) for one in importance["settings"]] == [
        ("algorithm.name", 2),
        ("algorithm.learning_rate", 2),
    ]


def test_importance_of_too_few_runs_is_null(fedge, write_run, tmp_path):
    write_run(tmp_path / "a", summary={"rounds": 2, "accuracy": 0.5})
    write_run(tmp_path / "b", summary={"rounds": 2, "accuracy": 0.6}, algorithm={"name": "scaffold"})
    assert json.loads(fedge("show", tmp_path, "--format", "json").stdout)["importance"] is None
    assert "importance" not in fedge("show", tmp_path).stdout


def test_a_baseline_that_is_not_there(fedge, sweep):
    result = fedge("show", sweep, "--baseline", "fedavgg")
    assert result.exit_code == 2
    assert "baseline: no group of runs is 'fedavgg'" in result.stderr
    result = fedge("show", sweep / "fedavg-1-1", "--baseline", "fedavg")
    assert result.exit_code == 2
    assert "--baseline: a comparison needs several runs, got one" in result.stderr
