"""The documentation is true: links lead somewhere, tables list what the code has, and examples have its numbers."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
import torch
from torch import Tensor

import fedge
from docs.pages import DOCS, PAGES, ROOT, blocks, name_of, prose
from federation import ENGINES, Federation, mixed
from fedge.algorithms import ALGORITHMS
from fedge.algorithms.mtfl import mtfl
from fedge.cli.catalogue import brief
from fedge.cli.errors import EXIT_CODES
from fedge.config import EngineOptions, parse, plain
from fedge.core import message
from fedge.core.algorithm import Algorithm, Build, Context, Exchange, Info
from fedge.core.answer import Request
from fedge.core.effect import paths_without_effect
from fedge.core.errors import TrainingError
from fedge.core.fields import FIELDS
from fedge.core.layout import Layout, Tree
from fedge.core.reduction import Answer, Effort
from fedge.core.schema import read, tag
from fedge.core.slots import Slot
from fedge.data import DATASETS, PARTITIONS
from fedge.models import MODELS
from fedge.runs.environment import environment
from fedge.runs.files import RunMark, encode_config

CATALOGUE = DOCS / "catalogue.md"
ALGORITHM_PAGE = DOCS / "algorithm-in-80-lines.md"


def anchors(page: Path) -> set[str]:
    """What links may name, as GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def rows(text: str, head: str) -> dict[str, str]:
    """Names in the first column of all tables with that head, and the rest of each row."""
    found: dict[str, str] = {}
    for table in re.findall(rf"^\| {head} \|.*\n\|[-| ]+\n((?:\|.*\n)+)", text, re.MULTILINE):
        for line in table.splitlines():
            first, _, rest = line[1:].partition(" | ")
            found |= dict.fromkeys(re.findall(r"`([^`]+)`", first), rest)
    return found


def section(page: Path, heading: str) -> str:
    return prose(page).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_decision_is_in_their_index() -> None:
    index = prose(DOCS / "decisions" / "index.md")
    pages = [page.name for page in (DOCS / "decisions").glob("*.md") if page.name != "index.md"]
    assert [name for name in pages if f"]({name})" not in index] == []


@pytest.mark.parametrize(
    ("head", "kinds"),
    [("algorithm", ALGORITHMS), ("data set", DATASETS), ("partition", PARTITIONS), ("model", MODELS)],
    ids=("algorithms", "data sets", "partitions", "models"),
)
def test_catalogue_lists_what_is_included(head: str, kinds: Sequence[Any]) -> None:
    listed = rows(CATALOGUE.read_text("utf-8"), head)
    assert set(listed) == {tag(kind) for kind in kinds} - {None}
    for kind in kinds:
        if "num_params" in (facts := brief(kind)):
            assert listed[facts["name"]].partition(" | ")[0] in ("–", f"{facts['num_params']:,}")


def test_catalogue_lists_engines() -> None:
    assert set(rows(CATALOGUE.read_text("utf-8"), "engine")) == set(get_args(get_type_hints(EngineOptions)["name"]))


def test_decisions_have_the_same_sections() -> None:
    for page in (DOCS / "decisions").glob("*.md"):
        if page.name != "index.md":
            assert re.findall(r"^## (.+)$", prose(page), re.MULTILINE) == ["Context", "Decision", "Consequence"], page


def test_every_field_of_a_run_directory_is_described(folder: Path) -> None:
    everything = {
        "rounds": 1,
        "data": {"name": "digits", "clients": 5, "noise": {"fraction": 0.4, "std": 1.0}, "validation": 0.2},
        "model": "logistic",
        "algorithm": {"name": "fedsgd", "local_steps": 1},
        "selection": {"fraction": 1.0},
        "evaluate": {"user_accuracy": True, "after_training": True, "train": True, "cosine_distance": True},
        "trace": {},
    }
    run = fedge.run(everything)
    by_epochs = fedge.run(everything, **{"algorithm.local_steps": None, "algorithm.local_epochs": 1})
    cells = {"clock": "cells", "cells": 2, "record": True}
    by_cells = fedge.run(everything, algorithm="dynavg_svd", edge=cells)
    assert isinstance(run, fedge.Run)
    assert isinstance(by_epochs, fedge.Run)
    assert isinstance(by_cells, fedge.Run)
    described = {
        name: set(rows(section(DOCS / "run-directory.md", name), "field"))
        for name in ("environment.json", "edge.jsonl", "clients.jsonl")
    }
    assert described == {
        "environment.json": {*environment(), "engine"},
        "edge.jsonl": set(by_cells.edge[0]),
        "clients.jsonl": {*run.clients[0], *by_cells.clients[0]},
    }
    assert set(rows(section(DOCS / "reference" / "fields.md", "In the summary"), "field")) == set(run.summary or ())
    elsewhere = {"void", "rejected", "late", "declined", "clock"}  # not in rounds like these
    recorded = {*run.rounds[0], *by_epochs.rounds[0], *by_cells.rounds[0]}
    assert {field.name for field in FIELDS} == recorded | elsewhere
    files = {path.name for each in (run, by_cells) for path in each.path.rglob("*") if path.is_file()}
    listed = {Path(name).name for name in rows(prose(DOCS / "run-directory.md"), "file")}
    assert files <= listed


