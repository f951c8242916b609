"""The choices of a chart, in a module that the command line can import without the charting code."""

from typing import Literal

ChartKind = Literal[
    "curves",
    "bars",
    "pareto",
    "parallel",
    "pairs",
    "importance",
    "heatmap",
    "users",
    "breakdown",
    "grid",
    "timeline",
    "latency",
    "throughput",
]
ChartWidth = Literal["single", "double"]
LogAxes = Literal["x", "y", "both"]
LegendPlace = Literal["bottom", "right", "inside", "none"]

MAX_CURVES = 8
"""The most lines that readers can distinguish in one panel."""
