"""Write the tables of docs/algorithms/ from the code, and draw the pictures.

python scripts/make_algorithm_pages.py                         # tables only
python scripts/make_algorithm_pages.py --pictures              # and all pictures: trains for about ten minutes
python scripts/make_algorithm_pages.py --pictures mtfl fedgbo  # and the pictures of two pages

Runs are stored in runs/algorithms and reused as long as the experiment on the page is unchanged.

Pictures show the mean of three seeds and each seed as a thin line, and no bands: the 95% confidence interval of three
seeds is 2.5 standard deviations to each side, which covers half a chart and hides the curves. Ten seeds would make it
0.7 and train three times as long (docs/decisions/intervals.md).
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
from make_reference import default, options_table, parts, row, table

import fedge
from fedge.algorithms import ALGORITHMS
from fedge.algorithms.options import TrainingOptions
from fedge.cli.options import Option, options, title
from fedge.config import Config, assignments, change, parse
from fedge.core.schema import structs
from fedge.costs import Forecast
from fedge.experiment.setup import Setup
from fedge.report.groups import group_runs
from fedge.report.labels import DisplayNames
from fedge.report.learning_curves import rounds_and_upload, save
from fedge.runs import Run

FOLDER = Path(__file__).parents[1] / "docs" / "algorithms"
PAGES = sorted(page for page in FOLDER.glob("*.md") if page.name != "index.md")
REFERENCE = FOLDER / "fedavg.md"
RUNS = Path("runs") / "algorithms"
LABELS = {
    "ce_fedavg-0.9": "CE-FedAvg, sparsity = 0.9",
    "clustered": "FedAvg, 2 clusters",
    "clustered-5": "FedAvg, 5 clusters",
    "compressed": "FedAvg, sparsity = 0.9",
    "sparser": "FedAvg, sparsity = 0.99",
    "sparser-feedback": "FedAvg, sparsity = 0.99, error feedback",
    "fedgbo": "FedGBO, Adam",
    "fedgbo-sgdm": "FedGBO, momentum",
    "fedmax-1": "FedMAX, α = 1",
    "fedprox-1": "FedProx, μ = 1",
    "fine-tuned": "FedAvg, fine-tuned",
    "mtfl": "MTFL-FedAvg",
    "mtfl-adam": "MTFL-FedAvg-Adam",
    "mean": "FedAvg (mean)",
    "trimmed_mean": "trimmed mean",
}
"""The curves' names, by the names of experiments and values that are not those of an algorithm."""

_PART = re.compile(r"(<!-- (options|costs):?(.*?)-->\n).*?(<!-- end -->)", re.DOTALL)
_SEED = 1
_BYTES = 4  # of a parameter
_COMMON = "[common options](../reference/configuration.md#algorithm)"

Raw = dict[str, Any]


def filled(text: str) -> str:
    """Return a page with its generated parts updated."""
    (raw, *_) = experiments(text)

    def make(part: re.Match[str]) -> str:
        opening, what, given, closing = part.groups()
        table = _options(given.strip()) if what == "options" else _costs(given.strip(), raw)
        return f"{opening}\n{table}\n\n{closing}"

    return _PART.sub(make, text)


