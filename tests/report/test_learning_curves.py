import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from struct import unpack

import pytest

from fedge.core.errors import ConfigError, FedgeError, StorageError
from fedge.report.chart_options import ChartOptions
from fedge.report.groups import RunGroup, group_runs
from fedge.report.learning_curves import curves, rounds_and_upload, side_by_side
from fedge.report.style import COLOURS, DASHES, make_printable, save

pytest.importorskip("altair", reason="needs the extra `view`")
pytest.importorskip("vl_convert", reason="needs the extra `view`")

TARGET = {"metric": "accuracy", "value": 0.9}


@pytest.fixture
def make_groups(make_run):
    """Groups with the given numbers of seeds, evaluated in two rounds."""

    def make(*counts: int, target=TARGET, num_rounds: int = 2) -> list[RunGroup]:
        def run(seed: int):
            rounds = [
                {"round": i + 1, "accuracy": 0.5 + 0.1 * i + 0.01 * seed, "bytes_up": 3_000_000}
                for i in range(num_rounds)
            ]
            return make_run(seed=seed, rounds=rounds, target=target)

        return [RunGroup(f"group {i}", [run(seed) for seed in range(n)]) for i, n in enumerate(counts)]

    return make


def texts(path: Path) -> list[str]:
    root = ElementTree.parse(path).getroot()
    return [element.text for element in root.iter("{http://www.w3.org/2000/svg}text") if element.text]


def test_rows_are_in_the_units_of_the_axes(make_groups) -> None:
    spec = curves(make_groups(2), x="bytes_up").to_dict()
    rows = spec["data"]["values"]
    assert [row["x"] for row in rows] == [3, 6]
    assert [row["mean"] for row in rows] == pytest.approx([50.5, 60.5])
    assert [row["low"] for row in rows] == pytest.approx([50, 60])
    assert [row["high"] for row in rows] == pytest.approx([51, 61])
    line = spec["layer"][1]["encoding"]
    assert (line["x"]["title"], line["y"]["title"]) == ("upload (MB)", "accuracy (%)")


def caption(chart) -> str:
    return " ".join(chart.to_dict()["title"]["text"])


def test_eight_groups_have_different_colours_and_dashes_tell_them_apart_in_grey(make_groups) -> None:
    spec = curves(make_groups(*[1] * 8)).to_dict()
    looks = spec["layer"][1]["encoding"]
    assert looks["stroke"]["scale"]["domain"] == [f"group {i}" for i in range(8)]
    assert looks["stroke"]["scale"]["range"] == list(COLOURS)
    assert looks["strokeDash"]["scale"]["range"] == [list(DASHES[i % 5]) for i in range(8)]


def test_more_than_eight_groups_are_reduced_to_the_best_with_a_note(make_run) -> None:
    def group(i, last):
        return RunGroup(f"group {i}", [make_run(rounds=[{"round": 1, "accuracy": last, "loss": last}])])

    groups = [group(i, value) for i, value in enumerate([0.5, 0.1, 0.9, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.05])]
    chart = curves(groups)
    shown = chart.to_dict()["layer"][1]["encoding"]["stroke"]["scale"]["domain"]
    assert shown == [f"group {i}" for i in (0, 2, 3, 4, 5, 6, 7, 8)]
    assert caption(chart).endswith("best 8 of 10 by last accuracy")
    chart = curves(groups, y="loss", options=ChartOptions(top=2))
    assert chart.to_dict()["layer"][1]["encoding"]["stroke"]["scale"]["domain"] == ["group 1", "group 9"]
    with pytest.raises(ConfigError, match="top: expected the number of curves, at least 1, got 0"):
        ChartOptions(top=0)


@pytest.fixture
def many(make_run) -> list[RunGroup]:
    """Two algorithms by three rates by three numbers of steps."""
    return group_runs(
        make_run(
            "x",
            rounds=[{"round": r, "accuracy": 0.1 * r, "bytes_up": 1} for r in (1, 2)],
            target=TARGET,
            algorithm={"name": name, "learning_rate": rate, "local_steps": steps},
        )
        for name in ("fedavg", "scaffold")
        for rate in (0.5, 0.02, 0.1)
        for steps in (10, 2, 20)
    )


