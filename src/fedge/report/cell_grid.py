"""The grid of cells: the number of clients in each, and the distribution of their classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedge.report.chart_options import PANEL_GAP, PLAIN, ChartOptions, balanced_columns
from fedge.report.edge_records import EdgeRound, find_round
from fedge.report.style import COLOURS, FAINT, INK, STYLE, inline, need
from fedge.runs.data_names import NO_NAMES, DataNames

if TYPE_CHECKING:
    import altair

MOST_STEPS = 200
"""Maximum number of slider positions: with more rounds, the page would load slowly."""

_COLUMNS = {"single": 2, "double": 3}
"""Number of grids side by side."""
_SMALLEST, _LARGEST = 48, 110  # pixels of a cell
_SHORT = ".3~s"  # 12, 999, 1.23k: short enough for a small cell
_HEAD, _EDGE, _FOOT = 0.3, 0.06, 0.13  # parts of a cell: above its bars, around them, and below them with labels
_LABEL = 8  # font size of class labels in pixels: 6 points
_LETTER, _SPACE = 0.58, 0.3  # width of a letter and of the space between labels, relative to the font size
_DROP = 2  # pixels from a bar to its label
_MOST_LETTERS = 120  # longest list of classes in the title; a longer one is shown by its first and last class
_TINTS = ("#ffffff", "#d5d5d5")  # light enough for bars and numbers on them


def grid(
    rounds: Sequence[EdgeRound],
    shown: Sequence[int] = (),
    names: DataNames = NO_NAMES,
    options: ChartOptions = PLAIN,
) -> altair.ConcatChart:
    """Return the grid in some rounds, by default the last: clients per cell as number and shade, classes as bars.

    Classes are bars and not colours, because data sets have more classes than colours that readers can distinguish.
    """
    alt = need("altair")
    picked = [find_round(rounds, number) for number in shown] or [rounds[-1]]
    columns = balanced_columns(len(picked), _COLUMNS[options.width])
    scales = _Scales(alt, picked, names, (options.canvas - 10 - (columns - 1) * PANEL_GAP) // columns)
    panels = [_panel(alt, [line], scales) for line in picked]
    caption = options.caption(*_notes(picked, names, scales))
    chart: altair.ConcatChart = alt.concat(*panels, columns=columns, title=caption, config=STYLE)
    return chart


def stepped_grid(
    rounds: Sequence[EdgeRound],
    start: int | None = None,
    names: DataNames = NO_NAMES,
    options: ChartOptions = PLAIN,
) -> altair.LayerChart:
    """Return the grid with a slider over the rounds; of many rounds, only every k-th is kept."""
    alt = need("altair")
    first = rounds.index(find_round(rounds, start))
    step = -(-len(rounds) // MOST_STEPS)
    picked = rounds[first % step :: step]
    bind = alt.binding_range(min=picked[0].round, max=picked[-1].round, step=step, name="round ")
    slider = alt.param(name="shown", value=rounds[first].round, bind=bind)
    scales = _Scales(alt, picked, names, options.canvas - 10)
    panel = _panel(alt, picked, scales, "datum.round == shown")
    caption = options.caption(*_notes(picked, names, scales), f"one round in {step} is shown" if step > 1 else "")
    chart: altair.LayerChart = panel.properties(title=caption, config=STYLE).add_params(slider)
    return chart


class _Scales:
    """The scales that all panels of a chart share, so that panels are comparable."""

    def __init__(self, alt: Any, rounds: Sequence[EdgeRound], names: DataNames, width: int) -> None:
        rows, cols = rounds[0].rows, rounds[0].cols
        largest = _LARGEST if rounds[0].classes else _SMALLEST  # without bars, small cells are enough
        side = max(_SMALLEST, min(largest, width // cols))
        self.size = {"width": side * cols, "height": side * rows}
        self.x = alt.Scale(domain=[0, cols], nice=False)
        self.y = alt.Scale(domain=[rows, 0], nice=False)  # the first row is on top
        most = max(max(line.occupancy) for line in rounds)
        self.tint = alt.Scale(domain=[0, most or 1], range=_TINTS)
        self.tallest = _tallest_share(rounds)
        self.classes = names.class_labels(_num_classes(rounds))
        room = side * (1 - 2 * _EDGE) / max(1, len(self.classes)) if side * _FOOT > _LABEL + _DROP else 0
        numbers = [*map(str, range(len(self.classes)))]
        fitting = (
            texts
            for texts in (self.classes, numbers)
            if (max(map(len, texts), default=99) * _LETTER + _SPACE) * _LABEL <= room
        )
        self.bar_labels = next(fitting, None)
        """The text below each bar: the name of the class, its number if names are too long, or None if neither fits."""


def _panel(alt: Any, rounds: Sequence[EdgeRound], scales: _Scales, which: str = "true") -> Any:
    """The cells of the round for which the Vega expression is true."""
    cells = alt.Chart().transform_filter(which)  # without its own data: all layers share the chart's
    heads = alt.Chart(inline(alt, [{"round": line.round, "said": _heading(line)} for line in rounds]))
    x, y = (alt.X("col:Q", scale=scales.x, axis=None), alt.Y("row:Q", scale=scales.y, axis=None))
    corner = {"fontSize": 10, "baseline": "top", "dy": 4}
    layers = [
        cells.transform_calculate(right="datum.col + 1", below="datum.row + 1")
        .mark_rect(stroke=FAINT, strokeWidth=0.5)
        .encode(x, y, alt.X2("right:Q"), alt.Y2("below:Q"), alt.Color("clients:Q", scale=scales.tint, legend=None)),
        cells.mark_text(align="left", dx=4, color=INK, **corner).encode(x, y, alt.Text("clients:Q", format=_SHORT)),
        heads.transform_filter(which)
        .mark_text(align="left", baseline="bottom", fontSize=10, color=INK)
        .encode(x=alt.value(0), y=alt.value(-5), text=alt.Text("said:N")),
    ]
    if rounds[0].rows * rounds[0].cols > 1:
        numbers = cells.transform_calculate(right="datum.col + 1", number="'#' + datum.cell")
        text = numbers.mark_text(align="right", dx=-4, color=FAINT, **corner | {"fontSize": 8})
        layers.append(text.encode(alt.X("right:Q", scale=scales.x, axis=None), y, alt.Text("number:N")))
    if rounds[0].classes is not None:
        layers += _bars(alt, cells, scales)
    data = inline(alt, [row for line in rounds for row in _cells(line)])
    return alt.layer(*layers, data=data, **scales.size)


def _bars(alt: Any, cells: Any, scales: _Scales) -> list[Any]:
    """Return a bar for each class of a cell, as high as its share of the cell's samples, with the class below it."""
    foot = _FOOT if scales.bar_labels else _EDGE
    inside, room = 1 - 2 * _EDGE, 1 - _HEAD - foot
    texts = scales.bar_labels or [""] * len(scales.classes)
    named = zip(scales.classes, texts, strict=True)
    called = [{"label": label, "class": name, "text": text} for label, (name, text) in enumerate(named)]
    each = (
        cells.transform_calculate(number="length(datum.samples)", label="sequence(length(datum.samples))")
        .transform_flatten(["samples", "label"])
        # class names are data and never part of an expression
        .transform_lookup("label", alt.LookupData(inline(alt, called), "label", ["class", "text"]))
        .transform_calculate(
            share="datum.samples / max(1, datum.total)",
            left=f"datum.col + {_EDGE} + {inside} * datum.label / datum.number",
            right=f"datum.left + {inside} / datum.number",
            middle="(datum.left + datum.right) / 2",
            foot=f"datum.row + 1 - {foot}",
            top=f"datum.foot - {room} * datum.share / {scales.tallest}",
        )
    )
    bars = each.transform_filter("datum.samples > 0").mark_rect(color=COLOURS[0], stroke=None)
    y = {"scale": scales.y, "axis": None}
    layers = [
        bars.encode(
            alt.X("left:Q", scale=scales.x, axis=None),
            alt.Y("top:Q", **y),
            alt.X2("right:Q"),
            alt.Y2("foot:Q"),
            tooltip=[
                alt.Tooltip("cell:Q"),
                alt.Tooltip("class:N"),
                alt.Tooltip("samples:Q", format=",d"),
                alt.Tooltip("share:Q", format=".1%"),
            ],
        )
    ]
    if scales.bar_labels:
        text = each.mark_text(fontSize=_LABEL, baseline="top", dy=_DROP, color=FAINT)
        x = alt.X("middle:Q", scale=scales.x, axis=None)
        layers.append(text.encode(x, alt.Y("foot:Q", **y), alt.Text("text:N")))
    return layers


