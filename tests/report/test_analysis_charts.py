"""Parallel coordinates, paired differences, importance and cost breakdown: the values behind the marks."""

import pytest

from fedge.core.errors import ConfigError
from fedge.report.chart_options import ChartOptions
from fedge.report.chart_request import ChartRequest, draw
from fedge.report.cost_breakdown import MAX_BARS, breakdown
from fedge.report.groups import describe_timed, group_runs, regroup
from fedge.report.importance_chart import importance_bars
from fedge.report.learning_curves import curves
from fedge.report.pairs_chart import paired_differences
from fedge.report.parallel_coordinates import MAX_AXES, parallel, scaled
from fedge.report.style import save
from fedge.report.text_width import text_width

pytest.importorskip("altair", reason="needs the extra `view`")
pytest.importorskip("vl_convert", reason="needs the extra `view`")

TARGET = {"metric": "accuracy", "value": 0.9}


@pytest.fixture
def grid(make_run):
    """Rate by steps with two seeds; accuracies of a group differ by 2%, and one group does not reach the target."""
    cells = {(0.1, 5): (0.60, 20), (0.1, 9): (0.70, 10), (0.3, 5): (0.80, 40), (0.3, 9): (0.90, None)}
    return [
        make_run(
            "x",
            seed,
            target=TARGET,
            summary={"accuracy": accuracy + 0.02 * seed, "rounds_to_target": rounds},
            algorithm={"name": "fedavg", "learning_rate": rate, "local_steps": steps},
        )
        for (rate, steps), (accuracy, rounds) in cells.items()
        for seed in (0, 1)
    ]


def rows_of(chart):
    """Return the data of a layered chart, including that of its layers."""
    spec = chart.to_dict(validate=False)
    found = list(spec["datasets"].values()) if "datasets" in spec else []
    parts = [spec, *spec.get("layer", [])]
    return found + [part["data"]["values"] for part in parts if "values" in part.get("data", {})]


def text_of(chart):
    spec = chart.to_dict(validate=False)
    title = spec["title"]["text"]
    return " ".join(title) if isinstance(title, list) else title


def test_parallel_coordinates_place_values_between_the_extremes(grid, tmp_path) -> None:
    chart = parallel(group_runs(grid), "accuracy")
    lines = next(rows for rows in rows_of(chart) if rows and "group" in rows[0])
    found = [[row["place"] for row in lines if row["group"] == number] for number in range(4)]
    # rate and steps have two values each; accuracies 0.61, 0.71, 0.81, 0.91 are evenly spaced
    assert found == [pytest.approx(places) for places in ([0, 0, 0], [0, 1, 1 / 3], [1, 0, 2 / 3], [1, 1, 1])]
    assert sorted({row["result"] for row in lines}) == pytest.approx([0.61, 0.71, 0.81, 0.91])
    save(chart, tmp_path / "parallel.svg")
    assert "learning rate" in (tmp_path / "parallel.svg").read_text()


def test_parallel_coordinates_note_groups_without_a_result(grid) -> None:
    chart = parallel(group_runs(grid), "rounds_to_target", "accuracy")
    assert "3 of 4 groups of runs; the others did not reach the target" in text_of(chart)
    lines = next(rows for rows in rows_of(chart) if rows and "group" in rows[0])
    assert {row["group"] for row in lines} == {0, 1, 2}
    assert len({row["axis"] for row in lines}) == 4  # two settings, two results


@pytest.mark.parametrize("width", ["single", "double"])
def test_parallel_coordinates_note_settings_left_out(make_run, width) -> None:
    most = MAX_AXES[width] - 1  # and a result
    many = {f"s{number}" for number in range(most + 2)}
    runs = [make_run("x", 1, summary={"accuracy": v}, algorithm=dict.fromkeys(many, v)) for v in (0.1, 0.2)]
    chart = parallel(group_runs(runs), options=ChartOptions(width=width))
    assert f"{most} of {most + 2} settings" in text_of(chart)
    with pytest.raises(ConfigError, match="differ in a setting"):
        parallel(group_runs(runs[:1]))


