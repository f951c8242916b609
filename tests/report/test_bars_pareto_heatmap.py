import re
from pathlib import Path

import pytest

from fedge.core.errors import ConfigError
from fedge.report.bars import bars
from fedge.report.chart_options import ChartOptions
from fedge.report.groups import RunGroup, group_runs, regroup
from fedge.report.heatmap import heatmap
from fedge.report.pareto_chart import SHAPES, pareto
from fedge.report.style import COLOURS, INK, save
from fedge.report.text_width import text_width

pytest.importorskip("altair", reason="needs the extra `view`")
vl_convert = pytest.importorskip("vl_convert", reason="needs the extra `view`")

TARGET = {"metric": "accuracy", "value": 0.9}


@pytest.fixture
def groups(make_run) -> list[RunGroup]:
    """Two rates by two step counts, two seeds each; the highest rate with many steps reaches the target only once."""
    reached = {(1, 5): (10, 12), (1, 9): (6, 8), (2, 5): (4, 4), (2, 9): (20, None)}
    return group_runs(
        make_run(
            "x",
            seed,
            target=TARGET,
            summary={"accuracy": 0.5 + rate / 10, "rounds_to_target": rounds, "flops_to_target": steps * 1e9},
            algorithm={"rate": rate, "steps": steps},
        )
        for (rate, steps), both in reached.items()
        for seed, rounds in enumerate(both)
    )


def rows(chart):
    return chart.to_dict()["data"]["values"]


def test_bars_are_sorted_and_marked_not_reached(groups, make_run) -> None:
    never = make_run("never", target=TARGET, summary={"rounds_to_target": None})
    without = make_run("without", summary={"rounds_to_target": None})
    found = rows(bars([*groups, RunGroup("never", [never]), RunGroup("without", [without])]))
    assert [row["mean"] for row in found] == [4, 7, 11, 20, None, None]
    assert found[3]["text"] == "20 (1/2 reached)"
    assert [row["text"] for row in found[4:]] == ["not reached", "no target"]
    assert (found[1]["low"], found[1]["high"]) == (6, 8)  # of two seeds, the range
    assert found[1]["text"] == "7.00"


def test_bars_of_an_accuracy_start_with_the_highest(groups) -> None:
    found = rows(bars(groups, "accuracy"))
    assert [round(row["mean"]) for row in found] == [70, 70, 60, 60]


@pytest.mark.parametrize("field", ["messages", "dropped", "mean_sim_up_s", "mean_sim_wait_s"])
def test_bars_of_a_cost_start_with_the_lowest(make_run, field) -> None:
    def group(label, value):
        record = {"round": 1, "messages": value, "dropped": value, "sim_up_s": value, "sim_wait_s": value}
        return RunGroup(label, [make_run(rounds=[record], summary={"messages": value})])

    found = rows(bars([group("a", 20), group("b", 30), group("c", 10)], field))
    assert [row["label"] for row in found] == ["c", "a", "b"]


def test_pareto_refuses_a_result_without_a_better_direction(make_run) -> None:
    groups = [RunGroup("a", [make_run(summary={"accuracy": 0.5, "f1": 0.5})])]
    with pytest.raises(ConfigError, match="f1 has none"):
        pareto(groups, "f1", "accuracy")
    with pytest.raises(ConfigError, match="did you mean 'accuracy'"):
        pareto(groups, "acuracy", "accuracy")


@pytest.mark.parametrize(
    ("field", "says"), [("accuracy", "darker is better"), ("messages", "darker is better"), ("f1", "darker is higher")]
)
def test_heat_map_notes_the_meaning_of_dark(make_run, field, says) -> None:
    values = {(1, 5): 0.1, (1, 9): 0.2, (2, 5): 0.3, (2, 9): 0.4}
    groups = group_runs(
        make_run("x", summary={field: value}, algorithm={"rate": rate, "steps": steps})
        for (rate, steps), value in values.items()
    )
    chart = heatmap(groups, field)
    assert says in chart.to_dict()["title"]["text"]
    (dark,) = [(row["a"], row["b"]) for row in rows(chart) if row["mean"] in (0.1, 0.4, 10.0, 40.0) and row["dark"]]
    assert dark == (("1", "5") if field == "messages" else ("2", "9"))


def test_pareto_marks_the_front(groups) -> None:
    found = {row["label"]: row for row in rows(pareto(groups, "rounds_to_target", "accuracy"))}
    front = [label for label, row in found.items() if row["front"]]
    assert front == ["rate = 2, steps = 5"]
    assert found[front[0]]["x"] == 4
    assert found[front[0]]["y"] == pytest.approx(70)


