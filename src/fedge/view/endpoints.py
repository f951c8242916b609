"""The JSON endpoints, the live stream and the exports of charts. `docs/view.md` documents their fields."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from fedge.core.errors import ConfigError
from fedge.runs import Cursor, follow
from fedge.runs.files import encode
from fedge.view.chart_answers import answer_chart
from fedge.view.comparison import TABLES, ComparisonOptions, compare_runs
from fedge.view.notes import read_note
from fedge.view.page_charts import as_csv, as_png, as_svg, write_csv
from fedge.view.run_details import describe_run
from fedge.view.selection import RunSelection
from fedge.view.server_details import describe_server
from fedge.view.workspace import Workspace

_MOST_BODY_BYTES = 64 << 10
_TYPES = {"svg": "image/svg+xml", "png": "image/png", "csv": "text/csv; charset=utf-8", "json": "application/json"}


class JsonAnswer(Response):
    """JSON as msgspec writes it: NaN and infinity are null."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return encode(content)


class Endpoints:
    """The handlers of `/api` and `/export`."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def routes(self) -> list[Route]:
        return [
            Route("/api/runs", self.runs),
            Route("/api/compare", self.compare),
            Route("/api/chart/{kind}", self.chart),
            Route("/api/run/{key}", self.run),
            Route("/api/run/{key}/records", self.records),
            Route("/api/server/{key}", self.server),
            Route("/api/live", self.live),
            Route("/api/news", self.poll),
            Route("/api/notes/{key}", self.note, methods=["POST"]),
            Route("/export/runs.csv", self.runs_csv),
            Route("/export/chart/{file}", self.export_chart),
            Route("/export/table/{file}", self.export_table),
        ]

    def runs(self, request: Request) -> Response:
        self._workspace.refresh()
        table = self._workspace.table
        choices = table.choices()
        page = table.page(RunSelection.parse(request.query_params))
        page["choices"] = {"settings": choices.settings, "same": choices.same, "results": choices.results}
        return JsonAnswer(page)

    def compare(self, request: Request) -> Response:
        loaded, left_out = self._workspace.compared(RunSelection.parse(request.query_params))
        return JsonAnswer(compare_runs(loaded, left_out, ComparisonOptions.parse(request.query_params)))

    def chart(self, request: Request) -> Response:
        return JsonAnswer(answer_chart(self._workspace, request.path_params["kind"], request.query_params))

    def export_chart(self, request: Request) -> Response:
        kind, _, suffix = request.path_params["file"].rpartition(".")
        if suffix not in _TYPES:
            raise ConfigError(f"expected a chart as {', '.join(_TYPES)}, got {suffix!r}; choose one of these")
        spec = answer_chart(self._workspace, kind, request.query_params)["spec"]
        data = {"svg": as_svg, "png": as_png, "csv": as_csv, "json": encode}[suffix](spec)
        return _download(data, f"{kind}.{suffix}", _TYPES[suffix])

    def export_table(self, request: Request) -> Response:
        """Return a table of the comparison."""
        name, _, suffix = request.path_params["file"].rpartition(".")
        if suffix != "csv" or name not in TABLES:
            raise ConfigError(f"expected a table, one of {', '.join(TABLES)}, as csv, got {name}.{suffix}")
        loaded, left_out = self._workspace.compared(RunSelection.parse(request.query_params))
        found = compare_runs(loaded, left_out, ComparisonOptions.parse(request.query_params))
        return _download(write_csv(TABLES[name](found) if found["groups"] else []), f"{name}.csv", _TYPES["csv"])

    def run(self, request: Request) -> Response:
        entry = self._workspace.entry(request.path_params["key"])
        return JsonAnswer(describe_run(entry, self._workspace.loaded.get(entry), self._workspace.root))

    def records(self, request: Request) -> Response:
        """Return the records since a cursor; all of them if it is no longer valid."""
        entry = self._workspace.entry(request.path_params["key"])
        query = request.query_params
        cursor = None
        if query.get("offset"):
            numbers = [query.get(name, "") for name in ("generation", "offset")]
            if not all(text.isdecimal() and len(text) < 19 for text in numbers):
                raise ConfigError(f"expected generation and offset as whole numbers, got {', '.join(numbers)}")
            cursor = Cursor(query.get("run") or None, *map(int, numbers))
        found = follow(self._workspace.folder(entry), cursor)
        return JsonAnswer({"records": found.records, "cursor": found.cursor._asdict(), "restarted": found.restarted})

    def server(self, request: Request) -> Response:
        entry = self._workspace.entry(request.path_params["key"])
        return JsonAnswer({"key": entry.key, **describe_server(self._workspace.folder(entry), time.time())})

    async def live(self, request: Request) -> Response:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # a proxy must not buffer events
        if request.method == "HEAD":  # its stream would have no reader and no end
            return Response(media_type="text/event-stream", headers=headers)
        return StreamingResponse(self._workspace.news.stream(), media_type="text/event-stream", headers=headers)

    async def poll(self, request: Request) -> Response:
        """Return the events after a number, for browsers and proxies without streams."""
        news = self._workspace.news
        self._workspace.watcher.polled()
        text = request.query_params.get("since", "")
        items = news.since(int(text)) if text.isdecimal() and len(text) < 16 else None
        events = b",".join(b'{"event":"%s","data":%s}' % (item.kind.encode(), item.data) for item in items or ())
        reset = b"true" if items is None else b"false"
        body = b'{"session":"%s","seq":%d,"reset":%s,"events":[%s]}'
        data = body % (news.session.encode(), news.seq, reset, events)
        return Response(data, media_type="application/json")

    async def note(self, request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _MOST_BODY_BYTES:
                raise ConfigError(f"expected a body of at most {_MOST_BODY_BYTES} bytes, got more; shorten the note")
        entry = await asyncio.to_thread(self._workspace.entry, request.path_params["key"])
        note = read_note(body)
        await asyncio.to_thread(self._workspace.notes.write, entry.note_key, note)
        await self._workspace.news.publish("note", {"key": entry.key, "tags": note.tags, "note": note.note})
        return JsonAnswer({"key": entry.key, "tags": note.tags, "note": note.note})

    def runs_csv(self, request: Request) -> Response:
        """Return all rows of the table, not only one page."""
        self._workspace.refresh()
        rows = self._workspace.table.page(RunSelection.parse(request.query_params).whole())["rows"]
        return _download(write_csv(list(map(_flat, rows))), "runs.csv", _TYPES["csv"])


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the table with its columns on one level."""
    found = {name: value for name, value in row.items() if name not in ("values", "spark", "spark_of")}
    for name, cell in row["values"].items():
        if "n" in cell:
            found |= {name: cell["mean"], f"{name} low": cell.get("low"), f"{name} high": cell.get("high")}
            found |= {f"{name} n": cell["n"], f"{name} of": cell["of"]}
        else:
            found[name] = cell["value"]
    return found


def _download(data: bytes, name: str, kind: str) -> Response:
    return Response(data, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})