def _cells(line: EdgeRound) -> list[dict[str, Any]]:
    samples = line.classes or [[]] * len(line.occupancy)
    return [
        {
            "round": line.round,
            "cell": cell,
            "row": cell // line.cols,
            "col": cell % line.cols,
            "clients": clients,
            "samples": counts,
            "total": sum(counts),
        }
        for cell, (clients, counts) in enumerate(zip(line.occupancy, samples, strict=True))
    ]


def _tallest_share(rounds: Sequence[EdgeRound]) -> float:
    held = [counts for line in rounds for counts in line.classes or () if any(counts)]
    return max((max(counts) / sum(counts) for counts in held), default=1.0)


def _heading(line: EdgeRound) -> str:
    return f"round {line.round:,}" + (", then cells merged" if line.merged and len(line.occupancy) > 1 else "")


def _num_classes(rounds: Sequence[EdgeRound]) -> int:
    return len(rounds[0].classes[0]) if rounds[0].classes else 0


def _notes(rounds: Sequence[EdgeRound], names: DataNames, scales: _Scales) -> list[str]:
    """Return notes on what the chart shows, including the largest share, because bars have no axis."""
    notes = ["number and shade: clients in the cell"]
    if labels := scales.classes:
        listed = ", ".join(labels)
        if scales.bar_labels and scales.bar_labels != labels:
            listed = ", ".join(f"{number} {name}" for number, name in enumerate(labels))
        if labels != list(names.classes) or len(listed) > _MOST_LETTERS:
            listed = f"{labels[0]} to {labels[-1]}"
        notes.append(
            f"bars: its training samples by class ({listed}), the highest is {_tallest_share(rounds):.0%} of its cell"
        )
    return notes
