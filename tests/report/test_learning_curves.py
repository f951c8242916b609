import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from struct import unpack

import pytest

from fedge.core.errors import ConfigError, FedgeError, StorageError
from fedge.report.groups import RunGroup, group_runs
from fedge.report.learning_curves import COLOURS, DASHES, curves, save, side_by_side

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


def test_every_group_has_a_line_of_its_own(make_groups) -> None:
    spec = curves(make_groups(*[1] * 40)).to_dict()
    looks = spec["layer"][1]["encoding"]
    colours, dashes = looks["stroke"]["scale"]["range"], looks["strokeDash"]["scale"]["range"]
    assert colours[:8] == list(COLOURS)
    assert dashes[:5] == [list(dash) for dash in DASHES]
    assert len({(colour, tuple(dash)) for colour, dash in zip(colours, dashes, strict=True)}) == 40


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
def test_the_title_says_which_band_is_drawn(make_groups, counts: tuple[int, ...], says: str) -> None:
    assert curves(make_groups(*counts)).to_dict()["title"] == says


def test_the_target_is_drawn_once_and_only_over_its_own_metric(make_groups) -> None:
    def marks(**options):
        return [layer["mark"]["type"] for layer in curves(**options).to_dict()["layer"]]

    assert marks(groups=make_groups(1, 1)) == ["area", "line", "rule", "text"]
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


def test_side_by_side_has_one_legend_and_one_title(make_groups, tmp_path: Path) -> None:
    groups = make_groups(2, 2)
    save(side_by_side([curves(groups), curves(groups, x="bytes_up")]), tmp_path / "both.svg")
    found = texts(tmp_path / "both.svg")
    for text in ("round", "upload (MB)", "group 0", "group 1", "mean of 2 seeds; band: range of the seeds"):
        assert found.count(text) == 1
    assert found.count("accuracy (%)") == 2


def test_side_by_side_leaves_its_charts_as_they_were(make_groups) -> None:
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


def test_a_place_that_cannot_be_written_is_said(make_groups, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write the chart"):
        save(curves(make_groups(1)), tmp_path / "file" / "chart.svg")


def test_no_runs_no_chart() -> None:
    with pytest.raises(ConfigError, match="at least one run"):
        curves([])


@pytest.mark.parametrize("module", ["altair", "vl_convert"])
def test_without_the_extra_it_says_what_to_install(make_groups, tmp_path, monkeypatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(FedgeError, match=r"pip install 'fedge\[view\]'"):
        save(curves(make_groups(1)), tmp_path / "chart.svg")


def test_a_band_ends_where_accuracies_end(make_run) -> None:
    """The interval of 0.5, 1 and 1 reaches beyond 1."""
    runs = [make_run(seed=seed, rounds=[{"round": 1, "accuracy": value}]) for seed, value in enumerate((0.5, 1, 1))]
    (row,) = curves(group_runs(runs)).to_dict()["data"]["values"]
    assert row["high"] == 100
    assert 0 <= row["low"] < row["mean"] < 100


def test_the_title_says_that_bands_over_different_settings_are_ranges(make_groups) -> None:
    three, four = make_groups(3, 4)
    mixed = RunGroup("mixed", four.runs, mixed=True)
    assert curves([mixed]).to_dict()["title"] == "mean of 4 runs of different settings; band: range of the runs"
    assert curves([three, mixed]).to_dict()["title"] == (
        "mean of 3 to 4 runs of different settings; band: 95% confidence interval, "
        "or range if fewer than 3 or if settings differ"
    )


def test_the_metric_of_a_chart_is_shown_in_its_declared_unit(make_groups) -> None:
    spec = curves(make_groups(1), y="bytes_up").to_dict()
    assert spec["layer"][1]["encoding"]["y"]["title"] == "upload (MB)"
    assert [row["mean"] for row in spec["data"]["values"]] == [3, 3]
