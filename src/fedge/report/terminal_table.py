"""Experiments side by side, for a terminal of any width."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedge.report.tables import Row, TableCells, grid

_NAME_WIDTH = 10  # minimum width of the name's column; longer names are wrapped
_GAP = 2  # between columns
_EQUALS = "\0=\0"  # spaces at which a line must not break


@dataclass(frozen=True)
class ResultTable:
    """One table, or several below each other with the names repeated if the columns do not fit the terminal."""

    rows: Sequence[Row]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        found = grid(self.rows)
        columns = list(zip(found.head, *found.rows, strict=True))
        best = {(row, column - 1) for row, column in found.best}
        parts = _fit([_GAP + _width(column, _wraps(column)) for column in columns[1:]], options.max_width - _NAME_WIDTH)
        for number, part in enumerate(parts):
            if number:
                yield Text()
            marked = {(row, part.index(column)) for row, column in best if column in part}
            yield self._draw(columns[0], [columns[1 + i] for i in part], options.max_width, marked)
        if found.notes:
            yield Text()
            yield Text("\n".join(found.notes))

    def _draw(
        self,
        names: Sequence[str],
        columns: Sequence[Sequence[str]],
        max_width: int,
        best: Collection[tuple[int, int]] = (),
    ) -> Table:
        """Return a table; wrapping columns share the width that the others leave, and the names take the rest."""
        widths = [_width(column, _wraps(column)) for column in columns]
        spare = max_width - _NAME_WIDTH - sum(widths) - _GAP * len(widths)
        for i, column in enumerate(columns):
            more = min(_width(column) - widths[i], max(0, spare))
            widths[i], spare = widths[i] + more, spare - more
        shown = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 0, 0, 1), pad_edge=False)
        name_width = min(_width(names), _NAME_WIDTH + max(0, spare))
        shown.add_column(names[0], width=name_width, overflow="fold")
        for column, width in zip(columns, widths, strict=True):
            shown.add_column(Text(column[0]), justify="right", width=width)
        lines = zip(self.rows, names[1:], *(column[1:] for column in columns), strict=True)
        for i, (row, name, *values) in enumerate(lines):
            cells = [Text(value, style="bold" if (i, j) in best else "") for j, value in enumerate(values)]
            folded = _fold(name, name_width)
            shown.add_row(_dim_rest(folded) if row.unfinished else Text(folded), *cells)
        return shown


def _fit(widths: Sequence[int], available: int) -> list[list[int]]:
    """Return the columns in order, divided into parts that fit the width; a part has at least one column."""
    parts: list[list[int]] = [[]]
    for i, width in enumerate(widths):
        if parts[-1] and sum(widths[j] for j in parts[-1]) + width > available:
            parts.append([])
        parts[-1].append(i)
    return parts


def _width(column: Sequence[str], wraps: bool = False) -> int:
    """Return the least width of a column that cuts no line, or for cells that wrap, no word."""
    return max(cell_len(line) for cell in column for line in (cell.split() if wraps else cell.split("\n")))


def _wraps(column: Sequence[str]) -> bool:
    """Whether the cells of a column are words that may wrap: "2/3 reached"."""
    return column[0].startswith("rounds")


def _fold(name: str, width: int) -> str:
    """Return a name wrapped to this width, without a line break inside `η = 0.1` if possible."""
    lines = (wrap(line.replace(" = ", _EQUALS), width, break_on_hyphens=False) for line in name.split("\n"))
    return "\n".join(part.replace(_EQUALS, " = ") for own in lines for part in own)


def _dim_rest(name: str) -> Text:
    label, _, rest = name.rpartition("\n")
    return Text(label).append(f"\n{rest}", style="dim")


def draw_cells(part: TableCells) -> Group:
    """Return a table with its title and its notes."""
    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for i, head in enumerate(part.head):
        shown.add_column(Text(head), justify="right" if i else "left", overflow="fold")
    for row in part.rows:
        shown.add_row(*map(Text, row))
    return Group(Text(part.title, style="bold"), shown, Text("\n".join(part.notes)))