def test_pareto_notes_groups_that_missed_the_target(groups, make_run) -> None:
    never = make_run("never", target=TARGET, summary={"rounds_to_target": None, "accuracy": 0.1})
    chart = pareto([*groups, RunGroup("never", [never])], "rounds_to_target", "accuracy").to_dict()
    assert "1 not shown: target not reached" in " ".join(chart["title"]["text"])
    with pytest.raises(ConfigError, match="no group of runs has both"):
        pareto([RunGroup("never", [never])], "rounds_to_target", "accuracy")


def test_heat_map_has_a_cell_for_each_pair(groups) -> None:
    chart = heatmap(groups, "rounds_to_target")
    cells = {(row["a"], row["b"]): row for row in rows(chart)}
    assert {key: cell["mean"] for key, cell in cells.items()} == {
        ("1", "5"): 11,
        ("1", "9"): 7,
        ("2", "5"): 4,
        ("2", "9"): 20,
    }
    assert cells["2", "5"]["dark"]
    assert not cells["2", "9"]["dark"]  # few rounds are better, and darker
    inks = {layer["transform"][0]["filter"]: layer["mark"].get("color") for layer in chart.to_dict()["layer"]}
    assert inks["!isValid(datum.mean)"] == INK  # a dash has no cell behind it, so dark pages must recolour it


def test_heat_map_needs_two_settings(groups) -> None:
    with pytest.raises(ConfigError, match=r"two settings that vary, got algorithm\.rate"):
        heatmap([group for group in groups if group.runs[0].config["algorithm"]["steps"] == 5])


def test_regrouped_runs_are_marked_as_mixed(groups) -> None:
    merged = regroup(groups, ["algorithm.rate"])
    assert [(group.label, len(group.runs), group.mixed) for group in merged] == [
        ("rate = 1", 4, True),
        ("rate = 2", 4, True),
    ]
    assert not any(group.mixed for group in regroup(groups, ["algorithm.rate", "algorithm.steps"]))
    with pytest.raises(ConfigError, match=r"did you mean 'algorithm\.rate'"):
        regroup(groups, ["algorithm.rat"])


def test_runs_of_one_group_can_be_regrouped_by_seed(groups) -> None:
    merged = regroup(groups, ["seed"])
    assert [group.label for group in merged] == ["seed = 0", "seed = 1"]
    for seed, group in enumerate(merged):
        assert [run.config["seed"] for run in group.runs] == [seed] * 4
        assert group.mixed
    assert not any(group.mixed for group in regroup(groups[:1], ["seed"]))


def test_bars_over_different_settings_have_no_interval(groups) -> None:
    chart = bars(regroup(groups, ["algorithm.rate"]), "rounds_to_target").to_dict()
    first, second = chart["data"]["values"]
    assert (first["mean"], first["low"], first["high"], first["text"]) == (9, 9, 9, "9")  # of 10, 12, 6 and 8
    assert second["text"] == "9.333 (3/4 reached)"  # of 4, 4 and 20
    assert " ".join(chart["title"]["text"]) == "target: accuracy 90%; no line: mean over different settings"


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf", "html"])
def test_charts_are_saved_in_every_file_format(groups, tmp_path: Path, suffix) -> None:
    starts = {"svg": b"<svg", "png": b"\x89PNG", "pdf": b"%PDF", "html": b"<!DOCTYPE html>"}
    save(heatmap(groups), tmp_path / f"chart.{suffix}")
    data = (tmp_path / f"chart.{suffix}").read_bytes()
    assert data.lstrip().startswith(starts[suffix])
    if suffix == "html":
        assert b"<script src=" not in data  # the file includes the drawing code


def test_bars_and_pareto_render_to_svg(groups, tmp_path: Path) -> None:
    for name, chart in {"bars": bars(groups), "pareto": pareto(groups, "flops_to_target", "accuracy")}.items():
        save(chart, tmp_path / f"{name}.svg")
        assert "to target" in (tmp_path / f"{name}.svg").read_text()


def test_texts_at_the_ends_of_bars_fit(groups) -> None:
    """The axis ends at the end of the text beside the longest bars: 336 pixels minus the labels."""
    spec = bars(groups).to_dict()
    domain = spec["layer"][0]["encoding"]["x"]["scale"]["domain"]
    room = 336 - 22 - text_width("rate = 2, steps = 9")
    assert domain == [0, pytest.approx(20 * room / (room - text_width("20 (1/2 reached)", 9) - 8))]


