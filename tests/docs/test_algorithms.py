"""Every algorithm has a page, and the page's options, costs and pictures agree with the code."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from fedge.algorithms import ALGORITHMS
from fedge.config import parse
from fedge.core.schema import tag

ROOT = Path(__file__).parents[2]
SECTIONS = ["Idea", "Equations", "Paper", "Options", "Costs", "A run", "When to use it"]
MAX_PICTURE_BYTES = 40_000


def load_script():
    spec = spec_from_file_location("make_algorithm_pages", ROOT / "scripts" / "make_algorithm_pages.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


script = load_script()
each_page = pytest.mark.parametrize("page", script.PAGES, ids=lambda page: page.stem)


def shared(raw):
    """Return the settings that must be equal in all runs."""
    amounts = {key: raw["algorithm"][key] for key in ("batch_size", "local_steps")}
    return {key: raw[key] for key in ("seeds", "rounds", "data")} | amounts


def test_every_algorithm_and_wrapper_has_one_page():
    pages = "".join(page.read_text("utf-8") for page in script.PAGES)
    described = " ".join(re.findall(r"<!-- options: (.*) -->", pages)).split()
    wrappers = {"personal", "codec", "cluster", "reduce", "evaluate.fine_tune_steps"}
    assert sorted(described) == sorted({tag(kind) for kind in ALGORITHMS} | wrappers)


def test_index_links_every_page_and_names_every_algorithm():
    index = (script.FOLDER / "index.md").read_text("utf-8")
    assert [page.name for page in script.PAGES if f"({page.name})" not in index] == []
    assert [tag(kind) for kind in ALGORITHMS if f"`{tag(kind)}`" not in index] == []


@each_page
def test_page_has_its_sections(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    assert all(part.strip() for part in re.split(r"^#+ .+$", text, flags=re.MULTILINE)[2:])


@each_page
def test_generated_parts_are_current(page):
    text = page.read_text("utf-8")
    assert script.filled(text) == text, "run `python scripts/make_algorithm_pages.py`"


@each_page
def test_runs_are_valid_and_comparable(page):
    reference, *_ = script.experiments(script.REFERENCE.read_text("utf-8"))
    runs = script.drawn(page)
    assert len({raw["name"] for raw in runs}) == len(runs)
    for raw in runs:
        parse(raw)
        assert shared(raw) == shared(reference)
        assert raw["selection"] == (reference["selection"] if page.stem != "dynavg" else {"fraction": 1.0})


@each_page
def test_picture_shows_the_runs_of_the_page(page):
    picture = page.with_suffix(".svg")
    text = picture.read_text("utf-8")
    assert f"]({picture.name})" in page.read_text("utf-8")
    assert text.startswith("<svg")
    assert len(text) < MAX_PICTURE_BYTES
    assert f"<!-- {script.digest(page)} -->" in text, f"run `make_algorithm_pages.py --pictures {page.stem}`"


@each_page
def test_curves_have_display_names(page):
    """A reader knows DynAvg-SVD; `dynavg_svd` is the experiment's name in a file."""
    named = re.findall(r"<text[^>]*>([^<]+)</text>", page.with_suffix(".svg").read_text("utf-8"))
    used = {raw["name"] for raw in script.drawn(page)} - {"median"}
    assert "FedAvg" in " ".join(named)
    assert used.isdisjoint(named)


def test_own_labels_are_of_curves_that_exist():
    raws = [raw for page in script.PAGES for raw in script.drawn(page)]
    known = {raw["name"] for raw in raws} | {"mean"}  # of the mean, `reduce` on the page of robust reducers
    assert sorted(set(script.LABELS) - known) == []


def test_no_picture_without_a_page():
    assert {picture.stem for picture in script.FOLDER.glob("*.svg")} == {page.stem for page in script.PAGES}


def test_digest_depends_on_the_experiment(tmp_path):
    page = tmp_path / "fedprox.md"
    text = (script.FOLDER / "fedprox.md").read_text("utf-8")
    page.write_text(text, "utf-8")
    before = script.digest(page)
    page.write_text(text.replace("prox = 0.1\n", "prox = 0.2\n"), "utf-8")
    assert before == script.digest(script.FOLDER / "fedprox.md")
    assert before != script.digest(page)


def test_commands_change_the_experiment():
    """Each `fedge run ... --set` below the block is the block with these changes."""
    block = '```toml\nname = "a"\n[algorithm]\nname = "fedavg"\n```\n'
    runs = script.experiments(f"{block}\nfedge run a.toml --set name=b --set 'algorithm.prox=1.0'\n")
    assert runs == [
        {"name": "a", "algorithm": {"name": "fedavg"}},
        {"name": "b", "algorithm": {"name": "fedavg", "prox": 1.0}},
    ]


@pytest.mark.parametrize(
    ("page", "row"),
    [
        ("fedavg", "| fedavg | 1 | 1 | 0 | 1 | 2 | 1 | 0 |"),
        ("scaffold", "| scaffold, option I | 2 | 2 | 1 | 3 | 4 | 1 | 1 |"),  # kept c_i; held y, drift, full gradient
        ("per_fedavg", "| per_fedavg, Hessian-free | 1 | 1 | 0 | 1 | 2 | 4 | 0 |"),
        ("fedgbo", "| fedgbo, adam | 3 | 1 | 0 | 3 | 8 | 1 | 0 |"),  # down x, m, v; up y; held y and the two terms of U
        ("dynavg", "| dynavg, silent | 0 | 0 | 2 | 1 | 2 | 1 | 0 |"),  # kept y and r
    ],
)
def test_costs_derived_by_hand(page, row):
    assert row in script.filled((script.FOLDER / f"{page}.md").read_text("utf-8"))


def test_option_table_lists_added_and_preset_options():
    text = script.filled((script.FOLDER / "fedopt.md").read_text("utf-8"))
    assert re.search(r'^\| `weighting` \| .* \| `"uniform"` \| `"samples"` \| `"uniform"` \|', text, re.MULTILINE)
    assert "`server_learning_rate`" in text
    assert "| `batch_size`" not in text
