"""The style sheet and the script of a report's page: inline, because the page is one file that works offline."""

STYLE_SHEET = """
:root { color-scheme: light dark; --ink: #222; --faint: #666; --line: #ddd; --rule: #777; --paper: #fff;
  --box: #f6f6f6; --best: #e3f1e6; --link: #005a9c; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #ddd; --faint: #a5a5a5; --line: #3a3a3a; --rule: #888; --paper: #17191c; --box: #22252a;
    --best: #1f3d2a; --link: #7cc0ff; }
  figure svg > rect[fill="white"] { fill: none; }
  figure svg text[fill="#222222"], figure svg [fill="#000000"] { fill: #ddd; }
  figure svg text[fill="#777777"] { fill: #a5a5a5; }
  figure svg text[stroke="#ffffff"] { stroke: var(--paper); }
  figure svg [stroke="#882255"] { stroke: #c2608f; }
  figure svg [stroke="#222222"], figure svg [stroke="#000000"] { stroke: #ddd; }
}
body { font: 15px/1.5 Helvetica, Arial, 'Liberation Sans', sans-serif; color: var(--ink); background: var(--paper);
  max-width: 62em; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.6em; margin-bottom: .2em; }
h2 { font-size: 1.25em; margin-top: 2em; border-bottom: 1px solid var(--line); }
h3 { font-size: 1em; margin: 1.6em 0 .4em; }
a { color: var(--link); }
nav ol { columns: 14em; padding-left: 1.4em; margin: 1em 0; }
.source, .note { color: var(--faint); font-size: .83em; margin: .3em 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .87em; }
.wide { overflow-x: auto; }
th, td { text-align: right; padding: .25em .7em; border-bottom: 1px solid var(--line); vertical-align: top;
  white-space: pre; }
td:first-child, .words td, th { white-space: pre-line; }
td:first-child { min-width: 9em; }
th { border-bottom: 1px solid var(--rule); font-weight: normal; color: var(--faint); vertical-align: bottom; }
th:first-child, td:first-child, .words td, .words th { text-align: left; }
th button { all: unset; cursor: pointer; white-space: pre-line; }
th button:hover { color: var(--ink); text-decoration: underline; }
th button:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
th[aria-sort=ascending] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
.best { font-weight: bold; background: var(--best); }
pre { background: var(--box); padding: .8em; overflow-x: auto; font-size: .8em; line-height: 1.4; }
.figures { display: flex; flex-wrap: wrap; gap: 1em 2.5em; } figure { margin: 1em 0 0; max-width: 100%; }
figcaption { font-weight: bold; margin-bottom: .5em; } svg { max-width: 100%; height: auto; }
figure svg { overflow: visible; } /* text is wider where only another font is installed */
@media print {
  :root { color-scheme: light; --ink: #000; --faint: #444; --line: #ccc; --paper: #fff; --box: #fff; --best: #fff; }
  body { font-size: 10pt; margin: 0; max-width: none; } nav { display: none; }
  pre { white-space: pre-wrap; font-size: 6.5pt; } .figures { gap: .5em 2%; } figure { width: 49%; }
  h2, h3, figcaption { break-after: avoid; } .wide { overflow: visible; }
  figure, thead, tr, table:not(:has(tbody tr:nth-child(41))) { break-inside: avoid; }
  table { font-size: 7.5pt; } th, td { white-space: pre-line; padding: .15em .5em; }
}
"""

SORT_SCRIPT = """
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const number = (cell) => {
    const found = cell.textContent.replace(/,/g, "").replace("\u2212", "-").match(/^\\s*[-+]?[0-9.]+(e[-+]?[0-9]+)?/);
    return found ? parseFloat(found[0]) : NaN;
  };
  heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
    const rows = [...table.tBodies[0].rows];
    const up = head.getAttribute("aria-sort") !== "ascending";
    const keys = new Map(rows.map((row) => [row, number(row.cells[column])]));
    const words = rows.every((row) => isNaN(keys.get(row)));
    rows.sort((a, b) => {
      if (words) {
        const order = a.cells[column].textContent.localeCompare(b.cells[column].textContent, "en", { numeric: true });
        return up ? order : -order;
      }
      const [x, y] = [keys.get(a), keys.get(b)];
      if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y);
      return up ? x - y : y - x;
    });
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    table.tBodies[0].append(...rows);
  }));
}
"""