def axes_of(chart) -> list[str]:
    found = [row["title"] for rows in rows_of(chart) for row in rows if row.keys() == {"axis", "title"}]
    return list(dict.fromkeys(found))  # layers share their data


def test_parallel_coordinates_have_no_axis_for_what_the_algorithm_determines(make_run) -> None:
    def runs(*algorithms):
        return group_runs(make_run("x", 1, summary={"accuracy": 0.5}, algorithm=one) for one in algorithms)

    fedprox = {"name": "fedprox", "prox": 0.1}
    shared = [{"name": "fedavg"}, fedprox]
    rates = [algorithm | {"learning_rate": rate} for algorithm in shared for rate in (0.1, 0.2)]
    assert axes_of(parallel(runs(*rates))) == ["algorithm", "learning rate η", "accuracy (%)"]
    assert axes_of(parallel(runs(*rates), keys=["algorithm.prox"])) == ["proximal term μ", "accuracy (%)"]
    # with one group per algorithm, all settings would follow from the algorithm
    assert "proximal term μ" in axes_of(parallel(runs(*shared)))


def test_titles_of_parallel_coordinates_are_wrapped_to_the_space_between_axes(make_run) -> None:
    keys = ("server_learning_rate", "local_steps", "batch_size", "learning_rate")
    runs = [make_run("x", 1, summary={"accuracy": v}, algorithm=dict.fromkeys(keys, v)) for v in (0.1, 0.2)]
    lines = [line for title in axes_of(parallel(group_runs(runs))) for line in title.split("  ")]
    assert lines[:3] == ["server", "learning rate", "η"]
    assert all(text_width(line, 9) < (336 - 84) / 4 for line in lines)


def test_scaled_values_are_between_0_and_1() -> None:
    assert [scaled(value, 2, 6) for value in (2, 3, 6)] == [0, 0.25, 1]
    assert scaled(5, 5, 5) == 0.5


def test_paired_differences_compare_equal_seeds(grid, tmp_path) -> None:
    """Every seed of a group is 10, 20, 30% above the baseline, so that the differences have no spread."""
    chart = paired_differences(group_runs(grid))
    rows = next(rows for rows in rows_of(chart) if rows and "verdict" in rows[0])
    assert [row["mean"] for row in rows] == pytest.approx([10, 20, 30])
    assert [row["low"] for row in rows] == pytest.approx([10, 20, 30])
    assert {row["pairs"] for row in rows} == {2}
    assert "3 of 4 groups, 2 pairs each" in text_of(chart)
    save(chart, tmp_path / "pairs.png")


def test_paired_differences_from_a_chosen_baseline(grid) -> None:
    groups = group_runs(grid)
    chart = paired_differences(groups, "accuracy", groups[3].label)
    rows = next(rows for rows in rows_of(chart) if rows and "verdict" in rows[0])
    assert [row["mean"] for row in rows] == pytest.approx([-30, -20, -10])
    with pytest.raises(ConfigError, match="no group of runs is 'nothing'"):
        paired_differences(groups, "accuracy", "nothing")


def test_paired_differences_share_decimals_and_use_percentage_points(make_run, tmp_path) -> None:
    """The differences 0, 4, -0.5 and 12.5 points, in the order of the verdicts in the legend."""
    gains = {0.1: 0.0, 0.2: 0.0, 0.3: 0.04, 0.4: -0.005, 0.5: 0.125}
    chart = paired_differences(
        group_runs(
            make_run("x", seed, summary={"accuracy": 0.5 + gain + 0.1 * seed}, algorithm={"learning_rate": rate})
            for rate, gain in gains.items()
            for seed in (1, 2, 3)
        )
    )
    rows = next(rows for rows in rows_of(chart) if rows and "verdict" in rows[0])
    assert [row["text"] for row in rows] == ["0", "+4.0", "−0.5", "+12.5"]
    text = str(chart.to_dict())
    assert "difference in accuracy (% points)" in text
    assert "['better', 'worse', 'no difference shown']" in text


