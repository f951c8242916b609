"""The pages as HTML, served and as files. The server renders all HTML, so that text is escaped in one place."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import ChainableUndefined, Environment, FileSystemLoader
from starlette.background import BackgroundTask
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from fedge.core.errors import ConfigError
from fedge.core.fields import describe
from fedge.core.printable import printable, printable_command
from fedge.report.labels import DisplayNames
from fedge.runs.files import encode_pretty
from fedge.view.chart_answers import show_commands
from fedge.view.comparison import ComparisonOptions, compare_runs
from fedge.view.guard import AccessRules
from fedge.view.offline import OfflineCharts, style_sheet
from fedge.view.run_details import describe_run
from fedge.view.run_log import read_log
from fedge.view.run_rows import ShownRows
from fedge.view.selection import MOST_ROWS, RunSelection
from fedge.view.server_details import describe_server
from fedge.view.workspace import Workspace

_PART, _ORDER, _CHANGED = "fedge-part", "fedge-order", "fedge-changed"
_SPARK_SIZE = (80, 20)


class Pages:
    """The handlers of the pages and of their offline copies."""

    def __init__(self, workspace: Workspace, rules: AccessRules, version: str) -> None:
        self._workspace, self._rules = workspace, rules
        self._templates = Environment(
            loader=FileSystemLoader(Path(__file__).parent / "templates"),
            autoescape=True,
            undefined=ChainableUndefined,
            finalize=_printable,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        root = rules.root_path
        self._templates.globals |= {
            "root": root,
            "static": f"{root}/static/{version}",
            "bundle": f"{root}/static/{workspace.bundle.file_name}",
            "csrf": rules.csrf,
            "folder": str(workspace.root),
            "spark_points": spark_points,
            "address": lambda path, pairs=(): f"{root}{path}" + (f"?{urlencode(list(pairs))}" if pairs else ""),
            "pretty": lambda value: encode_pretty(value).decode(),
            "setting_title": DisplayNames().setting,
            "written": lambda name, value: describe(name).write(value),
        }
        for name in ("page.html", "parts/macros.html", "runs.html"):
            self._templates.get_template(name)  # compiled now, so that the first page does not wait for it

    def routes(self) -> list[Route]:
        handlers: dict[str, Callable[[Request], Response]] = {
            "/": self.runs,
            "/compare": self.compare,
            "/run/{key}": self.run,
            "/server/{key}": self.server,
            "/export/runs.html": self.runs,
            "/export/compare.html": self.compare,
            "/export/run/{key}.html": self.run,
            "/export/server/{key}.html": self.server,
        }
        return [Route(path, self._noting_news(handler)) for path, handler in handlers.items()]

    def _noting_news(self, handler: Callable[[Request], Response]) -> Callable[[Request], Response]:
        """Record the last news before reading anything, so that a page can request what it lacks."""

        def answer(request: Request) -> Response:
            request.state.news = self._workspace.news.place
            return handler(request)

        return answer

    def runs(self, request: Request) -> Response:
        self._workspace.refresh()
        query = request.query_params
        if _offline(request):  # a file has neither a second page of rows nor curves that load later
            for _ in self._workspace.histories.refresh(self._workspace.index.entries.values()):
                pass
            query = QueryParams(
                [pair for pair in query.multi_items() if pair[0] != "limit"] + [("limit", str(MOST_ROWS))]
            )
        wanted = RunSelection.parse(query)
        table = self._workspace.table
        shown = _shown_rows(request)
        page = table.page(wanted, shown)
        columns = [column["name"] for column in page["columns"]]
        values = {
            "page": page,
            "wanted": wanted,
            "choices": table.choices(),
            "command": printable_command(["fedge", "list", self._workspace.root, *wanted.list_options(columns)]),
        }
        if shown is None or shown.order != page["order"]:
            return self._render(request, "runs.html", values)
        answer = self._render(request, "runs.html", values, "changed")
        answer.headers[_ORDER] = shown.order
        return answer

    def compare(self, request: Request) -> Response:
        wanted = RunSelection.parse(request.query_params)
        options = ComparisonOptions.parse(request.query_params)
        loaded, left_out = self._workspace.compared(wanted)
        found = compare_runs(loaded, left_out, options)
        commands = show_commands(self._workspace, loaded, found)
        return self._render(request, "compare.html", {"found": found, "wanted": wanted, "commands": commands})

    def run(self, request: Request) -> Response:
        entry = self._workspace.entry(request.path_params["key"])
        run = self._workspace.loaded.get(entry)
        found = describe_run(entry, run, self._workspace.root)
        note = self._workspace.notes.read().get(entry.note_key)
        log = read_log(self._workspace.index.folder(entry), found)
        return self._render(request, "run.html", {"run": found, "note": note, "log": log})

    def server(self, request: Request) -> Response:
        entry = self._workspace.entry(request.path_params["key"])
        if not entry.networked:
            raise ConfigError(f"{entry.path} was not run by a server; open its page under /run/{entry.key}")
        found = describe_server(self._workspace.folder(entry), time.time())
        return self._render(request, "server.html", {"run": entry, "server": found})

    def error(self, status: int, told: str) -> Response:
        """Return a page that states what failed and what to do."""
        return HTMLResponse(self._templates.get_template("error.html").render(told=told, status=status), status)

    def _render(self, request: Request, name: str, values: Mapping[str, Any], part: str | None = None) -> Response:
        """Render a page, one part of it if given or requested, or the page as a file."""
        template = self._templates.get_template(name)
        values = {"query": _Query(request.query_params.multi_items()), **values}
        if _offline(request):
            made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
            charts = OfflineCharts(self._workspace)
            text = template.render(values, offline=True, style=style_sheet(), inline_chart=charts.draw, made=made)
            file = f"fedge-{name}"
            return HTMLResponse(text, headers={"Content-Disposition": f'attachment; filename="{file}"'})
        part = part or request.headers.get(_PART)
        if part is None:
            sent = BackgroundTask(self._workspace.note_shown)
            return HTMLResponse(template.render(values, news=request.state.news), background=sent)
        if f"part_{part}" not in template.blocks:
            raise ConfigError(f"expected a part of this page, got {part!r}; reload the page")
        return HTMLResponse("".join(template.blocks[f"part_{part}"](template.new_context(values))))


def _shown_rows(request: Request) -> ShownRows | None:
    """Return what a page that requests changed rows already shows."""
    order = request.headers.get(_ORDER)
    return ShownRows(order, frozenset(request.headers.get(_CHANGED, "").split())) if order else None


def _offline(request: Request) -> bool:
    return request.url.path.endswith(".html")


class _Query:
    """The parameters of a URL, from which templates make other URLs."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self.pairs = [pair for pair in pairs if pair[1]]

    def get(self, name: str, otherwise: str = "") -> str:
        return next((value for key, value in self.pairs if key == name), otherwise)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.pairs if key == name]

    def but(self, *without: str, **changed: Any) -> list[tuple[str, str]]:
        """Return the parameters without some, and with others set; None drops one."""
        kept = [pair for pair in self.pairs if pair[0] not in without and pair[0] not in changed]
        return kept + [(name, str(value)) for name, value in changed.items() if value is not None]


def spark_points(values: Sequence[float] | None) -> str:
    """Return the points of a polyline for a sparkline; empty for fewer than two values."""
    if values is None or len(values) < 2:
        return ""
    width, height = _SPARK_SIZE
    low, high = min(values), max(values)
    step, size = (width - 2) / (len(values) - 1), (high - low) or 1.0
    return " ".join(
        f"{1 + i * step:.1f},{height - 2 - (height - 4) * (v - low) / size:.1f}" for i, v in enumerate(values)
    )


def _printable(value: Any) -> Any:
    """Escape unsafe characters of plain text; markup from a template stays unchanged."""
    return printable(value, "\n") if type(value) is str else "–" if value is None else value
