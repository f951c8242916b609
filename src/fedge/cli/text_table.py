"""Tables with many rows for a terminal; Rich's tables take a second per thousand rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from rich.cells import cell_len
from rich.text import Text

from fedge.core.printable import printable


def draw_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str], styles: Mapping[str, Mapping[str, str]]
) -> Text:
    """Return a table with a header. Columns in `right` are right-aligned; `styles` maps column and cell to a style."""
    cells = [tuple(head), *(tuple(map(printable, row)) for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, tuple("─" * width for width in widths))
    shown = Text()
    for number, row in enumerate(cells):
        for title, cell, width in zip(head, row, widths, strict=True):
            space = " " * (width - cell_len(cell))
            style = styles[title].get(cell, "") if title in styles else "bold" if number == 0 else ""
            shown.append(space + cell if title in right else cell + space, style).append("  ")
        shown.right_crop(2 + (0 if head[-1] in right else len(space)))
        shown.append("\n")
    shown.right_crop(1)
    return shown
