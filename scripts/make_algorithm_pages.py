"""Fill the tables of docs/algorithms/ from the code, and draw its pictures.

python scripts/make_algorithm_pages.py                         # the tables
python scripts/make_algorithm_pages.py --pictures              # and all pictures: trains for some ten minutes
python scripts/make_algorithm_pages.py --pictures mtfl fedgbo  # and some of them

Runs are kept in runs/algorithms and are not trained again while the page says the same.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

import fedge
from fedge.algorithms import ALGORITHMS
from fedge.algorithms.options import TrainingOptions
from fedge.cli.options import Option, options, title
from fedge.config import Config, assignments, change, parse
from fedge.core.schema import structs, tag
from fedge.costs import Forecast
from fedge.experiment.setup import Setup
from fedge.report.groups import RunGroup
from fedge.report.learning_curves import curves, save, side_by_side
from fedge.report.style import need

FOLDER = Path(__file__).parents[1] / "docs" / "algorithms"
PAGES = sorted(page for page in FOLDER.glob("*.md") if page.name != "index.md")
REFERENCE = FOLDER / "fedavg.md"
RUNS = Path("runs") / "algorithms"

_PART = re.compile(r"(<!-- (options|costs):?(.*?)-->\n).*?(<!-- end -->)", re.DOTALL)
_SEED = 1
_BYTES = 4  # of a parameter
_COMMON = "[common ones](../reference/configuration.md#algorithm)"

Raw = dict[str, Any]


def filled(text: str) -> str:
    """A page with its generated parts made anew."""
    (raw, *_) = experiments(text)

    def make(part: re.Match[str]) -> str:
        opening, what, given, closing = part.groups()
        table = _options(given.strip()) if what == "options" else _costs(given.strip(), raw)
        return f"{opening}\n{table}\n\n{closing}"

    return _PART.sub(make, text)


def experiments(text: str) -> list[Raw]:
    """The experiment on a page, and what each `fedge run` below it makes of it."""
    found = re.search(r"^```toml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert found, "a page has a ```toml block with the experiment that its picture shows"
    raw = tomllib.loads(found[1])
    commands = re.findall(r"^fedge run \S+\.toml (--set .*)$", text, re.MULTILINE)
    return [raw, *(change(raw, assignments(shlex.split(command)[1::2])) for command in commands)]


def drawn(page: Path) -> list[Raw]:
    """All that a page's picture shows: FedAvg under the same circumstances, and the page's own experiments."""
    found = experiments(page.read_text("utf-8"))
    circumstances = {key: found[0][key] for key in ("data", "model", "selection")}
    fedavg = {**experiments(REFERENCE.read_text("utf-8"))[0], **circumstances}
    if _is_personal(found[0]):
        fedavg["evaluate"] = {"user_accuracy": True}
    return [fedavg, *(raw for raw in found if raw != fedavg)]


def digest(page: Path) -> str:
    """Tells pictures of other experiments apart; it stands at the end of the file."""
    return _hash(drawn(page))


def draw(page: Path) -> None:
    """Train what a page's picture shows, as far as it was not trained before, and write the picture."""
    shown = drawn(page)
    y = "user_accuracy" if _is_personal(shown[0]) else "accuracy"
    groups = [_trained(raw) for raw in shown]
    picture = page.with_suffix(".svg")
    save(side_by_side([_bounded(curves(groups, x, y)) for x in ("round", "bytes_up")]), picture)
    picture.write_text(f"{_slim(picture.read_text('utf-8'))}\n<!-- {digest(page)} -->\n", "utf-8")


def _trained(raw: Raw) -> RunGroup:
    path = RUNS / _hash(raw)
    if not path.exists():
        fedge.run(raw, runs=path)
    runs = list(fedge.find_runs(path))
    if any(run.summary is None for run in runs) or len(runs) != len(raw["seeds"]):
        raise SystemExit(f"{path}: its training was interrupted; remove it, and start again")
    return RunGroup(raw["name"], runs)


def _hash(value: object) -> str:
    return blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()


def _bounded(chart: Any) -> Any:
    """From 0 to 100%: the interval of three seeds may reach beyond what an accuracy can be."""
    chart.layer[1].encoding.y.scale = need("altair").Scale(domain=[0, 100], clamp=True)
    return chart