@pytest.mark.parametrize(("width", "pixels"), [("single", 336), ("double", 687)])
def test_more_than_eight_requested_curves_become_small_multiples(many, tmp_path, width, pixels) -> None:
    chart = curves(many, options=ChartOptions(top=18, width=width))
    spec = chart.to_dict()
    assert spec["facet"]["sort"] == ["η = 0.02", "η = 0.1", "η = 0.5"]
    lines = spec["spec"]["layer"][1]["encoding"]["stroke"]["scale"]["domain"]
    assert lines == [f"{name}, K = {steps}" for name in ("FedAvg", "SCAFFOLD") for steps in (2, 10, 20)]
    assert len({(row["panel"], row["label"]) for row in spec["data"]["values"]}) == 18
    assert "dashed: target 90%" in caption(chart)
    save(chart, tmp_path / "many.svg")
    drawn = float(ElementTree.parse(tmp_path / "many.svg").getroot().attrib["width"])
    assert 0.9 * pixels < drawn <= pixels


def test_settings_without_a_grid_have_a_panel_each(make_groups) -> None:
    spec = curves(make_groups(*[1] * 9), options=ChartOptions(top=9)).to_dict()
    assert spec["facet"]["sort"] == [f"group {i}" for i in range(9)]
    assert spec["spec"]["layer"][1]["encoding"]["stroke"] == {"value": COLOURS[0]}


@pytest.mark.parametrize(("width", "points"), [("single", 252), ("double", 515.25)])
def test_charts_are_as_wide_as_the_columns_of_a_paper(make_groups, tmp_path, width, points) -> None:
    chart = curves(make_groups(2, 2), options=ChartOptions(width=width))
    spec = chart.to_dict()
    assert spec["autosize"] == {"type": "fit-x", "contains": "padding"}
    assert spec["width"] * 72 / 96 == points
    save(chart, tmp_path / "chart.svg")
    assert float(ElementTree.parse(tmp_path / "chart.svg").getroot().attrib["width"]) * 72 / 96 == points
    save(chart, tmp_path / "chart.pdf")
    box = re.search(rb"MediaBox *\[0 0 ([0-9.]+)", (tmp_path / "chart.pdf").read_bytes())
    assert float(box[1]) == pytest.approx(points, abs=1)


def test_seeds_are_thin_lines_in_the_colour_of_their_mean(make_groups) -> None:
    spec = curves(make_groups(2, 1, target=None), options=ChartOptions(seeds=True)).to_dict()
    marks = [(layer["mark"]["type"], layer["mark"].get("strokeWidth")) for layer in spec["layer"]]
    assert marks == [("area", None), ("line", 0.5), ("line", None)]
    seeds = [row for row in spec["data"]["values"] if "seed" in row]
    assert [(row["label"], row["seed"], row["x"]) for row in seeds] == [
        ("group 0", s, x) for s in (0, 1) for x in (1, 2)
    ]
    assert [row["value"] for row in seeds] == pytest.approx([50, 60, 51, 61])
    assert {row["colour"] for row in seeds} == {COLOURS[0]}


def test_seeds_may_be_drawn_in_place_of_the_band(make_groups) -> None:
    chart = curves(make_groups(3, 1, target=None), options=ChartOptions(seeds=True, band=False))
    assert [layer["mark"]["type"] for layer in chart.to_dict()["layer"]] == ["line", "line"]
    assert caption(chart) == "mean of 1 to 3 seeds; thin lines: each seed"
    assert caption(curves(make_groups(3), options=ChartOptions(band=False))) == "mean of 3 seeds"
    both = curves(make_groups(3), options=ChartOptions(seeds=True))
    assert caption(both) == "mean of 3 seeds; band: 95% confidence interval; thin lines: each seed"


def test_a_mean_over_a_part_of_the_runs_states_which_part(make_run) -> None:
    rounds = [{"round": 1, "accuracy": 0.5}]
    done = [make_run(seed=seed, rounds=rounds, summary={"rounds": 1}) for seed in range(3)]
    unfinished = make_run(seed=9, rounds=rounds)
    groups = [RunGroup("whole", done), RunGroup("part", [*done[:2], unfinished])]
    assert caption(curves(groups)).startswith("mean of 2 to 3 seeds (5 of 6 runs); ")
    assert caption(curves([RunGroup("alone", [done[0], unfinished])])) == "one seed (1 of 2 runs)"


