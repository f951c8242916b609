"""The style of charts, for print and colour-blind readers, and saving them to files.

Requires the extra `view`, imported on first use: the rest of `fedge.report` works without it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedge.core import extras
from fedge.core.errors import ConfigError, FedgeError
from fedge.core.printable import printable
from fedge.core.storage import writing

if TYPE_CHECKING:
    import altair

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#882255")
"""Okabe and Ito's palette for colour-blind readers, with Tol's wine in place of the yellow, which is faint on paper."""

DASHES = ((1, 0), (6, 2), (2, 2), (8, 2, 2, 2), (10, 2, 2, 2, 2, 2))
"""Dash patterns for grey print. With eight colours they make forty different lines."""

PNG_SCALE = 3  # 288 dots per inch
PDF_SCALE = 0.75  # points per pixel

INK, FAINT = "#222222", "#777777"

# Sizes are in pixels of 1/96 inch, so that 10 and 11 pixel type is 7.5 and 8.25 points in print.
CANVAS = {"single": 336, "double": 687}
"""The width of an image: 3.5 inches (252 points), one column of most papers, and 7.16 inches, both columns."""
HEIGHT = 165
"""The height of a chart without its axes."""
TICKS = 5
STYLE: dict[str, Any] = {
    "font": "Helvetica, Arial, Liberation Sans, sans-serif",
    "background": "white",
    "view": {"stroke": None},
    "axis": {
        "grid": False,
        "domainColor": FAINT,
        "tickColor": FAINT,
        "tickSize": 4,
        "tickCount": TICKS,
        "labelColor": INK,
        "labelFlush": False,
        "labelFontSize": 10,
        "titleColor": INK,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
    },
    "legend": {
        "orient": "bottom",
        "title": None,
        "titleColor": INK,
        "offset": 6,
        "rowPadding": 0,
        "labelColor": INK,
        "labelFontSize": 10,
        "labelLimit": 0,
        # 20 pixels wide in a row of 12: a symbol of the type "stroke" is as high as it is wide
        "symbolType": "M-1.67,0L1.67,0",
        "symbolSize": 144,
        "symbolOffset": 4,
        "labelOffset": 11,
        "symbolStrokeWidth": 1.75,
        "columnPadding": 14,
    },
    "title": {"anchor": "start", "color": FAINT, "fontSize": 10, "fontWeight": "normal", "offset": 8},
    "line": {"strokeWidth": 1.75, "strokeJoin": "round"},
    "concat": {"spacing": 20},
}

POINTS: dict[str, Any] = {
    "symbolType": "circle",
    "symbolSize": 45,
    "symbolStrokeWidth": 1.5,
    "symbolOffset": 0,
    "labelOffset": 4,
    "rowPadding": 2,
}
"""Legend settings for points, and for areas with another symbol, in place of those for lines."""
AREAS = POINTS | {"symbolType": "square", "symbolSize": 80, "symbolStrokeWidth": 0}
HALO = {"stroke": "#ffffff", "strokeWidth": 3, "strokeOpacity": 0.8}
"""A halo around text that lines may cross."""

_LESS = "\ue000"  # a private-use character that stands for < until the page is written

_MOST_TEXT = 1_000
_TAG, _ROLES = re.compile(r"<[^>]+>"), re.compile(r' (?:role|aria-[a-z]+)="[^"]*"')
_ID = re.compile(r'(\bid="|\burl\(#|\bhref="#)')

SUFFIXES = (".svg", ".png", ".pdf", ".html")


def line_looks(alt: Any, labels: Sequence[str]) -> dict[str, Any]:
    """Return the encodings that give each label its colour and its dash."""
    domain = list(labels)
    colours, dashes = (list(islice(cycle(looks), len(domain))) for looks in (COLOURS, DASHES))
    return {
        "stroke": alt.Stroke("label:N", scale=alt.Scale(domain=domain, range=colours)),
        "strokeDash": alt.StrokeDash("label:N", scale=alt.Scale(domain=domain, range=dashes)),
    }


class _Rows:
    """Rows that altair passes on unchanged: checking and converting the values of 20 runs would take it a second."""

    _schema = {"type": "array"}  # noqa: RUF012 - tells altair that it may call `to_dict`

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows = list(rows)

    def to_dict(self, *_: object, **__: object) -> list[Mapping[str, Any]]:
        return self._rows


def inline(alt: Any, rows: Sequence[Mapping[str, Any]]) -> altair.Data:
    """Return rows of plain values as the data of a chart."""
    data: altair.Data = alt.Data(values=[])
    data["values"] = _Rows(rows)
    return data


def save(chart: altair.TopLevelMixin, path: Path | str) -> None:
    """Write a chart in the format of the path's suffix. A page (.html) is one file, which includes the drawing code."""
    path = Path(path)
    check_saving(path)
    with writing(path, "draw the chart again"), drawing():
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(chart, path)


