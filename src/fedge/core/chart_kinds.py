"""The choices of a chart, which the command line names without importing what draws it."""

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
]
ChartWidth = Literal["single", "double"]
LogAxes = Literal["x", "y", "both"]
LegendPlace = Literal["bottom", "right", "inside", "none"]

MAX_CURVES = 8
"""More lines than this cannot be told apart in one panel."""
