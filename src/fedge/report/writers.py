"""A report as a page, as Markdown, or as tables in LaTeX."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from html import escape

from fedge.core.errors import ConfigError
from fedge.core.printable import printable
from fedge.report.document import Document, Figure, Listing
from fedge.report.style import make_printable, need
from fedge.report.tables import TableCells

_PAGE_STYLE = """
body { font: 15px/1.5 Helvetica, Arial, 'Liberation Sans', sans-serif; color: #222; max-width: 62em;
  margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.6em; } h2 { font-size: 1.25em; margin-top: 2em; border-bottom: 1px solid #ccc; }
h3 { font-size: 1em; margin: 1.6em 0 .4em; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .87em; }
.wide { overflow-x: auto; }
th, td { text-align: right; padding: .25em .7em; border-bottom: 1px solid #e4e4e4; vertical-align: top;
  white-space: pre; }
td:first-child, .words td, th { white-space: pre-line; }
th { border-bottom: 1px solid #777; font-weight: normal; color: #555; vertical-align: bottom; }
th:first-child, td:first-child, .words td, .words th { text-align: left; }
pre { background: #f6f6f6; padding: .8em; overflow-x: auto; font-size: .8em; line-height: 1.4; }
.figures { display: flex; flex-wrap: wrap; gap: 1em 2.5em; } figure { margin: 1em 0 0; }
figcaption { font-weight: bold; margin-bottom: .5em; } svg { max-width: 100%; height: auto; }
.note { color: #666; font-size: .83em; margin: .3em 0; }
@media print { pre { white-space: pre-wrap; } h2 { break-after: avoid; } figure, table { break-inside: avoid; } }
"""
_LATEX = {"\\": r"\textbackslash{}", "±": r"$\pm$", "−": "$-$", "–": "--"} | {c: f"\\{c}" for c in "&%$#_{}"}
_LATEX |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def page(document: Document) -> str:
    """One HTML file with its charts in it, which needs no network."""
    parts = [f"<h1>{escape(document.title)}</h1>"]
    count = 0
    for section in document.sections:
        parts.append(f"<h2>{escape(section.title)}</h2>")
        drawn = []
        for part in section.parts:
            if isinstance(part, Figure):
                count += 1
                drawn.append(_figure(part, count))
            else:
                parts.append(_html(part, section.title))
        if drawn:
            parts.append(f'<div class="figures">{"".join(drawn)}</div>')
    head = f'<meta charset="utf-8"><title>{escape(document.title)}</title><style>{_PAGE_STYLE}</style>'
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    body = "\n".join(parts)
    text = f'<!doctype html>\n<html lang="en"><head>{head}{view}</head>\n<body>\n{body}\n</body></html>\n'
    return printable(text, "\n\t")


def markdown(document: Document) -> str:
    """Headings, tables and listings; charts are left to the page."""
    parts = [f"# {_markdown(document.title)}"]
    for section in document.sections:
        parts.append(f"## {section.title}")
        for part in section.parts:
            if isinstance(part, TableCells):
                if part.title != section.title:
                    parts.append(f"### {_markdown(part.title)}")
                lines = [part.head, ["---", *["---:"] * (len(part.head) - 1)], *part.rows]
                parts.append("\n".join("| " + " | ".join(map(_markdown, line)) + " |" for line in lines))
                parts += [f"*{_markdown(note)}*" for note in part.notes]
            elif isinstance(part, Listing):
                parts += [f"### {_markdown(part.title)}"] if part.title else []
                fence = "`" * max(3, 1 + max(map(len, re.findall("`+", part.text)), default=0))
                parts.append(f"{fence}\n{part.text.rstrip()}\n{fence}")
            elif isinstance(part, str):
                parts.append(_markdown(part))
    return printable("\n\n".join(parts) + "\n", "\n\t")


def latex(document: Document) -> str:
    """The tables alone, to be put into a paper that loads booktabs."""
    grids = [part for section in document.sections for part in section.parts if isinstance(part, TableCells)]
    return "% needs \\usepackage{booktabs}\n\n" + "\n".join(map(_latex_table, grids))


def _html(part: TableCells | Listing | str, section: str) -> str:
    if isinstance(part, str):
        return f"<p>{escape(part)}</p>"
    title = f"<h3>{escape(part.title)}</h3>" if part.title and part.title != section else ""
    if isinstance(part, Listing):
        return f"{title}<pre>{escape(part.text.rstrip())}</pre>"
    head = "".join(f"<th>{escape(cell)}</th>" for cell in part.head)
    rows = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in part.rows)
    kind = ' class="words"' if len(part.head) == 2 else ""
    return f'{title}<div class="wide"><table{kind}>\n<tr>{head}</tr>\n{rows}\n</table></div>{_notes(part.notes)}'


def _notes(notes: Sequence[str]) -> str:
    return "".join(f'<p class="note">{escape(note)}</p>' for note in notes)


def _figure(figure: Figure, number: int) -> str:
    """The chart, or why these runs have none: one chart that cannot be drawn does not cost the report."""
    try:
        drawn = _svg(figure, number)
    except ConfigError as error:
        drawn = _notes([f"not drawn: {error}"])
    return f"<figure><figcaption>{escape(figure.title)}</figcaption>{drawn}{_notes(figure.notes)}</figure>"


def _svg(figure: Figure, number: int) -> str:
    """The drawing, with names of its own: in one page those of several would clash."""
    need("vl_convert")
    drawn = io.StringIO()
    make_printable(figure.draw()).save(drawn, format="svg")
    return re.sub(r'(id="|url\(#)(?=[a-z])', rf"\g<1>figure{number}-", drawn.getvalue())


def _markdown(text: str) -> str:
    """One line in which nothing is a link, code, HTML or the end of a cell."""
    return re.sub(r"[\\`<\[|]", lambda found: "&lt;" if found[0] == "<" else f"\\{found[0]}", text.replace("\n", " "))


def _latex_table(part: TableCells) -> str:
    lines = [" & ".join(map(_tex, row)) + r" \\" for row in part.rows]
    columns = "ll" if len(part.head) == 2 else "l" + "r" * (len(part.head) - 1)
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{_tex('. '.join([part.title, *part.notes]))}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            " & ".join(map(_tex, part.head)) + r" \\",
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _tex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in printable(text.replace("\n", " ")))
