"""The grid of cells."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from edge_rounds import edge_line
from fedge.report.cell_grid import MOST_STEPS, grid, stepped_grid
from fedge.report.edge_records import EdgeRound
from fedge.runs.data_names import DataNames

vl_convert = pytest.importorskip("vl_convert", reason="needs the extra `view`")


def made(count: int = 1, rows: int = 1, cols: int = 2, **fields: Any) -> list[EdgeRound]:
    lines = [edge_line(number, rows, cols, **fields) for number in range(1, count + 1)]
    return msgspec.convert(lines, list[EdgeRound])


def drawn(chart: Any, mark: str) -> list[dict[str, float]]:
    """Return the data of each kind of mark, from the descriptions for screen readers in the SVG."""
    picture = vl_convert.vegalite_to_svg(chart.to_dict())
    labels = re.findall(rf'aria-label="([^"]*)" role="graphics-symbol" aria-roledescription="{mark}"', picture)
    return [dict(part.split(": ") for part in label.split("; ")) for label in labels]


def caption(spec: dict[str, Any]) -> str:
    return " ".join(spec["title"]["text"])


def text_of(chart: Any) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]+)</text>", vl_convert.vegalite_to_svg(chart.to_dict()))


def test_clients_are_numbers_in_row_major_order() -> None:
    chart = grid(made(rows=2, cols=3, occupancy=[4, 0, 1200, 7, 8, 9]))
    cells = chart.to_dict()["data"]["values"]
    assert [(cell["row"], cell["col"], cell["clients"]) for cell in cells] == [
        (0, 0, 4),
        (0, 1, 0),
        (0, 2, 1200),
        (1, 0, 7),
        (1, 1, 8),
        (1, 2, 9),
    ]
    said = text_of(chart)
    assert "1.2k" in said
    assert "#5" in said
    assert "round 1" in said
    assert caption(chart.to_dict()) == "number and shade: clients in the cell"  # without classes there are no bars


def test_bars_show_shares_of_a_cell_on_a_common_scale() -> None:
    # The first cell has 1/4 and 3/4, the second 2/4 and 2/4: 3/4 is the highest, and fills 0.57 of a cell.
    chart = grid(made(occupancy=[1, 1], classes=[[1, 3], [2, 2]]))
    bars = [bar for bar in drawn(chart, "rect mark") if "top" in bar]
    assert [float(bar["left"]) for bar in bars] == pytest.approx([0.06, 0.5, 1.06, 1.5])
    assert [float(bar["right"]) for bar in bars] == pytest.approx([0.5, 0.94, 1.5, 1.94])
    heights = [float(bar["foot"]) - float(bar["top"]) for bar in bars]
    assert heights == pytest.approx([0.57 / 3, 0.57, 0.57 * 2 / 3, 0.57 * 2 / 3])
    assert caption(chart.to_dict()) == (
        "number and shade: clients in the cell; bars: its training samples by class (0 to 1), "
        "the highest is 75% of its cell"
    )


def test_an_empty_cell_has_no_bars() -> None:
    chart = grid(made(occupancy=[0, 0], classes=[[0, 0], [0, 0]]))
    assert [bar for bar in drawn(chart, "rect mark") if "top" in bar] == []


def test_rounds_side_by_side_share_a_scale() -> None:
    rounds = [*made(2, occupancy=[1, 5]), *msgspec.convert([edge_line(3, 1, 2, merged=True)], list[EdgeRound])]
    chart = grid(rounds, [2, 3])
    panels = chart.to_dict()["concat"]
    assert [panel["layer"][0]["encoding"]["color"]["scale"]["domain"] for panel in panels] == [[0, 5], [0, 5]]
    assert {"round 2", "round 3, then cells merged"} <= set(text_of(chart))


def test_a_single_cell_has_no_number_and_no_merge_note() -> None:
    said = text_of(grid(made(cols=1, occupancy=[3], merged=True)))
    assert said == ["3", "round 1", "number and shade: clients in the cell"]


def test_the_slider_starts_where_asked_and_shows_one_round() -> None:
    rounds = made(5, occupancy=[1, 2])
    (slider,) = stepped_grid(rounds, 2).to_dict()["params"]
    assert (slider["value"], slider["bind"]["min"], slider["bind"]["max"], slider["bind"]["step"]) == (2, 1, 5, 1)
    said = text_of(stepped_grid(rounds, 2))
    assert "round 2" in said
    assert "round 5" not in said
    assert "round 5" in text_of(stepped_grid(rounds))


def test_many_rounds_are_reduced_to_every_kth_and_the_requested_one() -> None:
    chart = stepped_grid(made(2 * MOST_STEPS + 1), 2).to_dict()
    (slider,) = chart["params"]
    # One in three, and the second is among them: 2, 5, 8, ..., 401.
    assert (slider["bind"]["min"], slider["bind"]["max"], slider["bind"]["step"]) == (2, 401, 3)
    assert caption(chart).endswith("one round in 3 is shown")


def test_classes_are_shown_by_their_names() -> None:
    rounds = made(occupancy=[1, 1], classes=[[1, 3], [2, 2]])
    names = DataNames(("cat", "<b>dog"))
    for chart in (grid(rounds, names=names), stepped_grid(rounds, None, names)):
        said = caption(chart.to_dict())
        assert "bars: its training samples by class (cat, <b>dog), the highest is 75%" in said
        bars = [bar for bar in drawn(chart, "rect mark") if "top" in bar]
        assert [bar["class"] for bar in bars] == ["cat", "&lt;b&gt;dog"] * 2


def test_classes_without_names_are_shown_by_their_numbers() -> None:
    """Also if the number of names differs from that of the classes, as in foreign files."""
    rounds = made(occupancy=[1, 1], classes=[[1, 3], [2, 2]])
    for names in (DataNames(), DataNames(("cat",)), DataNames(("cat", "dog", "bird"))):
        chart = grid(rounds, names=names)
        assert [bar["class"] for bar in drawn(chart, "rect mark") if "top" in bar] == ["0", "1"] * 2
        assert "bars: its training samples by class (0 to 1)," in caption(chart.to_dict())


def test_a_title_of_many_classes_names_the_first_and_the_last() -> None:
    names = DataNames(tuple(f"class of things {i}" for i in range(50)))
    title = caption(grid(made(occupancy=[1, 1], classes=[[1] * 50] * 2), names=names).to_dict())
    assert "bars: its training samples by class (class of things 0 to class of things 49)," in title


@pytest.mark.parametrize(
    ("classes", "below", "listed"),
    [
        (("cat", "dog"), ["cat", "dog"], "(cat, dog)"),
        (
            ("a very long name", "dog", "a bird", "fish"),
            ["0", "1", "2", "3"],
            "(0 a very long name, 1 dog, 2 a bird, 3 fish)",
        ),
        (tuple(map(str, range(50))), [], "(0 to 49)"),
    ],
)
def test_classes_are_below_their_bars_where_they_fit(classes, below, listed) -> None:
    chart = grid(made(cols=1, occupancy=[1], classes=[[1] * len(classes)]), names=DataNames(classes))
    assert [text for text in text_of(chart)[2:] if text in below] == below
    assert listed in caption(chart.to_dict())


def test_classes_are_written_below_bars_only_at_a_size_that_can_be_read() -> None:
    lines = made(2, rows=3, cols=3, occupancy=[1] * 9, classes=[[1] * 10] * 9)
    labels = {str(label) for label in range(10)}
    wide, narrow = text_of(grid(lines, [1])), text_of(grid(lines, [1, 2]))
    assert labels <= set(wide)
    assert not labels - {"1"} & set(narrow)  # 1 is the number of clients
