"""`fedge plot`"""

from __future__ import annotations

import pytest

pytest.importorskip("vl_convert", reason="needs the extra `view`")


@pytest.fixture
def runs(write_run, tmp_path):
    """Two algorithms with two rates; the second rate reaches nothing."""
    folder = tmp_path / "runs"
    for name in ("fedavg", "scaffold"):
        for rate in (0.1, 0.2):
            reached = 2 if rate == 0.1 else None
            summary = {"rounds": 2, "accuracy": 0.75, "rounds_to_target": reached, "flops_to_target": 10**9}
            algorithm = {"name": name, "learning_rate": rate}
            target = {"metric": "accuracy", "value": 0.7}
            write_run(folder / f"{name}-{rate}", summary=summary, algorithm=algorithm, target=target)
    return folder


@pytest.fixture
def measured(write_run, tmp_path):
    """Two runs of which one says how its clients fare."""
    folder = tmp_path / "measured"
    run = write_run(folder / "a", name="a", algorithm={"name": "mtfl"})
    (run / "clients.jsonl").write_text('{"client": 0, "user_accuracy": 0.5}\n{"client": 1, "user_accuracy": 1}\n')
    write_run(folder / "b", name="b")
    return folder


@pytest.mark.parametrize(
    ("options", "shows"),
    [
        (("--x", "bytes_up", "--y", "accuracy", "--by", "algorithm.name"), ["upload (MB)", "accuracy (%)", "scaffold"]),
        (("--kind", "bars"), ["rounds to target", "not reached"]),
        (("--kind", "pareto", "--x", "flops_to_target", "--y", "accuracy"), ["compute to target (GFLOPs)"]),
        (("--kind", "heatmap", "--y", "accuracy"), ["algorithm.learning_rate", "algorithm.name"]),
        (("--kind", "heatmap", "--by", "algorithm.name", "--by", "algorithm.learning_rate"), ["accuracy (%), darker"]),
    ],
)
def test_each_kind(fedge, runs, tmp_path, options, shows):
    result = fedge("plot", runs, *options, "-o", tmp_path / "new" / "fig.svg")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"chart: {tmp_path / 'new' / 'fig.svg'}\n"
    drawn = (tmp_path / "new" / "fig.svg").read_text()
    for text in shows:
        assert text in drawn


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--y", "acuracy"), 2, "did you mean 'accuracy'"),
        (("--x", "byte_up"), 2, "did you mean 'bytes_up'"),
        (("--by", "algorithm.nam"), 2, "did you mean 'algorithm.name'"),
        (("--kind", "bars", "--y", "round_to_target"), 2, "did you mean 'rounds_to_target'"),
        (("--kind", "bars", "--x", "flops"), 2, "leave --x away"),
        (("--kind", "heatmap", "--by", "algorithm.name"), 2, "give --by twice"),
        (("--kind", "users"), 2, "no run has the user_accuracy of its clients"),
        (("--kind", "users", "--x", "round"), 2, "--x round: users has user accuracy alone"),
        (("--kind", "users", "--y", "accuracy"), 2, "--y accuracy: users has user accuracy alone"),
        (("--kind", "pie"), 2, "pie"),
    ],
)
def test_what_cannot_be_drawn_is_said(fedge, runs, tmp_path, options, code, says):
    result = fedge("plot", runs, *options, "-o", tmp_path / "fig.svg")
    assert result.exit_code == code
    assert says in result.stderr
    assert not (tmp_path / "fig.svg").exists()


def test_users(fedge, measured, tmp_path):
    result = fedge("plot", measured, "--kind", "users", "--by", "algorithm.name", "-o", tmp_path / "fig.svg")
    assert (result.exit_code, result.stderr) == (0, "")
    drawn = (tmp_path / "fig.svg").read_text()
    for text in ("user accuracy (%)", "share of clients (%)", "mtfl", "2 clients; 1 not shown: not measured"):
        assert text in drawn


def test_clients_that_cannot_be_read_are_said(fedge, measured, tmp_path):
    (measured / "a" / "clients.jsonl").write_text("nonsense\n")
    result = fedge("plot", measured, "-o", tmp_path / "fig.svg")
    assert result.exit_code == 0
    assert "clients.jsonl is damaged" in result.stderr


def test_a_wrong_suffix_is_said_before_runs_are_read(fedge, tmp_path):
    result = fedge("plot", tmp_path / "absent", "-o", "fig.gif")
    assert result.exit_code == 2
    assert ".svg, .png, .pdf or .html" in result.stderr


def test_no_runs(fedge, tmp_path):
    result = fedge("plot", tmp_path, "-o", tmp_path / "fig.svg")
    assert result.exit_code == 6
    assert "no runs in" in result.stderr


def test_damaged_runs_are_left_out_with_the_reason(fedge, runs, tmp_path):
    (runs / "fedavg-0.1" / "config.json").write_text('{"format": 2}')
    result = fedge("plot", runs, "-o", tmp_path / "fig.svg")
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: left out: ")
    assert "has format 2" in result.stderr