def experiments(text: str) -> list[Raw]:
    """Return the experiment on a page, then one variant for each `fedge run ... --set` command below it."""
    found = re.search(r"^```toml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert found, "expected a ```toml block with the experiment that the page's picture shows"
    raw = tomllib.loads(found[1])
    commands = re.findall(r"^fedge run \S+\.toml (--set .*)$", text.replace("\\\n", " "), re.MULTILINE)
    return [raw, *(change(raw, assignments(shlex.split(command)[1::2])) for command in commands)]


def drawn(page: Path) -> list[Raw]:
    """Return the experiments of a page's picture: FedAvg with the same data, model and selection, then its own."""
    found = experiments(page.read_text("utf-8"))
    shared = {key: found[0][key] for key in ("data", "model", "selection")}
    fedavg = {**experiments(REFERENCE.read_text("utf-8"))[0], **shared}
    if _is_personal(found[0]):
        fedavg["evaluate"] = {"user_accuracy": True}
    return [fedavg, *(raw for raw in found if raw != fedavg)]


def digest(page: Path) -> str:
    """Return a hash of a page's experiments, which the picture file holds in its last line."""
    return _hash(drawn(page))


def draw(page: Path) -> None:
    """Train the experiments of a page that were not trained before, and write its picture."""
    shown = drawn(page)
    y = "user_accuracy" if _is_personal(shown[0]) else "accuracy"
    groups = group_runs([run for raw in shown for run in _trained(raw)], DisplayNames(LABELS))
    picture = page.with_suffix(".svg")
    save(rounds_and_upload(groups, y), picture)
    picture.write_text(f"{_slim(picture.read_text('utf-8'))}\n<!-- {digest(page)} -->\n", "utf-8")


def _trained(raw: Raw) -> list[Run]:
    path = RUNS / _hash(raw)
    if not path.exists():
        fedge.run(raw, runs=path)
    runs = list(fedge.find_runs(path))
    if any(run.summary is None for run in runs) or len(runs) != len(raw["seeds"]):
        raise SystemExit(f"{path}: training was interrupted; remove this folder and rerun")
    return runs


def _hash(value: object) -> str:
    return blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()


def _slim(svg: str) -> str:
    """Remove what does not affect an image on a page: names of its parts, defaults, a font named more than once, empty
    paths, and digits beyond a tenth of a pixel."""
    svg = re.sub(r' (?:class|role|pointer-events|aria-[a-z]+|opacity="1"|font-weight="normal")(?:="[^"]*")?', "", svg)
    svg = re.sub(r'<path d="(?:M0,0h0v0h0Z)?"[^>]*/>|<g[^>]*></g>', "", svg)
    (font,) = set(re.findall(r' font-family="[^"]*"', svg))
    svg = svg.replace(font, "").replace("<svg", f"<svg{font}", 1)
    return re.sub(r' (?:d|transform)="[^"]*"', lambda places: _rounded(places[0]), svg).rstrip()


def _rounded(text: str) -> str:
    return re.sub(r"\d+\.\d{2,}", lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), text)


def _is_personal(raw: Raw) -> bool:
    return bool(raw.get("evaluate", {}).get("user_accuracy"))


def _options(given: str) -> str:
    """Return the options that algorithms add or preset, or all options of a table of the experiment file."""
    algorithms = {title(kind): kind for kind in ALGORITHMS}
    names = given.split()
    if all(name in algorithms for name in names):
        return _compared({name: {option.name: option for option in options(algorithms[name])} for name in names})
    name, _, key = given.partition(".")
    (field,) = (field for field in msgspec.structs.fields(Config) if field.name == name)
    kinds = structs(field.type)
    if not key:
        return "\n\n".join(parts(kinds))
    return options_table([option for option in options(kinds[0]) if option.name == key])


def _compared(found: Mapping[str, Mapping[str, Option]]) -> str:
    """Return one row for each option that is not common to all algorithms or whose default differs."""
    common = {option.name: option.default for option in options(TrainingOptions)}
    rows = {
        option.name: option
        for own in found.values()
        for option in own.values()
        if option.name not in common or option.default != common[option.name]
    }
    if not rows:
        return f"Only the {_COMMON}."
    head = ["option", "meaning", "type", *(f"`{name}`" if len(found) > 1 else "default" for name in found)]
    lines = [row(option, [default(own[option.name]) for own in found.values()]) for option in rows.values()]
    return f"{table(head, lines)}\n\nAlso the {_COMMON}."


def _costs(given: str, raw: Raw) -> str:
    """Return one row for each line `label: a.b=v c.d=w`, which changes the page's experiment."""
    head = ("", "down", "up", "kept", "memory", "FLOPs", "gradients", "full gradients")
    lines = (line.partition(":") for line in given.splitlines())
    rows = [
        row
        for label, _, changes in lines
        for row in _costs_of(label.strip(), change(raw, assignments(shlex.split(changes))))
    ]
    return f"{table(head, rows)}\n\n[What the columns mean](index.md#costs)."


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
    """Return the reference experiment with a model, given as JSON; cached, because building the data takes longest."""
    return Setup.of(parse({**experiments(REFERENCE.read_text("utf-8"))[0], "model": json.loads(model)}), _SEED)


def _cells(forecast: Forecast, setup: Setup) -> Iterator[str]:
    quote, parts, size = forecast.quote(), forecast.parts, setup.network.layout.num_params * _BYTES
    works = [setup.algorithm.works[part.work] for part in parts]
    vectors = (quote.bytes_down / size, quote.bytes_up / size, quote.kept, quote.memory)
    yield from (f"{round(vector, 2 if vector >= 0.1 else 3):g}" for vector in vectors)
    yield str(max(work.flops_per_param for work in works if work.trains))
    yield str(sum(part.gradients.step for part in parts))
    yield str(sum(part.gradients.full for part in parts))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the tables of docs/algorithms/ and draw the pictures.")
    parser.add_argument(
        "--pictures", nargs="*", metavar="PAGE", help="train and draw the pictures of these pages (default: all)"
    )
    wanted = parser.parse_args().pictures
    for page in PAGES:
        page.write_text(filled(page.read_text("utf-8")), "utf-8")
    for page in PAGES:
        if wanted is not None and (not wanted or page.stem in wanted):
            draw(page)