@pytest.mark.parametrize(
    ("counts", "drawn", "says"),
    [
        ((1, 1), ["area", "line"], "one seed"),
        ((2, 5), ["line", "line"], "mean of 2 to 5 seeds; thin lines: each seed"),
        ((4, 4), ["line", "line"], "mean of 4 seeds; thin lines: each seed"),
        ((1, 5), ["area", "line"], "mean of 1 to 5 seeds; band: 95% confidence interval"),
    ],
)
def test_few_seeds_are_drawn_in_place_of_a_band(make_groups, counts, drawn: list[str], says: str) -> None:
    """The interval of three seeds is 2.5 standard deviations to each side: several bands hide all curves."""
    groups = make_groups(*counts, target=None)
    chart = curves(groups, options=ChartOptions(band=None))
    assert [layer["mark"]["type"] for layer in chart.to_dict()["layer"]] == drawn
    assert caption(chart) == says
    labels = {"accuracy": "test accuracy"}  # known words outlive the choice
    options = ChartOptions(labels=labels, band=None)
    curves(groups, options=options)
    options.words.check()


def test_the_upload_axis_is_logarithmic_if_one_upload_is_far_larger(make_run) -> None:
    def overview(*uploads: int):
        rounds = [[{"round": r, "accuracy": 0.1 * r, "bytes_up": upload} for r in (1, 2)] for upload in uploads]
        groups = [RunGroup(f"group {i}", [make_run(rounds=own)]) for i, own in enumerate(rounds)]
        panels = rounds_and_upload(groups, "accuracy").to_dict()["concat"]
        return [panel["layer"][-1]["encoding"]["x"]["scale"].get("type") for panel in panels]

    assert overview(10, 100) == [None, None]
    assert overview(10, 101) == [None, "log"]
    assert overview(0, 101) == [None, None]  # 0 has no logarithm


def test_logarithmic_axes(make_groups, make_run) -> None:
    encoding = curves(make_groups(2), options=ChartOptions(log="both")).to_dict()["layer"][1]["encoding"]
    assert (encoding["x"]["scale"]["type"], encoding["y"]["scale"]["type"]) == ("log", "log")
    encoding = curves(make_groups(2), options=ChartOptions(log="y")).to_dict()["layer"][1]["encoding"]
    assert "type" not in encoding["x"]["scale"]
    zero = [RunGroup("zero", [make_run(rounds=[{"round": 1, "accuracy": 0.0}])])]
    with pytest.raises(ConfigError, match="a logarithmic y axis needs values above 0, got 0; drop log y"):
        curves(zero, options=ChartOptions(log="y"))
    wide = [make_run(seed=s, rounds=[{"round": 1, "accuracy": a}]) for s, a in enumerate((0.01, 0.02, 0.5))]
    (row,) = curves(group_runs(wide), options=ChartOptions(log="y")).to_dict()["data"]["values"]
    assert row["low"] == pytest.approx(row["mean"] / 10)  # the interval reaches below 0


def test_title_labels_and_legend(make_groups) -> None:
    options = ChartOptions(
        title="My title", legend="inside", labels={"accuracy": "test accuracy", "x": "communication rounds"}
    )
    spec = curves(make_groups(2, 2), options=options).to_dict()
    assert (spec["title"]["text"], spec["title"]["subtitle"]) == (
        ["My title"],
        ["mean of 2 seeds; band: range of the seeds"],
    )
    encoding = spec["layer"][1]["encoding"]
    assert (encoding["x"]["title"], encoding["y"]["title"]) == ("communication rounds", "test accuracy (%)")
    assert spec["config"]["legend"]["orient"] == "bottom-right"
    for legend, found in (("right", {"orient": "right"}), ("none", {"disable": True}), ("bottom", {"columns": 2})):
        style = curves(make_groups(2, 2), options=ChartOptions(legend=legend)).to_dict()["config"]["legend"]
        assert found.items() <= style.items()


