"""Where clients are: the grid of cells, with the clients and the mix of classes in each."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from fedge.report.edge import EdgeRound, find_round
from fedge.report.style import COLOURS, FAINT, INK, STYLE, need
from fedge.runs.data_names import NO_NAMES, DataNames

if TYPE_CHECKING:
    import altair

MOST_STEPS = 200
"""Of the slider: more rounds would make a page that is slow to load."""

_WIDTH = 400  # pixels of a grid, unless its cells would get too small or too large
_PANELS, _PAGE = 3, 660  # at most so many grids side by side, on so many pixels
_SMALLEST, _LARGEST = 48, 110
_SHORT = ".3~s"  # 12, 999, 1.23k: what fits a small cell
_HEAD, _EDGE = 0.3, 0.06  # of a cell: above its bars, and around them
_LETTERS, _MOST_LINES = 64, 3  # of a list of classes in the title; longer ones are told by their ends
_TINTS = ("#ffffff", "#d5d5d5")  # light enough for bars and numbers on them


def grid(rounds: Sequence[EdgeRound], shown: Sequence[int] = (), names: DataNames = NO_NAMES) -> altair.ConcatChart:
    """The grid in each of some rounds, or in the last: the clients of a cell as number and shade, its classes as bars.

    Bars and not colours, since nobody can tell apart as many colours as there are classes.
    """
    alt = need("altair")
    picked = [find_round(rounds, number) for number in shown] or [rounds[-1]]
    scales = _Scales(alt, picked, names, len(picked))
    panels = [_panel(alt, [line], scales) for line in picked]
    chart: altair.ConcatChart = alt.concat(*panels, columns=_PANELS, title=_said(picked, names), config=STYLE)
    return chart


def stepped_grid(
    rounds: Sequence[EdgeRound], start: int | None = None, names: DataNames = NO_NAMES
) -> altair.LayerChart:
    """The grid with a slider over the rounds, of which every few are left out if there are many."""
    alt = need("altair")
    first = rounds.index(find_round(rounds, start))
    step = -(-len(rounds) // MOST_STEPS)
    picked = rounds[first % step :: step]
    bind = alt.binding_range(min=picked[0].round, max=picked[-1].round, step=step, name="round ")
    slider = alt.param(name="shown", value=rounds[first].round, bind=bind)
    panel = _panel(alt, picked, _Scales(alt, picked, names), "datum.round == shown")
    said = _said(picked, names) + ([f"one round in {step} can be seen"] if step > 1 else [])
    chart: altair.LayerChart = panel.properties(title=said, config=STYLE).add_params(slider)
    return chart


class _Scales:
    """What all panels of a chart share, so that they can be compared."""

    def __init__(self, alt: Any, rounds: Sequence[EdgeRound], names: DataNames, num_panels: int = 1) -> None:
        rows, cols = rounds[0].rows, rounds[0].cols
        width = min(_WIDTH, _PAGE // min(num_panels, _PANELS))
        largest = _LARGEST if rounds[0].classes else _SMALLEST  # without bars there is little to see
        side = max(_SMALLEST, min(largest, width // cols))
        self.size = {"width": side * cols, "height": side * rows}
        self.x = alt.Scale(domain=[0, cols], nice=False)
        self.y = alt.Scale(domain=[rows, 0], nice=False)  # the first row is on top
        most = max(max(line.occupancy) for line in rounds)
        self.tint = alt.Scale(domain=[0, most or 1], range=_TINTS)
        self.tallest = _tallest_share(rounds)
        self.classes = names.class_labels(_num_classes(rounds))


def _panel(alt: Any, rounds: Sequence[EdgeRound], scales: _Scales, which: str = "true") -> Any:
    """The cells of the round for which the expression holds."""
    cells = alt.Chart().transform_filter(which)  # without data of its own, so that the layers share what they are given
    heads = alt.Chart(alt.Data(values=[{"round": line.round, "said": _heading(line)} for line in rounds]))
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
        layers.append(_bars(alt, cells, scales))
    data = alt.Data(values=[row for line in rounds for row in _cells(line)])
    return alt.layer(*layers, data=data, **scales.size)


def _bars(alt: Any, cells: Any, scales: _Scales) -> Any:
    """A bar for each class of a cell, first class left, as high as its share of the cell's samples."""
    inside, room = 1 - 2 * _EDGE, 1 - _HEAD - _EDGE
    called = alt.Data(values=[{"label": label, "class": name} for label, name in enumerate(scales.classes)])
    bars = (
        cells.transform_calculate(number="length(datum.samples)", label="sequence(length(datum.samples))")
        .transform_flatten(["samples", "label"])
        .transform_filter("datum.samples > 0")
        .transform_lookup("label", alt.LookupData(called, "label", ["class"]))  # data: no name is in an expression
        .transform_calculate(
            share="datum.samples / datum.total",
            left=f"datum.col + {_EDGE} + {inside} * datum.label / datum.number",
            right=f"datum.left + {inside} / datum.number",
            foot=f"datum.row + 1 - {_EDGE}",
            top=f"datum.foot - {room} * datum.share / {scales.tallest}",
        )
    )
    return bars.mark_rect(color=COLOURS[0], stroke=None).encode(
        alt.X("left:Q", scale=scales.x, axis=None),
        alt.Y("top:Q", scale=scales.y, axis=None),
        alt.X2("right:Q"),
        alt.Y2("foot:Q"),
        tooltip=[
            alt.Tooltip("cell:Q"),
            alt.Tooltip("class:N"),
            alt.Tooltip("samples:Q", format=",d"),
            alt.Tooltip("share:Q", format=".1%"),
        ],
    )


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


def _said(rounds: Sequence[EdgeRound], names: DataNames) -> list[str]:
    """What is seen; the shares are told by the largest, as bars have no axis."""
    said = ["number and shade: clients in the cell"]
    if num_classes := _num_classes(rounds):
        labels = names.class_labels(num_classes)
        listed = wrap(f"bars: its training samples by class (from left to right: {', '.join(labels)});", _LETTERS)
        if labels != list(names.classes) or len(listed) > _MOST_LINES:
            listed = [f"bars: its training samples by class, {labels[0]} to {labels[-1]} from left to right;"]
        said += [*listed, f"the highest is {_tallest_share(rounds):.0%} of its cell"]
    return said
