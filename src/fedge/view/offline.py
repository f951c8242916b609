"""Pages as files that work offline: with inline SVG charts and style sheet, without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from starlette.datastructures import QueryParams

from fedge.core.errors import FedgeError
from fedge.report.style import embeddable
from fedge.view.chart_answers import answer_chart
from fedge.view.page_charts import as_svg
from fedge.view.workspace import Workspace

_STATIC = Path(__file__).parent / "static"


def style_sheet() -> Markup:
    """Return the style sheets of the pages as one text."""
    return Markup("\n".join((_STATIC / name).read_text() for name in ("page.css", "charts.css", "offline.css")))


class OfflineCharts:
    """Draws the charts of one page as SVG."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._count = 0

    def draw(self, kind: str, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
        """Return `svg`, `command` and `notes` of a chart, or the `problem` that prevents it."""
        self._count += 1
        try:
            answer = answer_chart(self._workspace, kind, QueryParams(list(pairs)))
            spec = answer["spec"]
            spec["config"] = spec.get("config", {}) | {"background": "transparent"}
            drawn = as_svg(spec).decode()
        except FedgeError as error:
            return {"problem": str(error)}
        svg = embeddable(drawn, f"c{self._count}")
        count = [f"{answer['n']} of {answer['of']} selected runs"] if answer["of"] > 1 else []
        notes = [*count, *answer["notes"]]
        return {"problem": None, "svg": Markup(svg), "command": answer["command"], "notes": notes}
