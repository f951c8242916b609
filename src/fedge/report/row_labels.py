"""Row labels at the left of bars and differences, wrapped to several lines where necessary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedge.report.chart_options import ChartOptions
from fedge.report.text_width import LINE, text_width, wrap_to_width

_LABEL_LINE = 12  # height in pixels of each further line of a label
_SHARE = 0.52  # largest share of the width for labels of one line
_EQUALS = "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"


class RowLabels:
    """Labels wrapped to about half the width of a chart: `texts` are the values of the axis."""

    def __init__(self, labels: Sequence[str], options: ChartOptions) -> None:
        kept = (label.replace(" = ", _EQUALS) for label in labels)
        lines = [wrap_to_width(label, options.canvas * _SHARE) for label in kept]
        self.texts = [LINE.join(own).replace(_EQUALS, " = ") for own in lines]
        self.width = max(text_width(line) for own in lines for line in own)
        self._most = max(map(len, lines))

    def height(self, row: int) -> int:
        """Return the height of all rows in pixels, if a row with a single line has `row` pixels."""
        return (row + _LABEL_LINE * (self._most - 1)) * len(self.texts)

    def encoding(self, alt: Any) -> Any:
        """Return the y axis of the field `label`, in the order of the rows, with labels centred on them."""
        tests = [
            {"test": f"length(split(datum.value, '{LINE}')) == {lines}", "value": -(lines - 1) * _LABEL_LINE / 2}
            for lines in range(2, self._most + 1)
        ]
        axis = alt.Axis(
            domain=False,
            ticks=False,
            labelLimit=0,
            labelPadding=6,
            labelExpr=f"split(datum.label, '{LINE}')",
            labelOffset={"condition": tests, "value": 0} if tests else 0,
        )
        return alt.Y("label:N", title=None, sort=None, axis=axis)