def test_the_other_entries_of_config_json_are_documented() -> None:
    text = section(DOCS / "run-directory.md", "config.json")
    settings = plain(parse({"data": "digits", "model": "logistic", "algorithm": "fedavg"}))
    stored = msgspec.json.decode(encode_config(settings, RunMark()))
    assert set(rows(text, "key")) == stored.keys() - settings.keys()
    (sentence,) = re.findall(r"These do not: ([^.]+(?:\.\w+[^.]+)*)\. ", text)
    assert sorted(re.findall(r"`([^`]+)`", sentence)) == sorted(paths_without_effect(parse(settings)))


def test_exit_codes_are_those_of_the_command() -> None:
    found = re.findall(r"^\| (\d+) \| (.+) \|$", section(DOCS / "run-directory.md", "Exit codes"), re.MULTILINE)
    assert {int(code): meaning for code, meaning in found} == EXIT_CODES


def test_costs_of_the_example(folder: Path) -> None:
    """Concepts explains the first round of the README's experiment; all but the seconds are whole numbers."""
    (experiment,) = (block for block in blocks(ROOT / "README.md") if block.title)
    run = fedge.run({**tomllib.loads(experiment.text), "rounds": 1})
    assert isinstance(run, fedge.Run)
    record, explained = run.rounds[0], section(DOCS / "concepts.md", "Costs")
    assert record["local_steps"] == 38
    for cost in ("bytes_down", "bytes_up", "flops"):
        assert f"{record[cost]:,}" in explained
    computed, waited = record["sim_compute_s"], record["sim_wait_s"]
    assert f"{record['sim_seconds']:.3f}; a client computes for {computed:.3f} and waits for {waited:.3f}" in explained
    assert f": {record['energy_j']:.2f} |" in explained


def test_message_example() -> None:
    (example,) = blocks(DOCS / "messages.md")
    data = bytes.fromhex("".join(line.partition("  ")[0] for line in example.text.splitlines()))
    meta, tree = message.unpack(data, message.WorkAnswer)
    assert repr(meta) == "WorkAnswer(client=3, samples=20, steps=0, batches=0, grad_samples=0, loss=nan, problem='')"
    assert {name: (value.dtype, value.tolist()) for name, value in tree.items()} == {
        "x": (torch.float32, [1.0, -2.0]),
        "t": (torch.int64, [3]),
    }
    assert message.pack(meta, tree) == data


def test_message_keys() -> None:
    page = section(DOCS / "messages.md", "Requests and answers")
    request, answer = page.partition("## Evaluation")[0].split("The entries of an answer")
    info = Info(round=1, rate=0.1, num_steps=1, num_epochs=None, num_clients=1, seed=1)
    sent = Request(Exchange("train", {}, ()), info, {}).meta(), Answer(0, 1, Effort(), {}, "why").meta()
    for part, meta in zip((request, answer), sent, strict=True):
        assert set(rows(part, "key")) == set(msgspec.to_builtins(meta))


def test_message_limits() -> None:
    found = re.findall(r"^\| .* \| ([\d,]+) ?(\w*)", section(DOCS / "messages.md", "Limits"), re.MULTILINE)
    units = {"MiB": 1 << 20, "GiB": 1 << 30}
    assert [int(number.replace(",", "")) * units.get(unit, 1) for number, unit in found] == [
        message.MAX_ENTRIES,
        message.MAX_NAME_BYTES,
        message.MAX_DIMENSIONS,
        message.MAX_HEADER_BYTES + 8,
        message.MAX_BYTES,
        message.MAX_BYTES,
    ]


