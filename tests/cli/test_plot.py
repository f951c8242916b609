"""`fedge plot`"""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest

from edge_rounds import edge_line
from fedge.report.chart_request import ChartRequest, draw
from fedge.runs import find_runs

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


@pytest.fixture
def edges(write_run, tmp_path):
    """A run that recorded the edge, two cells in two rounds, and another that did not."""
    folder = tmp_path / "edges"
    run = write_run(folder / "a", name="a", edge={"clock": "cells"})
    workers = [(4, 0, 1, 2, 0, 1), (7, 1, 1, 2, 3, 4)]
    lines = [edge_line(number, 1, 2, workers, deadline_s=9.0, classes=[[5, 0], [1, 4]]) for number in (1, 2)]
    (run / "edge.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_run(folder / "b", name="b")
    return folder


@pytest.mark.parametrize(
    ("options", "shows"),
    [
        (("--x", "bytes_up", "--y", "accuracy", "--by", "algorithm.name"), ["upload (MB)", "accuracy (%)", "SCAFFOLD"]),
        (("--kind", "bars"), ["rounds to target", "not reached"]),
        (("--kind", "pareto", "--x", "flops_to_target", "--y", "accuracy"), ["compute to target (GFLOPs)"]),
        (("--kind", "heatmap", "--y", "accuracy"), ["learning rate η", "algorithm"]),
        (
            ("--kind", "heatmap", "--by", "algorithm.name", "--by", "algorithm.learning_rate"),
            ["accuracy (%)", "darker is better"],
        ),
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
        (
            ("--kind", "bars", "--x", "flops"),
            2,
            "--x: --kind bars takes only --y, --by, --width, --title, --label, --log; drop --x",
        ),
        (("--round", "1"), 2, "--round: --kind curves takes only --x, --y, --by, --width"),
        (("--kind", "heatmap", "--by", "algorithm.name"), 2, "--by: a heat map needs two settings, got 1; give two"),
        (("--kind", "users"), 2, "no run has the user_accuracy of its clients"),
        (("--kind", "users", "--x", "round"), 2, "--x: --kind users takes only --by"),
        (("--kind", "users", "--y", "accuracy"), 2, "--y: --kind users takes only --by"),
        (("--kind", "grid", "--by", "name"), 2, "--by: --kind grid takes only --round"),
        (("--kind", "grid"), 2, "--set edge.record=true"),
        (("--kind", "timeline"), 2, "--set edge.record=true"),
        (("--kind", "latency"), 2, "--set edge.record=true"),
        (("--kind", "timeline", "--round", "1", "--round", "2"), 2, "--round: a timeline shows one round, got 2"),
        (("--kind", "pie"), 2, "pie"),
        (("--seeds", "--kind", "bars"), 2, "--seeds: --kind bars takes only"),
        (("--top", "0"), 2, "--top"),
        (("--label", "accuracy"), 2, "--label: expected KEY=TEXT"),
        (("--label", "acuracy=A"), 2, "the chart has no 'acuracy', did you mean 'accuracy'"),
        (("--kind", "bars", "--log", "y"), 2, "--log: bars have numbers on the x axis only"),
        (("--width", "triple"), 2, "triple"),
    ],
)
def test_a_chart_that_cannot_be_drawn_is_an_error(fedge, runs, tmp_path, options, code, says):
    result = fedge("plot", runs, *options, "-o", tmp_path / "fig.svg")
    assert result.exit_code == code
    assert says in result.stderr
    assert not (tmp_path / "fig.svg").exists()


def test_users(fedge, measured, tmp_path):
    result = fedge("plot", measured, "--kind", "users", "--by", "algorithm.name", "-o", tmp_path / "fig.svg")
    assert (result.exit_code, result.stderr) == (0, "")
    drawn = (tmp_path / "fig.svg").read_text()
    for text in ("user accuracy (%)", "share of clients (%)", "mtfl", "2 clients; 1 not shown: not"):
        assert text in drawn


@pytest.mark.parametrize(
    ("options", "shows"),
    [
        (("--kind", "grid"), [">round 2<", "by class (0 to 1)", ">#1<"]),
        (("--kind", "grid", "--round", "1", "--round", "2"), [">round 1<", ">round 2<"]),
        (("--kind", "timeline", "--round", "1"), ["round 1: 2 clients, 1 late", "late: 10 s", ">cell 1<"]),
        (
            ("--kind", "latency"),
            ["round time of a cell (s)", "client completion time (s)", ">a<", "1 not shown: not"],
        ),
        (("--kind", "latency", "--by", "edge.clock"), ["clock = cells", "1 not shown: not"]),
    ],
)
def test_the_edge(fedge, edges, tmp_path, options, shows):
    result = fedge("plot", edges, *options, "-o", tmp_path / "fig.svg")
    assert (result.exit_code, result.stderr) == (0, "")
    drawn = (tmp_path / "fig.svg").read_text()
    for text in shows:
        assert text in drawn


def test_a_page_of_the_grid_has_a_slider(fedge, edges, tmp_path):
    assert fedge("plot", edges, "--kind", "grid", "-o", tmp_path / "grid.html").exit_code == 0
    assert '"name": "shown"' in (tmp_path / "grid.html").read_text()


@pytest.mark.parametrize(("rounds", "stepped", "sliders"), [([1], True, 1), ([1, 2], True, 0), ([1], False, 0)])
def test_a_slider_needs_one_grid_in_an_html_file(edges, rounds, stepped, sliders):
    chart = draw(ChartRequest("grid", rounds=rounds, stepped=stepped), find_runs(edges)).to_dict()
    assert len(chart.get("params", [])) == sliders


def test_a_round_that_was_not_recorded(fedge, edges, tmp_path):
    result = fedge("plot", edges, "--kind", "timeline", "--round", "3", "-o", tmp_path / "fig.svg")
    assert result.exit_code == 2
    assert "--round 3: expected one of the recorded rounds, 1 to 2" in result.stderr


def test_edge_records_that_cannot_be_read_are_an_error(fedge, edges, tmp_path):
    (edges / "a" / "edge.jsonl").write_text("nonsense\n")
    result = fedge("plot", edges, "--kind", "grid", "-o", tmp_path / "fig.svg")
    assert result.exit_code == 6
    assert "edge.jsonl is damaged" in result.stderr


def test_clients_that_cannot_be_read_are_a_warning(fedge, measured, tmp_path):
    (measured / "a" / "clients.jsonl").write_text("nonsense\n")
    result = fedge("plot", measured, "-o", tmp_path / "fig.svg")
    assert result.exit_code == 0
    assert "clients.jsonl is damaged" in result.stderr


def test_a_wrong_suffix_is_an_error_before_runs_are_read(fedge, tmp_path):
    result = fedge("plot", tmp_path / "absent", "-o", "fig.gif")
    assert result.exit_code == 2
    assert ".svg, .png, .pdf or .html" in result.stderr


def test_no_runs(fedge, tmp_path):
    result = fedge("plot", tmp_path, "-o", tmp_path / "fig.svg")
    assert result.exit_code == 6
    assert "no runs in" in result.stderr


def test_damaged_runs_are_left_out_with_the_reason(fedge, runs, tmp_path):
    (runs / "fedavg-0.1" / "config.json").write_text('{"format": 3}')
    result = fedge("plot", runs, "-o", tmp_path / "fig.svg")
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: left out: ")
    assert "has format 3" in result.stderr


@pytest.mark.parametrize("suffix", ["svg", "html"])
@pytest.mark.parametrize("kind", ["grid", "timeline"])
def test_classes_and_clients_are_shown_by_their_names_whatever_these_are(fedge, edges, tmp_path, kind, suffix):
    evil = "\x1b[2J</script><script>alert(1)</script>"
    names = {"classes": ["cat", evil], "clients": [*"abcd", evil, *"fg", "north"]}
    (edges / "a" / "names.json").write_text(json.dumps(names))
    assert fedge("plot", edges, "--kind", kind, "-o", tmp_path / f"fig.{suffix}").exit_code == 0
    drawn = (tmp_path / f"fig.{suffix}").read_text()
    assert ("cat" if kind == "grid" else "north") in drawn
    assert "u001b[2J" in drawn
    assert "\x1b" not in drawn
    assert "<script>alert" not in drawn


@pytest.mark.parametrize("kind", ["grid", "timeline"])
def test_names_of_a_run(fedge, tmp_path, kind):
    """From a table's columns to the picture, through the run directory."""
    (tmp_path / "t.csv").write_text("ward,a,kind\n" + "north,1,ill\nsouth,2,healthy\n" * 5)
    (tmp_path / "e.toml").write_text(
        'name = "x"\nrounds = 1\nseed = 1\n[data]\nname = "table"\nfile = "t.csv"\ntarget = "kind"\n'
        'partition = { name = "natural", column = "ward" }\n[model]\nname = "logistic"\n'
        '[algorithm]\nname = "fedavg"\nlearning_rate = 0.1\nlocal_steps = 1\n[engine]\nname = "loop"\n'
        "[selection]\nfraction = 1.0\n[edge]\nrecord = true\n"
    )
    made = fedge("run", tmp_path / "e.toml", "--runs", tmp_path / "runs")
    assert made.exit_code == 0, made.stderr
    assert json.loads((tmp_path / "runs" / "x" / "names.json").read_text()) == {
        "classes": ["healthy", "ill"],
        "clients": ["north", "south"],
    }
    assert fedge("plot", tmp_path / "runs", "--kind", kind, "-o", tmp_path / "fig.svg").exit_code == 0
    drawn = (tmp_path / "fig.svg").read_text()
    for name in ("(healthy, ill)",) if kind == "grid" else (">north<", ">south<"):
        assert name in drawn


def test_layout_options(fedge, runs, tmp_path):
    options = ("--top", 2, "--seeds", "--width", "double", "--title", "My title", "--log", "x", "--legend", "right")
    labels = ("--label", "fedavg=baseline", "--label", "y=top-1", "--label", "learning_rate=lr")
    result = fedge("plot", runs, *options, *labels, "-o", tmp_path / "fig.svg")
    assert (result.exit_code, result.stderr) == (0, "")
    drawn = (tmp_path / "fig.svg").read_text()
    for text in ('width="687"', ">My title<", ">top-1<", "baseline, lr = 0.1", "best 2 of 4 by last accuracy"):
        assert text in drawn
    assert "SCAFFOLD" not in drawn


def test_a_chart_names_its_steps(fedge, runs, tmp_path, monkeypatch):
    steps = []
    monkeypatch.setattr("fedge.cli.output.working", lambda what: steps.append(what) or nullcontext())
    assert fedge("plot", runs, "-o", tmp_path / "chart.svg").exit_code == 0
    assert steps == ["reading runs", "drawing"]