def _slim(svg: str) -> str:
    """Without what an image on a page cannot show: names of its parts, and more digits than a tenth of a pixel."""
    svg = re.sub(r' (?:class|role|pointer-events|aria-[a-z]+)="[^"]*"', "", svg)
    return re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.1f}", svg).rstrip()


def _is_personal(raw: Raw) -> bool:
    return bool(raw.get("evaluate", {}).get("user_accuracy"))


def _options(given: str) -> str:
    """Of algorithms, what they add or preset otherwise; of a table of the experiment file, all of it."""
    algorithms = {title(kind): kind for kind in ALGORITHMS}
    names = given.split()
    if all(name in algorithms for name in names):
        return _compared({name: {option.name: option for option in options(algorithms[name])} for name in names})
    table, _, key = given.partition(".")
    (field,) = (field for field in msgspec.structs.fields(Config) if field.name == table)
    return "\n\n".join(_of_kind(kind, key) for kind in structs(field.type))


def _compared(found: Mapping[str, Mapping[str, Option]]) -> str:
    """One row for an option that is not common to all or has not its common default, with those it has."""
    common = {option.name: option.default for option in options(TrainingOptions)}
    rows = {
        option.name: option
        for own in found.values()
        for option in own.values()
        if option.name not in common or option.default != common[option.name]
    }
    if not rows:
        return f"None but the {_COMMON}."
    head = ["option", "type", *(f"`{name}`" if len(found) > 1 else "default" for name in found), "meaning"]
    lines = [
        [f"`{o.name}`", o.type, *(f"`{own[o.name].default}`" for own in found.values()), o.meaning]
        for o in rows.values()
    ]
    return f"{_table(head, lines)}\n\nAnd the {_COMMON}."


def _of_kind(kind: type[Struct], key: str) -> str:
    found = [option for option in options(kind) if not key or option.name == key]
    named = f'`name = "{title(kind)}"`' if tag(kind) else ""
    if not found:
        return f"{named} has none."
    table = _table(
        ("option", "type", "default", "meaning"), [(f"`{o.name}`", o.type, f"`{o.default}`", o.meaning) for o in found]
    )
    return f"{named}:\n\n{table}" if named else table


def _costs(given: str, raw: Raw) -> str:
    """A row for each line `label: a.b=v c.d=w`, changes of the page's experiment."""
    head = ("", "down", "up", "kept", "memory", "FLOPs", "gradients", "full gradients")
    lines = (line.partition(":") for line in given.splitlines())
    rows = [
        row
        for label, _, changes in lines
        for row in _costs_of(label.strip(), change(raw, assignments(shlex.split(changes))))
    ]
    return f"{_table(head, rows)}\n\n[What the columns mean](index.md#costs)."


def _costs_of(label: str, raw: Raw) -> Iterator[list[str]]:
    config = parse(raw)
    setup = _setup(json.dumps(raw["model"])).variant(config)
    forecast = Forecast(setup)
    if len(forecast.parts) == 1:
        yield [label, *_cells(forecast, setup)]
    else:
        yield [f"{label}, silent", *_cells(Forecast(setup, still=True), setup)]
        yield [f"{label}, at most", *_cells(forecast, setup)]


@cache
def _setup(model: str) -> Setup:
    """The reference experiment with a model, given as JSON; made once, as making the data takes longest."""
    return Setup.of(parse({**experiments(REFERENCE.read_text("utf-8"))[0], "model": json.loads(model)}), _SEED)


def _cells(forecast: Forecast, setup: Setup) -> Iterator[str]:
    quote, parts, size = forecast.quote(), forecast.parts, setup.network.layout.num_params * _BYTES
    works = [setup.algorithm.works[part.work] for part in parts]
    vectors = (quote.bytes_down / size, quote.bytes_up / size, quote.kept, quote.memory)
    yield from (f"{round(vector, 2 if vector >= 0.1 else 3):g}" for vector in vectors)
    yield str(max(work.flops_per_param for work in works if work.trains))
    yield str(sum(part.gradients.step for part in parts))
    yield str(sum(part.gradients.full for part in parts))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fill the tables of docs/algorithms/ and draw its pictures.")
    parser.add_argument("--pictures", nargs="*", metavar="PAGE", help="train and draw: all pages, or these")
    wanted = parser.parse_args().pictures
    for page in PAGES:
        page.write_text(filled(page.read_text("utf-8")), "utf-8")
    for page in PAGES:
        if wanted is not None and (not wanted or page.stem in wanted):
            draw(page)
