"""Charts of the page: the specifications of `fedge.report`, as JSON, SVG, PNG and CSV, and the command for each."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec

from fedge.core.chart_kinds import ChartKind, LogAxes
from fedge.core.errors import ConfigError, nearest
from fedge.core.fields import describe, fitting
from fedge.core.printable import printable_command
from fedge.report.chart_options import ChartOptions
from fedge.report.chart_request import TAKES, ChartRequest, draw
from fedge.report.style import PNG_SCALE, drawing, make_printable, need
from fedge.runs import Run

KINDS: tuple[str, ...] = get_args(ChartKind)
_DATA = "shown"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class ChartQuery(msgspec.Struct, frozen=True):
    """The content of a chart, read from the parameters of a URL."""

    kind: str
    x: str | None = None
    y: str | None = None
    by: Sequence[str] = ()
    rounds: Sequence[int] = ()
    baseline: str | None = None
    seeds: bool = False
    top: int | None = None
    log: LogAxes | None = None

    @staticmethod
    def parse(kind: str, query: Any) -> ChartQuery:
        """Read query parameters; those that this kind of chart does not accept are ignored. Raises ConfigError."""
        if kind not in KINDS:
            raise ConfigError(f"kind: expected one of {', '.join(KINDS)}, got {kind!r}{nearest(kind, KINDS)}")
        at = [text for text in query.getlist("at") if text]
        if not all(text.isdecimal() and len(text) < 16 for text in at):
            raise ConfigError(f"at: expected rounds as whole numbers, got {', '.join(at)}")
        takes = TAKES[kind]  # type: ignore[index]
        return ChartQuery(
            kind,
            query.get("x") or None if "x" in takes else None,
            query.get("y") or None if "y" in takes else None,
            [name for name in query.getlist("by") if name] if "by" in takes else (),
            [int(text) for text in at] if "round" in takes else (),
            query.get("baseline") or None if "baseline" in takes else None,
            "seeds" in takes and query.get("seeds") == "1",
            _top(query.get("top")) if "top" in takes else None,
            _log(query.get("log")) if "log" in takes else None,
        )

    @property
    def request(self) -> ChartRequest:
        given = {"seeds": self.seeds, "log": self.log} | ({} if self.top is None else {"top": self.top})
        options = ChartOptions(**given)  # type: ignore[arg-type]
        return ChartRequest(self.kind, self.x, self.y, self.by, self.rounds, False, self.baseline, options)  # type: ignore[arg-type]

    def command(self, paths: Sequence[Path]) -> str:
        """The command that draws the same chart."""
        options = ["--kind", self.kind]
        for name, values in (("--x", [self.x]), ("--y", [self.y]), ("--by", self.by), ("--round", self.rounds)):
            options += [part for value in values if value is not None for part in (name, str(value))]
        options += ["--baseline", self.baseline] if self.baseline else []
        options += ["--seeds"] if self.seeds else []
        options += ["--top", str(self.top)] if self.top is not None else []
        options += ["--log", self.log] if self.log else []
        return printable_command(["fedge", "plot", *paths, *options, "-o", f"{self.kind}.svg"])


def _top(text: str | None) -> int | None:
    if not text:
        return None
    if not text.isdecimal() or not 1 <= int(text[:6]) <= 500:
        raise ConfigError(f"top: expected the number of curves, from 1 to 500, got {text!r}")
    return int(text)


def _log(text: str | None) -> LogAxes | None:
    if not text:
        return None
    if text not in get_args(LogAxes):
        raise ConfigError(f"log: expected x, y or both, got {text!r}")
    return text  # type: ignore[return-value]


def chart_spec(options: ChartQuery, runs: Sequence[Run]) -> dict[str, Any]:
    """Return the Vega-Lite specification. Raises ConfigError if this chart cannot show these runs."""
    if not runs:
        raise ConfigError("a chart needs at least one run, got none; select others")
    options.request.check()
    spec: dict[str, Any] = make_printable(draw(options.request, runs)).to_dict(validate=False)
    if isinstance(values := (spec.get("data") or {}).get("values"), list):  # pages append only to named data
        spec |= {"data": {"name": _DATA}, "datasets": {**spec.get("datasets", {}), _DATA: values}}
    return spec


def append_rule(options: ChartQuery, run: Run, spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return how a page appends new records to a run's curve: the row of a point, and the units of the axes."""
    name = (spec.get("data") or {}).get("name")
    rows = (spec.get("datasets") or {}).get(name)
    if options.kind != "curves" or not rows:
        return None
    x, y = options.x or "round", options.y or "accuracy"
    total = run.rounds[-1]["round"] if x == "round" else sum(record.get(x) or 0 for record in run.rounds)
    most = max((record[y] for record in run.rounds if record.get(y) is not None), default=0.0)
    sizes = [fitting(describe(field, run.own_fields).units, value).size for field, value in ((x, total), (y, most))]
    found = {"data": name, "x": x, "y": y, "x_size": sizes[0], "y_size": sizes[1], "total": total}
    return found | {"row": rows[0] | {"alone": False}, "after": run.rounds[-1]["round"]}


def as_svg(spec: Mapping[str, Any]) -> bytes:
    with drawing():
        text: str = need("vl_convert").vegalite_to_svg(dict(spec), allowed_base_urls=[])
    return text.encode()


def as_png(spec: Mapping[str, Any]) -> bytes:
    with drawing():
        data: bytes = need("vl_convert").vegalite_to_png(dict(spec), scale=PNG_SCALE, allowed_base_urls=[])
    return data


def as_csv(spec: Mapping[str, Any]) -> bytes:
    """Return the data of the marks, one row each."""
    rows = max(_tables(spec), key=len, default=[])
    return write_csv(rows)


def write_csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return rows as a CSV table; text that a spreadsheet would evaluate as a formula gets a leading apostrophe."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_cell, names))
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    if isinstance(value, dict | list):
        value = msgspec.json.encode(value).decode()
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _tables(spec: Any) -> Iterator[list[dict[str, Any]]]:
    """Yield all data tables of a specification."""
    if isinstance(spec, dict):
        values = spec["data"].get("values") if isinstance(spec.get("data"), dict) else None
        if isinstance(values, list):
            yield [row for row in values if isinstance(row, dict)]
        for table in (spec.get("datasets") or {}).values():
            yield [row for row in table if isinstance(row, dict)]
        for part in ("layer", "concat", "hconcat", "vconcat", "spec"):
            yield from _tables(spec.get(part))
    elif isinstance(spec, list):
        for part in spec:
            yield from _tables(part)