@pytest.mark.parametrize(
    ("num_rounds", "ticks"), [(1, ["0", "1"]), (2, ["0", "1", "2"]), (3, ["0", "1", "2", "3"]), (8, [*"02468"])]
)
def test_rounds_have_ticks_at_integers(make_groups, tmp_path: Path, num_rounds, ticks) -> None:
    save(curves(make_groups(1, num_rounds=num_rounds, target=None)), tmp_path / "chart.svg")
    found = texts(tmp_path / "chart.svg")
    assert found[: found.index("round")] == ticks
    _, marks, *_ = (tmp_path / "chart.svg").read_text().split("role-axis-tick")
    assert marks.split("</g>")[0].count("<line") == len(ticks)


@pytest.mark.parametrize(("losses", "least", "largest"), [((0, 4e12), "1e+12", "4e+12"), ((0, 4e-6), "1e-6", "4e-6")])
def test_axes_have_no_long_rows_of_zeros(make_run, tmp_path: Path, losses, least, largest) -> None:
    rounds = [{"round": i, "loss": loss} for i, loss in enumerate(losses, 1)]
    save(curves([RunGroup("a", [make_run(rounds=rounds)])], y="loss"), tmp_path / "chart.svg")
    assert {"0", least, largest} <= set(texts(tmp_path / "chart.svg"))


def test_the_place_of_the_target_counts_on_a_legend_beside_the_chart(make_run) -> None:
    """A curve that is steep for two rounds in ten runs through a label at the left only if the panel is narrow."""
    accuracies = (0.1, 0.4, 0.7, 0.89, 0.91, *[1.0] * 7)
    rounds = [{"round": i, "accuracy": accuracy} for i, accuracy in enumerate(accuracies, 1)]
    group = RunGroup("a group with a label that is long", [make_run(rounds=rounds, target=TARGET)])

    def side(legend) -> str:
        return curves([group], options=ChartOptions(legend=legend)).to_dict()["layer"][-1]["mark"]["align"]

    assert (side("bottom"), side("right")) == ("left", "right")


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ((1, 1), "one seed"),
        ((2, 2), "mean of 2 seeds; band: range of the seeds"),
        ((1, 2), "mean of 1 to 2 seeds; band: range of the seeds"),
        ((3, 5), "mean of 3 to 5 seeds; band: 95% confidence interval"),
        ((2, 3), "mean of 2 to 3 seeds; band: 95% confidence interval, or range if fewer than 3"),
    ],
)
def test_the_caption_states_which_band_is_drawn(make_groups, counts: tuple[int, ...], says: str) -> None:
    assert caption(curves(make_groups(*counts))) == says


def test_the_target_is_drawn_once_and_only_over_its_own_metric(make_groups) -> None:
    def marks(**options):
        return [layer["mark"]["type"] for layer in curves(**options).to_dict()["layer"]]

    assert marks(groups=make_groups(1, 1)) == ["area", "line", "rule", "text", "text"]
    assert marks(groups=make_groups(1, target=None)) == ["area", "line"]
    assert marks(groups=make_groups(1), y="bytes_up") == ["area", "line"]


def test_a_single_evaluation_is_a_point(make_groups) -> None:
    spec = curves(make_groups(1, target=None, num_rounds=1)).to_dict()
    assert [layer["mark"]["type"] for layer in spec["layer"]] == ["area", "line", "point"]
    assert [row["alone"] for row in spec["data"]["values"]] == [True]


def test_svg_has_axes_legend_and_target(make_groups, tmp_path: Path) -> None:
    file = tmp_path / "figures" / "chart.svg"
    save(curves(make_groups(2, 2)), file)
    found = texts(file)
    for text in ("round", "accuracy (%)", "group 0", "group 1", "mean of 2 seeds; band: range of the seeds"):
        assert found.count(text) == 1
    assert "target" in "".join(ElementTree.parse(file).getroot().itertext())


def test_charts_side_by_side_share_a_legend_and_a_title(make_groups, tmp_path: Path) -> None:
    groups = make_groups(2, 2)
    save(side_by_side([curves(groups), curves(groups, x="bytes_up")]), tmp_path / "both.svg")
    found = texts(tmp_path / "both.svg")
    for text in ("round", "upload (MB)", "group 0", "group 1", "mean of 2 seeds; band: range of the seeds"):
        assert found.count(text) == 1
    assert found.count("accuracy (%)") == 2


