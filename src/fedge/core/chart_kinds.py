"""The kinds of charts, which the command line names without importing what draws them."""

from typing import Literal

ChartKind = Literal["curves", "bars", "pareto", "heatmap", "users", "grid", "timeline", "latency"]