def _write(chart: Any, path: Path) -> None:
    if path.suffix == ".html":
        path.write_text(_page(chart), encoding="utf-8")
    elif path.suffix == ".pdf":
        path.write_bytes(_pdf(chart))
    else:
        make_printable(chart).save(path, scale_factor=PNG_SCALE if path.suffix == ".png" else 1)


@contextmanager
def drawing() -> Iterator[None]:
    """Turn errors of vl-convert, such as those about characters that it cannot measure, into a ConfigError."""
    try:
        yield
    except FedgeError:
        raise
    except ValueError as error:
        reason = " ".join(str(error).splitlines()[:2])
        raise ConfigError(f"this chart cannot be drawn: {reason}; shorten long names, or choose other runs") from None


def embeddable(svg: str, prefix: str) -> str:
    """Return a drawing for a page with others: ids begin with `prefix`, and its marks have no roles.

    Vega makes every mark an image for screen readers, most of them without a name; the whole is one image there.
    """
    plain = _TAG.sub(lambda tag: _ROLES.sub("", tag[0]), svg)
    return _ID.sub(rf"\g<1>{prefix}-", plain)


def make_printable(chart: Any) -> Any:
    """Return the chart with printable texts: a control character in a label would end the process that draws it."""
    return _with_texts(chart, lambda text: printable(_shortened(text)))


def _shortened(text: str) -> str:
    """Return a text short enough to draw fast, because the time grows quadratically; different texts stay different."""
    return (
        text
        if len(text) <= _MOST_TEXT
        else f"{text[:_MOST_TEXT]}… {sha256(text.encode(errors='replace')).hexdigest()[:8]}"
    )


def _pdf(chart: Any) -> bytes:
    """Return a PDF in print size: vl-convert would make each pixel a point."""
    drawn = io.StringIO()
    make_printable(chart).save(drawn, format="svg")
    head, rest = drawn.getvalue().split(">", 1)
    sized = re.sub(r'\b(width|height)="([0-9.]+)"', lambda f: f'{f[1]}="{float(f[2]) * PDF_SCALE:g}"', head)
    pdf: bytes = need("vl_convert").svg_to_pdf(f"{sized}>{rest}")
    return pdf


def _page(chart: Any) -> str:
    """Return a page with the chart as data, in which `</script>` is escaped: in a label it would end the data."""
    marked = _with_texts(chart, lambda text: printable(text).replace("<", _LESS))
    return str(marked.to_html(inline=True)).replace(_LESS.encode("unicode_escape").decode(), "\\u003c")


def _with_texts(chart: Any, change: Callable[[str], str]) -> Any:
    before = chart.to_dict(validate=False)
    after = _changed(before, change)
    return chart if after == before else type(chart).from_dict(after, validate=False)


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {key: _changed(inner, change) for key, inner in value.items()}
    if isinstance(value, list):
        return [_changed(inner, change) for inner in value]
    return change(value) if isinstance(value, str) else value


def check_saving(path: Path) -> None:
    """Raise an error if a chart could not be saved there; call it before long work."""
    if path.suffix not in SUFFIXES:
        known = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        raise ConfigError(f"{path}: a chart is saved as {known}, got {path.suffix or 'no suffix'}")
    for module in ("altair", "vl_convert"):
        need(module)


def need(module: str) -> Any:
    """Return a module that draws charts. Raises FedgeError that names the extra if it is not installed."""
    return extras.need(module, "view", "charts need")