def test_side_by_side_does_not_modify_its_charts(make_groups) -> None:
    chart = curves(make_groups(2))
    before = chart.to_dict()
    side_by_side([chart, chart])
    assert chart.to_dict() == before


def test_side_by_side_needs_charts_of_the_same_groups(make_groups) -> None:
    with pytest.raises(ConfigError, match="the same groups"):
        side_by_side([curves(make_groups(1)), curves(make_groups(1, 1))])
    with pytest.raises(ConfigError, match="at least one chart"):
        side_by_side([])


def test_png_is_dense_enough_for_print(make_groups, tmp_path: Path) -> None:
    chart = curves(make_groups(1))
    save(chart, tmp_path / "chart.png")
    save(chart, tmp_path / "chart.svg")
    data = (tmp_path / "chart.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    width, _ = unpack(">II", data[16:24])
    assert width >= 2 * float(ElementTree.parse(tmp_path / "chart.svg").getroot().attrib["width"])


@pytest.mark.parametrize("name", ["chart.jpg", "chart"])
def test_an_unknown_suffix_names_the_valid_ones(make_groups, tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"\.svg, \.png, \.pdf or \.html"):
        save(curves(make_groups(1)), tmp_path / name)


def test_a_path_that_cannot_be_written_is_an_error(make_groups, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"move the file .*, then draw the chart again"):
        save(curves(make_groups(1)), tmp_path / "file" / "chart.svg")


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_a_label_that_cannot_be_drawn_is_an_error(make_groups, tmp_path: Path, suffix: str) -> None:
    """vl-convert cuts long labels between the halves of a character beyond the first 65,536."""
    group = RunGroup("\N{ROCKET}" * 80, make_groups(1)[0].runs)
    with pytest.raises(ConfigError, match=r"cannot be drawn: .*; shorten long names"):
        save(curves([group]), tmp_path / f"chart{suffix}")


def test_huge_labels_are_cut_and_remain_distinct(make_groups) -> None:
    runs = make_groups(1)[0].runs
    groups = [RunGroup(f"{'x' * 100_000}{end}", runs) for end in ("a", "b", "")]
    text = make_printable(curves(groups)).to_json()
    assert len(text) < 100_000
    assert len(set(re.findall("x{1000}… [0-9a-f]{8}", text))) == 3


def test_a_chart_without_runs_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one run"):
        curves([])


@pytest.mark.parametrize("module", ["altair", "vl_convert"])
def test_without_the_extra_the_error_states_what_to_install(make_groups, tmp_path, monkeypatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(FedgeError, match=r"pip install 'fedge\[view\]'"):
        save(curves(make_groups(1)), tmp_path / "chart.svg")


def test_a_band_ends_where_accuracies_end(make_run) -> None:
    """The interval of 0.5, 1 and 1 reaches beyond 1."""
    runs = [make_run(seed=seed, rounds=[{"round": 1, "accuracy": value}]) for seed, value in enumerate((0.5, 1, 1))]
    (row,) = curves(group_runs(runs)).to_dict()["data"]["values"]
    assert row["high"] == 100
    assert 0 <= row["low"] < row["mean"] < 100


def test_the_caption_states_that_bands_over_different_settings_are_ranges(make_groups) -> None:
    three, four = make_groups(3, 4)
    mixed = RunGroup("mixed", four.runs, mixed=True)
    assert caption(curves([mixed])) == "mean of 4 runs of different settings; band: range of the runs"
    assert caption(curves([three, mixed])) == (
        "mean of 3 to 4 runs of different settings; band: 95% confidence interval, "
        "or range if fewer than 3 or if settings differ"
    )


def test_the_metric_of_a_chart_is_shown_in_its_declared_unit(make_groups) -> None:
    spec = curves(make_groups(1), y="bytes_up").to_dict()
    assert spec["layer"][1]["encoding"]["y"]["title"] == "upload (MB)"
    assert [row["mean"] for row in spec["data"]["values"]] == [3, 3]