def test_long_labels_of_differences_are_wrapped(make_run, tmp_path) -> None:
    """A line end in a label would be printed as an escape."""
    name = "a name of an experiment that is far longer than half of a chart is wide"
    runs = [make_run(each, seed, summary={"accuracy": 0.5}) for each in ("first", name) for seed in (1, 2, 3)]
    save(paired_differences(group_runs(runs)), tmp_path / "pairs.svg")
    drawn = (tmp_path / "pairs.svg").read_text()
    assert "a name of an experiment" in drawn
    assert name not in drawn
    assert "\\n" not in drawn


def test_importance_shares_add_up_to_the_total_variance(grid) -> None:
    """Rate: means 0.66 and 0.86, SS = 8 * 0.01 = 0.08; steps: SS = 8 * 0.0025 = 0.02; seeds: 8 * 0.0001 = 0.0008."""
    rows = next(rows for rows in rows_of(importance_bars(grid)) if rows and "share" in rows[0])
    shares = {row["label"]: row["share"] for row in rows}
    total = 0.08 + 0.02 + 0.0008
    assert list(shares.values()) == pytest.approx([8 / total, 2 / total, 0, 0.08 / total], abs=1e-9)
    assert "seeds" in shares
    assert "interactions" in shares


def records(count, **costs):
    return [{"round": number, "bytes_down": 3e6, "bytes_up": 1e6, **costs} for number in range(1, count + 1)]


def test_a_breakdown_stacks_the_parts(make_run) -> None:
    (rows,) = rows_of(breakdown(make_run(rounds=records(2, bytes_backhaul=0))))
    assert [(row["part"], row["below"], row["above"]) for row in rows[:2]] == [("down", 0, 3), ("up", 3, 4)]
    assert "backhaul" not in {row["part"] for row in rows}


def test_a_breakdown_of_many_rounds_shows_means_with_a_note(make_run) -> None:
    chart = breakdown(make_run(rounds=records(2 * MAX_BARS)))
    (rows,) = rows_of(chart)
    assert len(rows) == 2 * MAX_BARS  # two parts of each bar
    assert {row["value"] for row in rows} == {1.0, 3.0}
    assert "mean over 2 rounds a bar" in text_of(chart)


def test_a_breakdown_refuses_several_runs_and_other_fields(make_run) -> None:
    run = make_run(rounds=records(1))
    with pytest.raises(ConfigError, match="expected one of bytes"):
        breakdown(run, "accuracy")
    with pytest.raises(ConfigError, match="no round has energy_j"):
        breakdown(run, "energy_j")
    with pytest.raises(ConfigError, match="of one run, got 2"):
        draw(ChartRequest("breakdown"), [run, run])


def test_axis_titles_name_the_clock_of_seconds(make_run) -> None:
    rounds = [{"round": 1, "accuracy": 0.5, "sim_seconds": 2.0}]
    measured = make_run("net", rounds=rounds, clock="measured")
    simulated = make_run("sim", rounds=rounds, clock="simulated")
    assert describe_timed(group_runs([measured]), "sim_seconds").title == "measured edge time"
    both = group_runs([measured, simulated])
    assert describe_timed(both, "sim_seconds_to_target").title == "measured or simulated edge time to target"
    assert describe_timed(both, "accuracy").title == "accuracy"
    assert "measured edge time (s)" in curves(group_runs([measured]), "sim_seconds").to_json()


def test_simulated_and_measured_seconds_never_share_a_mean(make_run) -> None:
    runs = [make_run("x", seed, clock=clock, a=1) for clock in ("measured", "simulated") for seed in (1, 2)]
    found = regroup(group_runs(runs), ["a"])
    assert sorted(len(group.runs) for group in found) == [2, 2]
    assert sorted(group.label.rpartition(" ")[2] for group in found) == ["(measured)", "(simulated)"]


def test_a_thinned_curve_is_noted(make_run) -> None:
    def run(count):
        return make_run(rounds=[{"round": number, "accuracy": 0.5} for number in range(1, count + 1)])

    assert "thinned" not in text_of(curves(group_runs([run(300)])))
    assert "1,000 points averaged, then thinned" in text_of(curves(group_runs([run(1000)])))
