"""Make the pictures of the README: docs/mobility.svg, which is animated, and docs/speed.svg.

python scripts/make_pictures.py                                          # both
python scripts/make_pictures.py --runs runs/mobility                     # from existing runs
python scripts/make_pictures.py --speed benchmarks/results/2026-11-18.json
"""

# ruff: noqa: E501 - lines of markup

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt

import fedge
from fedge.report.style import STYLE, save

ROOT = Path(__file__).parents[1]
EXPERIMENT = ROOT / "docs/examples/mobility.toml"
MOBILITY, SPEED = ROOT / "docs/mobility.svg", ROOT / "docs/speed.svg"

ROUND_S, PAUSE_S = 0.5, 4.0  # of the animation
CLASSES = ("#4e79a7", "#f28e2b", "#e15759", "#76b7b2", "#59a14f", "#edc948", "#b07aa1", "#ff9da7", "#9c755f", "#888888")
SIDE = 220  # of a grid
GRIDS, PLOT = ((24, 74), (268, 74)), (556, 74, 280, 220)  # where the panels are
PADDING = {"left": 28, "top": 8, "right": 8, "bottom": 8}  # of the speeds: readers may have a wider font for the names
TITLES = ("clients stay in their cells", "a quarter move after each round")
LINES = ("#D55E00", "#0072B2")

WORKLOADS = {"W1": "2NN, 199k", "W2": "CNN, 870k", "W3": "GRU, 163k", "W4": "linear, 10k", "W6": "small CNN, 57k"}
FRAMEWORKS = {
    "Fedge": ("#0072B2", "fedge auto, 2 workers"),
    "FedJAX": ("#E69F00", "fedjax", "fedjax, pmap"),
    "pfl-research": ("#CC79A7", "pfl"),
    "Flower": ("#009E73", "flower"),
    "loop, 2 processes": ("#999999", "plain, 2 processes"),
    "PyTorch loop": ("#BBBBBB", "plain"),
}
"""By name: the colour, and the candidates of the benchmark, of which the fastest is shown."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=Path, help="folder with the runs of docs/examples/mobility.toml")
    parser.add_argument("--speed", type=Path, help="results of benchmarks.speed; default: the newest that has peers")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if options.runs is None:
            subprocess.run([sys.executable, "-m", "fedge.cli", "sweep", str(EXPERIMENT), "--runs", name], check=True)
        MOBILITY.write_text(animation(find_pair(options.runs or Path(name))), "utf-8")
    save(speed_chart(json.loads((options.speed or newest_speed()).read_text())), SPEED)
    add_dark_colours(SPEED)


def add_dark_colours(chart: Path) -> None:
    """Let a saved chart follow the reader's colour scheme, as pages on GitHub do."""
    style = "<style>@media (prefers-color-scheme:dark){svg>rect{fill:#0d1117}text{fill:#e6edf3}text[stroke]{stroke:#0d1117}}</style>"
    head, mark, rest = chart.read_text("utf-8").partition("<rect")  # the paper, which is the first mark
    chart.write_text(f"{head}{style}{mark}{rest}", "utf-8")


class Story(NamedTuple):
    """The data of one run for the animation."""

    cells: list[dict[int, int]]  # by round: the cell of each client
    merged: list[bool]
    accuracy: list[tuple[int, float]]  # (round, accuracy)
    main_class: dict[int, int]
    rows: int
    cols: int


def find_pair(folder: Path) -> tuple[Story, Story]:
    """Return the run without and the run with mobility."""
    runs = sorted(fedge.find_runs(folder), key=lambda run: run.config["edge"]["mobility_rate"])
    still, moving = (tell(run) for run in runs)
    return still, moving


def tell(run: fedge.Run) -> Story:
    lines = run.edge
    where = [dict(zip(line["clients"], line["cell"], strict=True)) for line in lines]
    first = lines[0]
    leading = {cell: max(range(10), key=counts.__getitem__) for cell, counts in enumerate(first["classes"])}
    return Story(
        cells=where,
        merged=[line["merged"] for line in lines],
        accuracy=[(record["round"], record["accuracy"]) for record in run.rounds if "accuracy" in record],
        main_class={client: leading[cell] for client, cell in where[0].items()},
        rows=first["rows"],
        cols=first["cols"],
    )


def animation(pair: tuple[Story, Story]) -> str:
    """Return both runs as one animated SVG; with reduced motion, it shows the last round."""
    num_rounds = len(pair[0].cells)
    total = num_rounds * ROUND_S + PAUSE_S
    styles, shapes = [], []
    for story, (left, top), title, key in zip(pair, GRIDS, TITLES, "ab", strict=True):
        shapes += [f'<text x="{left}" y="{top - 12}" class="t">{title}</text>', *grid(story, left, top)]
        for client in sorted(story.main_class):
            style, shape = dot(story, client, (left, top), total, f"{key}{client}")
            styles.append(style)
            shapes.append(shape)
    styles.append(flash(pair[0].merged, total))
    shapes += plot(pair, total)
    shapes += counters(num_rounds, total)
    return TEMPLATE.format(
        total=total, styles="\n".join(styles), shapes="\n".join(shapes), span=share(num_rounds, total)
    )


