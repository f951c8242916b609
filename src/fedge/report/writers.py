"""A report as a page, as Markdown, or as tables in LaTeX."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from html import escape

from fedge.core.errors import ConfigError
from fedge.core.printable import printable
from fedge.report.document import Document, Figure, Listing
from fedge.report.page_style import SORT_SCRIPT, STYLE_SHEET
from fedge.report.style import drawing, embeddable, make_printable, need
from fedge.report.tables import TableCells

_BEST = "bold: the best of its column"
_GREEK = (r"\eta", r"\mu", r"\mu", r"\alpha", r"\beta", r"\varepsilon")
_LATEX = {"\\": r"\textbackslash{}", "±": r"$\pm$", "−": "$-$", "–": "--"} | {c: f"\\{c}" for c in "&%$#_{}"}
_LATEX |= {symbol: f"${name}$" for symbol, name in zip("ηµμαβε", _GREEK, strict=True)}
_LATEX |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def page(document: Document) -> str:
    """Return one HTML file that includes its charts and works offline."""
    parts = [f"<h1>{escape(document.title)}</h1>"]
    if document.source:
        parts.append(f'<p class="source">{escape(document.source)}</p>')
    if len(document.sections) > 1:
        links = "".join(f'<li><a href="#{_slug(one.title)}">{escape(one.title)}</a></li>' for one in document.sections)
        parts.append(f'<nav aria-label="Contents"><ol>{links}</ol></nav>')
    count = 0
    for section in document.sections:
        parts.append(f'<section id="{_slug(section.title)}"><h2>{escape(section.title)}</h2>')
        drawn = []
        for part in section.parts:
            if isinstance(part, Figure):
                count += 1
                drawn.append(_figure(part, count))
            else:
                parts.append(_html(part, section.title))
        if drawn:
            parts.append(f'<div class="figures">{"".join(drawn)}</div>')
        parts.append("</section>")
    head = f'<meta charset="utf-8"><title>{escape(document.title)}</title><style>{STYLE_SHEET}</style>'
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    body = "\n".join(["<main>", *parts, "</main>", f"<script>{SORT_SCRIPT}</script>"])
    text = f'<!doctype html>\n<html lang="en"><head>{head}{view}</head>\n<body>\n{body}\n</body></html>\n'
    return printable(text, "\n\t")


def markdown(document: Document) -> str:
    """Return headings, tables and listings as Markdown; only the page has charts."""
    parts = [f"# {_markdown(document.title)}", *([_markdown(document.source)] if document.source else [])]
    for section in document.sections:
        parts.append(f"## {section.title}")
        for part in section.parts:
            if isinstance(part, TableCells):
                if part.title != section.title:
                    parts.append(f"### {_markdown(part.title)}")
                rows = _marked(part, _markdown, "**{}**")
                lines = [[*map(_markdown, part.head)], ["---", *["---:"] * (len(part.head) - 1)], *rows]
                parts.append("\n".join("| " + " | ".join(line) + " |" for line in lines))
                parts += [f"*{_markdown(note)}*" for note in _all_notes(part)]
            elif isinstance(part, Listing):
                parts += [f"### {_markdown(part.title)}"] if part.title else []
                fence = "`" * max(3, 1 + max(map(len, re.findall("`+", part.text)), default=0))
                parts.append(f"{fence}\n{part.text.rstrip()}\n{fence}")
            elif isinstance(part, str):
                parts.append(_markdown(part))
    return printable("\n\n".join(parts) + "\n", "\n\t")


def latex(document: Document) -> str:
    """Return the tables alone, as LaTeX for a document that loads booktabs."""
    grids = [part for section in document.sections for part in section.parts if isinstance(part, TableCells)]
    return "% needs \\usepackage{booktabs}\n\n" + "\n".join(map(_latex_table, grids))


def _html(part: TableCells | Listing | str, section: str) -> str:
    if isinstance(part, str):
        return f"<p>{escape(part)}</p>"
    title = f"<h3>{escape(part.title)}</h3>" if part.title and part.title != section else ""
    if isinstance(part, Listing):
        return f'{title}<pre tabindex="0">{escape(part.text.rstrip())}</pre>'
    words = len(part.head) == 2
    sortable = not words and len(part.rows) > 1
    head = "".join(
        f'<th scope="col"><button type="button">{escape(cell)}</button></th>'
        if sortable
        else f'<th scope="col">{escape(cell)}</th>'
        for cell in part.head
    )
    rows = "\n".join(
        "<tr>"
        + "".join(
            f'<td class="best">{_cell(cell)}</td>' if (i, j) in part.best else f"<td>{_cell(cell)}</td>"
            for j, cell in enumerate(row)
        )
        + "</tr>"
        for i, row in enumerate(part.rows)
    )
    kind = ' class="words"' if words else ' class="sortable"' if sortable else ""
    table = f"<table{kind}>\n<thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody>\n</table>"
    return f'{title}<div class="wide">{table}</div>{_notes(_all_notes(part))}'


def _cell(text: str) -> str:
    """Return the text without a line break inside `η = 0.1`."""
    return escape(text).replace(" = ", "&nbsp;=&nbsp;")


def _all_notes(part: TableCells) -> list[str]:
    return [*part.notes, _BEST] if part.best else list(part.notes)


def _marked(part: TableCells, write: Callable[[str], str], mark: str) -> list[list[str]]:
    """Return the cells, with the best of each column marked."""
    return [
        [mark.format(write(cell)) if (i, j) in part.best else write(cell) for j, cell in enumerate(row)]
        for i, row in enumerate(part.rows)
    ]


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower())


def _notes(notes: Sequence[str]) -> str:
    return "".join(f'<p class="note">{escape(note)}</p>' for note in notes)


def _figure(figure: Figure, number: int) -> str:
    """Return the chart, or why it cannot be drawn: the report is written without it."""
    try:
        drawn = _svg(figure, number)
    except ConfigError as error:
        drawn = _notes([f"not drawn: {error}"])
    return f"<figure><figcaption>{escape(figure.title)}</figcaption>{drawn}{_notes(figure.notes)}</figure>"


def _svg(figure: Figure, number: int) -> str:
    """Return the drawing as one image with the figure's title as its name, and with ids that are unique in the page."""
    need("vl_convert")
    drawn = io.StringIO()
    with drawing():
        make_printable(figure.draw()).save(drawn, format="svg")
    svg = embeddable(drawn.getvalue(), f"figure{number}")
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(figure.title)}"', 1)


def _markdown(text: str) -> str:
    """Return one line, with the characters of links, code, HTML, emphasis and table cells escaped."""
    special = r"[\\`<\[|*]|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])"  # underscores within words need no escape
    return re.sub(special, lambda found: "&lt;" if found[0] == "<" else f"\\{found[0]}", text.replace("\n", " "))


def _latex_table(part: TableCells) -> str:
    lines = [" & ".join(row) + r" \\" for row in _marked(part, _tex, r"\textbf{{{}}}")]
    columns = "ll" if len(part.head) == 2 else "l" + "r" * (len(part.head) - 1)
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{_tex('. '.join([part.title, *_all_notes(part)]))}}}",
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