@pytest.fixture
def written(folder: Path) -> dict[str, ModuleType]:
    """The modules of the page about algorithms."""
    files = [block for block in blocks(ALGORITHM_PAGE) if block.title.endswith(".py")]
    for block in files:
        (folder / block.title).write_text(block.text, "utf-8")
    return {block.title: __import__(Path(block.title).stem) for block in files}


def test_algorithms_of_the_page_are_small() -> None:
    for block in blocks(ALGORITHM_PAGE):
        if block.title:
            assert len(block.text.splitlines()) < 80


@pytest.mark.parametrize("private", [None, "bn", ["1.*", "4.bias"]], ids=str)
@pytest.mark.parametrize(
    ("file", "name"), [("server_momentum.py", "FedAvgM"), ("proximal.py", "FedProxM")], ids=("momentum", "proximal")
)
def test_engines_agree_on_the_page(file: str, name: str, private: Any, written: dict[str, ModuleType]) -> None:
    build: Build = getattr(written[file], name)().build
    build = mtfl(build, private) if private else build
    loop, wire, block = (Federation(build, mixed(), engine).rounds(3).everything() for engine in ENGINES)
    assert loop.keys() == wire.keys() == block.keys()
    for key, value in loop.items():
        assert torch.equal(wire[key], value), key
        torch.testing.assert_close(block[key], value, rtol=1e-9, atol=1e-12)


def test_options_of_the_page_are_checked(written: dict[str, ModuleType]) -> None:
    kind = written["server_momentum.py"].FedAvgM
    assert read({"beta": 0.5}, kind, "algorithm") == kind(beta=0.5)
    with pytest.raises(fedge.FedgeError, match=r"algorithm\.beta"):
        read({"beta": 1.0}, kind, "algorithm")


def subtract_in_place(local: Tree, g: Tensor, ctx: Context) -> Tree:
    local["y"].sub_(g, alpha=ctx.rate)
    return local


def divide_by_norm(local: Tree, g: Tensor, ctx: Context) -> Tree:
    return {**local, "y": local["y"] - ctx.rate * g / g.norm()}


def halve_if_large(local: Tree, g: Tensor, ctx: Context) -> Tree:
    return {**local, "y": local["y"] - ctx.rate * (g / 2 if (g * g).sum() > 1.5 else g)}


def add_noise(local: Tree, g: Tensor, ctx: Context) -> Tree:
    return {**local, "y": local["y"] - ctx.rate * (g + torch.randn_like(g))}


@pytest.mark.parametrize("step", [subtract_in_place, divide_by_norm, halve_if_large, add_noise])
def test_broken_rule_makes_engines_differ(step: Callable[..., Tree], written: dict[str, ModuleType]) -> None:
    build = replacing(written["server_momentum.py"].FedAvgM().build, step=step, affine=None)
    loop, block = (Federation(build, mixed(), engine).rounds(2).state["x"] for engine in ("loop", "block"))
    assert not torch.allclose(loop, block, rtol=1e-6)


@pytest.mark.parametrize(
    ("upload", "kept", "error", "said"),
    [
        ({}, {}, TypeError, "final must pass on 'stats'"),
        ({"stats": None, "new": torch.ones(1)}, {}, KeyError, "new"),
        ({"stats": None, "q": torch.tensor(1.0)}, {}, IndexError, "0-dim"),
        ({"stats": None}, {"z": torch.ones(1)}, TrainingError, "its private state changed names, shapes or dtypes"),
    ],
    ids=("no stats", "no slot", "no dimension", "other form"),
)
def test_broken_rule_raises(
    upload: dict[str, Tensor | None],
    kept: Tree,
    error: type[Exception],
    said: str,
    written: dict[str, ModuleType],
) -> None:
    def final(down: Tree, local: Tree, before: Tree, ctx: Context) -> tuple[Tree, Tree]:
        given = {name: local[name] if value is None else value for name, value in upload.items()}
        return {"y": local["y"], **given}, kept or before

    build = replacing(written["server_momentum.py"].FedAvgM().build, final=final)
    with pytest.raises(error, match=said):
        Federation(build, mixed(), "block").round()


def replacing(build: Build, **parts: Any) -> Build:
    """The algorithm with some parts of its work replaced, and a slot for a scalar `q`."""

    def changed(layout: Layout) -> Algorithm:
        algorithm = build(layout)
        works = {"train": algorithm.works["train"]._replace(**parts)}
        return algorithm._replace(works=works, slots={**algorithm.slots, "q": Slot("scalar")})

    return changed