TEMPLATE = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 344" font-family="Helvetica, Arial, sans-serif" role="img" \
aria-label="Two grids of 25 radio cells with 100 clients, once in place and once on the move, and the accuracy of both">
<style>
.bg{{fill:#ffffff}} .t{{font-size:13px;fill:#222222}} .s{{font-size:11px;fill:#666666}} .c{{fill:#f3f4f6;stroke:#d5d8dd}}
.x{{stroke:#999999;fill:none}} .m{{fill:none;stroke:#222222;stroke-width:1.5;opacity:0;animation:m {total}s linear infinite}}
.l{{fill:none;stroke-width:2}} .n{{opacity:0}} .n:last-of-type{{opacity:1}}
.cover{{animation:cover {total}s linear infinite;transform:translate(290px,0)}}
@keyframes cover{{0%{{transform:translate(0,0)}}{span:.3f}%,100%{{transform:translate(290px,0)}}}}
@media (prefers-color-scheme:dark){{.bg{{fill:#0d1117}} .t{{fill:#e6edf3}} .s{{fill:#9aa4af}} .c{{fill:#161b22;stroke:#30363d}} .m{{stroke:#e6edf3}}}}
{styles}
@media (prefers-reduced-motion:reduce){{*{{animation:none!important}}}}
</style>
<rect class="bg" width="860" height="344" rx="8"/>
<text x="24" y="32" class="t" font-weight="bold">What do moving clients do to learning?</text>
{shapes}
</svg>
"""


def share(rounds: float, total: float) -> float:
    """Return the percentage of the animation that has passed after some rounds."""
    return 100 * rounds * ROUND_S / total


def grid(story: Story, left: int, top: int) -> Iterator[str]:
    size = SIDE / story.cols
    for cell in range(story.rows * story.cols):
        row, col = divmod(cell, story.cols)
        box = f'x="{left + col * size + 1:g}" y="{top + row * size + 1:g}" width="{size - 2:g}" height="{size - 2:g}" rx="3"'
        yield f'<rect class="c" {box}/><rect class="m" {box}/>'


def dot(story: Story, client: int, corner: tuple[int, int], total: float, name: str) -> tuple[str, str]:
    """Return (style, shape) of a client that moves to its place in each round."""
    size = SIDE / story.cols
    inside = (client * 0.618034 % 1, client * 0.754878 % 1)  # spreads clients evenly within a cell

    def place(number: int) -> str:
        row, col = divmod(story.cells[number][client], story.cols)
        x, y = (corner[0] + (col + 0.16 + 0.68 * inside[0]) * size, corner[1] + (row + 0.16 + 0.68 * inside[1]) * size)
        return f"translate({x:.1f}px,{y:.1f}px)"

    steps = [f"0%{{transform:{place(0)}}}"]
    last = len(story.cells) - 1
    for number in range(1, last + 1):
        if story.cells[number][client] != story.cells[number - 1][client]:
            steps.append(f"{share(number - 0.6, total):.2f}%{{transform:{place(number - 1)}}}")
            steps.append(f"{share(number, total):.2f}%{{transform:{place(number)}}}")
    shape = f'<circle id="{name}" r="3.6" fill="{CLASSES[story.main_class[client]]}" style="transform:{place(last)}"/>'
    if len(steps) == 1:
        return "", shape
    steps.append(f"100%{{transform:{place(last)}}}")
    return f"#{name}{{animation:{name} {total}s linear infinite}}@keyframes {name}{{{''.join(steps)}}}", shape


def flash(merged: Sequence[bool], total: float) -> str:
    """Return the style of a merge: all cells light up when the macro station has merged their models."""
    steps = ["0%{opacity:0}"]
    for number, merges in enumerate(merged, 1):
        if merges:
            steps += [f"{share(number - 0.2, total):.2f}%{{opacity:0}}", f"{share(number, total):.2f}%{{opacity:.8}}"]
            steps.append(f"{share(number + 0.7, total):.2f}%{{opacity:0}}")
    return f"@keyframes m{{{''.join(steps)}100%{{opacity:0}}}}"


def plot(pair: tuple[Story, Story], total: float) -> Iterator[str]:
    """Yield the chart of both curves: pale at first, and in full behind a cover that slides away."""
    left, top, width, height = PLOT
    last = len(pair[0].cells)
    yield f'<text x="{left}" y="{top - 12}" class="t">accuracy on all classes</text>'
    for percent in (0, 25, 50, 75, 100):
        y = top + height - height * percent / 100
        yield f'<text x="{left - 8}" y="{y + 4:g}" class="s" text-anchor="end">{percent}%</text>'
    for number in range(0, last + 1, 10):
        x = left + width * number / last
        yield f'<text x="{x:g}" y="{top + height + 16}" class="s" text-anchor="middle">{number}</text>'
    curves = [
        (colour, " ".join(f"{left + width * n / last:.1f},{top + height * (1 - a):.1f}" for n, a in story.accuracy))
        for story, colour in zip(pair, LINES, strict=True)
    ]
    for colour, points in curves:
        yield f'<polyline class="l" stroke="{colour}" points="{points}"/>'
    yield f'<g class="cover"><rect class="bg" x="{left + 1}" y="{top - 4}" width="{width + 2}" height="{height + 4}"/></g>'
    for colour, points in curves:  # the whole curves, pale, so that no still picture is empty
        yield f'<polyline class="l" stroke="{colour}" stroke-opacity="0.4" points="{points}"/>'
    yield f'<path class="x" d="M{left} {top}V{top + height}H{left + width}"/>'
    for text, colour, x in (("in place", LINES[0], left), ("on the move", LINES[1], left + 84)):
        yield f'<line x1="{x}" x2="{x + 18}" y1="{top + height + 34}" y2="{top + height + 34}" class="l" stroke="{colour}"/>'
        yield f'<text x="{x + 24}" y="{top + height + 38}" class="s">{text}</text>'
    yield f'<text x="{left + width}" y="{top + height + 38}" class="s" text-anchor="end">round</text>'


def counters(num_rounds: int, total: float) -> Iterator[str]:
    """Yield the number of the round, one text after the other, and what the colours mean."""
    yield '<text x="24" y="316" class="s">Dots are clients, coloured by the class of their home cell; frames flash when the</text>'
    yield '<text x="24" y="331" class="s">macro station merges the cells. One run of each, seed 1.</text>'
    on = share(1, total)
    yield f"<style>.n{{animation:n {total}s step-end infinite}}@keyframes n{{0%{{opacity:1}}{on:.3f}%,100%{{opacity:0}}}}"
    hold = share(1, total) + 100 * PAUSE_S / total
    yield f".z{{animation:z {total}s step-end infinite}}@keyframes z{{0%{{opacity:1}}{hold:.3f}%,100%{{opacity:0}}}}</style>"
    left, top, width, _ = PLOT
    for number in range(1, num_rounds + 1):
        late = (number - 1) * ROUND_S - total  # negative: every text is in phase from the start
        kind = "n z" if number == num_rounds else "n"
        style = f"animation-delay:{late:g}s"
        yield f'<text x="{left + width}" y="{top - 12}" text-anchor="end" class="s {kind}" style="{style}">round {number}</text>'


def newest_speed() -> Path:
    files = sorted((ROOT / "benchmarks/results").glob("*.json"))
    return next(file for file in reversed(files) if _has_peers(json.loads(file.read_text())))


def _has_peers(results: Mapping[str, Any]) -> bool:
    return any("seconds" in found["candidates"].get("fedjax", {}) for found in results.get("speed", {}).values())


def speed_chart(results: Mapping[str, Any]) -> alt.Chart:
    """Return how many times as fast as a plain PyTorch loop each framework is, by workload."""
    rows = []
    for workload, title in WORKLOADS.items():
        candidates = results["speed"][workload]["candidates"]
        for name, (_, *who) in FRAMEWORKS.items():
            times = [candidates[each]["times_plain"] for each in who if "times_plain" in candidates.get(each, {})]
            rows += [{"workload": title, "framework": name, "times": max(times)}] if times else []
    order, colours = list(FRAMEWORKS), [colour for colour, *_ in FRAMEWORKS.values()]
    panels = []
    for number, title in enumerate(WORKLOADS.values()):
        most = max(row["times"] for row in rows if row["workload"] == title)
        bars = alt.Chart(alt.Data(values=[row for row in rows if row["workload"] == title])).encode(
            y=alt.Y(
                "framework:N", sort=order, title=None, axis=None if number else alt.Axis(domain=False, ticks=False)
            ),
            x=alt.X("times:Q", axis=None, scale=alt.Scale(domain=[0, 1.35 * most])),  # room for the number
            color=alt.Color("framework:N", sort=order, scale=alt.Scale(domain=order, range=colours), legend=None),
        )
        labels = bars.mark_text(align="left", dx=3, fontSize=10).encode(
            text=alt.Text("times:Q", format=".2r"), color=alt.value("#222222")
        )
        panels.append(
            alt.layer(bars.mark_bar(), labels).properties(
                width=128, height=108, title=alt.TitleParams(title, anchor="start", frame="group")
            )
        )
    head = alt.TitleParams(
        "Rounds per second, as a multiple of a plain PyTorch loop",
        subtitle=[  # two lines, since fonts of viewers differ in width
            f"FedAvg; models with their number of parameters; {results['when'][:10]}, two cores, side by side in one run",
            "each panel has its own scale",
        ],
        anchor="start",
        offset=10,
    )
    return alt.hconcat(*panels, spacing=6).properties(title=head).configure(padding=PADDING, **_style())


def _style() -> dict[str, Any]:
    return {key: value for key, value in STYLE.items() if key in ("font", "background", "view", "axis")}


if __name__ == "__main__":
    main()