def drawn(chart) -> list[str]:
    """Return the texts of a picture, the ticks of the x axis first."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", vl_convert.vegalite_to_svg(chart.to_dict()))


def test_bars_that_all_missed_the_target_have_ticks_at_integers(make_run) -> None:
    never = RunGroup("never", [make_run(target=TARGET, summary={"rounds_to_target": None})])
    assert drawn(bars([never])) == ["0", "1", "rounds to target", "never", "not reached", "target: accuracy 90%"]


def test_no_tick_is_above_the_highest_value_that_a_result_can_have(make_run) -> None:
    runs = [make_run(seed=seed, summary={"accuracy": 0.8 + seed / 20}) for seed in (1, 2, 3)]
    found = drawn(bars([RunGroup("a", runs)], "accuracy"))  # 90.0±12.4: with the text the axis ends beyond 120%
    assert found[: found.index("accuracy (%)")] == ["0", "20", "40", "60", "80", "100"]


def test_a_cost_has_no_tick_below_zero(make_run) -> None:
    """Space around the points of a Pareto chart once became a tick at -50 MB."""
    groups = [
        RunGroup(
            f"a group with a long label: {x}", [make_run(summary={"bytes_up_to_target": x * 1e6, "accuracy": 0.9})]
        )
        for x in (5, 267)
    ]
    found = drawn(pareto(groups, "bytes_up_to_target", "accuracy", ChartOptions(legend="right")))
    assert "50" in found
    assert not [text for text in found if text.startswith("−")]


def test_groups_with_the_same_results_are_nested(make_run) -> None:
    results = [(1, 2), (1, 2), (3, 1), (1, 2)]
    groups = [
        RunGroup(f"g{i}", [make_run(summary={"bytes_up_to_target": x, "flops_to_target": y})])
        for i, (x, y) in enumerate(results)
    ]
    assert [row["size"] for row in rows(pareto(groups))] == [265, 155, 45, 45]  # drawn in this order


@pytest.fixture
def make_map(make_run):
    """Return a heat map of an accuracy over this many rates and two numbers of steps."""

    def make(num_rates: int, **options):
        made = (
            make_run(
                "x", summary={"accuracy": 0.5 + i / 100}, algorithm={"learning_rate": 0.012345 * i, "steps": steps}
            )
            for i in range(1, num_rates + 1)
            for steps in (1, 2)
        )
        return heatmap(group_runs(made), options=ChartOptions(**options)).to_dict()["layer"]

    return make


def test_texts_of_a_heat_map_fit_its_columns(make_map) -> None:
    few, some, many = make_map(3), make_map(8), make_map(20)
    assert [layer[0]["encoding"]["x"]["axis"]["labelAngle"] for layer in (few, some, many)] == [0, -90, -90]
    assert [len(layer) for layer in (few, some, many)] == [4, 4, 2]  # numbers in cells: dark and light, and none


def test_a_long_title_of_a_colour_bar_fits_beside_it(make_map) -> None:
    def bar(**labels):
        legend = make_map(3, labels=labels)[0]["encoding"]["color"]["legend"]
        return legend["gradientLength"], legend["titleLimit"]

    assert bar() == (86, 90)
    assert bar(accuracy="test accuracy of the best model") == (161, 165)


def test_long_labels_of_bars_have_two_lines(make_run) -> None:
    group = RunGroup("a label that is longer than half of a column", [make_run(summary={"accuracy": 0.5})])
    spec = bars([group], "accuracy").to_dict()
    long = RunGroup("SCAFFOLD, η = 0.02, B = 10, C = 0.1, K = 20", group.runs)
    assert rows(bars([long], "accuracy"))[0]["label"] == "SCAFFOLD, η = 0.02, B = 10, C = 0.1,  K = 20"
    assert spec["data"]["values"][0]["label"] == "a label that is longer than half of a  column"
    assert spec["layer"][0]["encoding"]["y"]["axis"]["labelExpr"] == "split(datum.label, '  ')"


def test_the_legend_of_a_pareto_chart_of_many_groups_names_the_front(make_run) -> None:
    values = {i: (i, 0.9 - 0.01 * i if i != 5 else 0.95) for i in range(1, 13)}
    groups = [
        RunGroup(f"g{i}", [make_run(summary={"rounds_to_target": x, "accuracy": y}, target=TARGET)])
        for i, (x, y) in values.items()
    ]
    spec = pareto(groups, "rounds_to_target", "accuracy").to_dict()
    looks = spec["layer"][1]["encoding"]
    assert looks["stroke"]["scale"]["domain"] == looks["shape"]["scale"]["domain"] == ["g1", "g5", "others"]
    assert looks["shape"]["scale"]["range"] == ["circle", "square", "cross"]
    assert [row["label"] for row in spec["data"]["values"]].count("others") == 10
    assert {row["name"] for row in spec["data"]["values"] if row["front"]} == {"g1", "g5"}
    few = pareto(groups[:8], "rounds_to_target", "accuracy").to_dict()
    assert few["layer"][1]["encoding"]["stroke"]["scale"]["domain"] == [f"g{i}" for i in range(1, 9)]


def test_a_heat_map_has_titles_with_symbols_numeric_order_and_a_colour_bar(make_run) -> None:
    groups = group_runs(
        make_run("x", summary={"accuracy": 0.5 + rate / 10 + steps / 100}, algorithm=algorithm)
        for rate in (0.5, 0.02, 0.1)
        for steps in (10, 2)
        for algorithm in [{"learning_rate": rate, "local_steps": steps}]
    )
    spec = heatmap(groups).to_dict()
    encoding = spec["layer"][0]["encoding"]
    assert (encoding["x"]["title"], encoding["y"]["title"]) == ("learning rate η", "local steps K")
    assert encoding["x"]["sort"] == ["0.02", "0.1", "0.5"]
    assert encoding["y"]["sort"] == ["10", "2"]  # from top to bottom
    assert encoding["color"]["legend"]["title"] == "accuracy (%)"
    assert {row["text"] for row in spec["data"]["values"]} == {"65.0", "57.0", "60.2", "52.2", "61.0", "53.0"}


def test_long_labels_of_bars_are_centred_on_their_bar(make_run) -> None:
    def offset(label):
        group = RunGroup(label, [make_run(summary={"accuracy": 0.5})])
        return bars([group], "accuracy").to_dict()["layer"][0]["encoding"]["y"]["axis"]["labelOffset"]

    test = {"test": "length(split(datum.value, '  ')) == 2", "value": -6}
    assert offset("a label that is longer than half of a column") == {"condition": [test], "value": 0}
    assert offset("short") == 0


def test_a_logarithmic_axis_shows_bars_whose_interval_reaches_zero(make_run) -> None:
    runs = [make_run("x", seed, target=TARGET, summary={"rounds_to_target": n}) for seed, n in enumerate((2, 4, 18))]
    never = RunGroup("never", [make_run("never", target=TARGET, summary={"rounds_to_target": None})])
    chart = bars([RunGroup("a", runs), never], options=ChartOptions(log="x"))
    first, last = rows(chart)
    assert (first["mean"], first["low"]) == (8, 0.8)
    assert first["start"] == last["end"] == 0.4
    encoding = chart.to_dict()["layer"][0]["encoding"]
    assert encoding["x2"] == {"field": "start"}
    assert encoding["x"]["scale"]["domain"][0] == 0.4
    assert encoding["x"]["scale"]["domain"][1] > first["high"]


def test_the_axes_of_a_single_point_have_ticks_around_it(make_run) -> None:
    group = RunGroup("a", [make_run(target=TARGET, summary={"rounds_to_target": 8, "flops_to_target": 0.147e9})])
    encoding = pareto([group], "rounds_to_target").to_dict()["layer"][1]["encoding"]
    assert encoding["x"]["scale"]["domain"] == [4, 12]
    low, high = encoding["y"]["scale"]["domain"]
    assert low < 147 < high or low < 0.147 < high


def test_points_differ_in_colour_or_shape() -> None:
    looks = {(COLOURS[i % len(COLOURS)], SHAPES[i % len(SHAPES)]) for i in range(40)}
    assert len(looks) == 40


@pytest.mark.parametrize(
    ("points", "orient"),
    [
        ([(1, 9), (5, 5), (9, 1)], "top-right"),
        ([(1, 9), (5, 5), (9, 9)], "bottom-left"),
        ([(1, 1), (5, 5), (9, 9)], "bottom-right"),
        ([(1, 1), (9, 1), (9, 9)], "top-left"),
        ([(1, 1), (1, 9), (9, 1), (9, 9)], "bottom"),
    ],
)
def test_a_legend_inside_a_pareto_chart_covers_no_point(make_run, points, orient) -> None:
    groups = [
        RunGroup(f"group {i}", [make_run(summary={"bytes_up_to_target": x, "flops_to_target": y})])
        for i, (x, y) in enumerate(points)
    ]
    chart = pareto(groups, options=ChartOptions(legend="inside"))
    assert chart.to_dict()["config"]["legend"]["orient"] == orient
