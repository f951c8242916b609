"""The kinds of charts, in a module that the command line can import without the charting code."""

from typing import Literal

ChartKind = Literal["curves", "bars", "pareto", "heatmap", "users", "grid", "timeline", "latency"]
