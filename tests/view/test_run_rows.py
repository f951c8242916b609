"""The table of runs: choices, values of cells, sorting and grouping."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from benchmarks.page_runs import make_records, make_run
from starlette.datastructures import QueryParams

from fedge.view.notes import RunNote
from fedge.view.selection import RunSelection
from fedge.view.workspace import Workspace

Page = Callable[[str], dict[str, Any]]


@pytest.fixture
def space(runs: Path) -> Workspace:
    made = Workspace(runs)
    made.refresh()
    return made


@pytest.fixture
def table(space: Workspace) -> Page:
    return lambda query="": space.table.page(RunSelection.parse(QueryParams(query)))


def cells(page: dict[str, Any], name: str) -> dict[str, Any]:
    return {row["path"]: row["values"][name]["value"] for row in page["rows"]}


def test_choices_of_filters_and_columns(tmp_path: Path) -> None:
    for seed in (1, 2):
        make_run(tmp_path / f"s{seed}", seed, data={"name": "digits", **({"own": seed} if seed == 2 else {})})
    made = Workspace(tmp_path)
    made.refresh()
    choices = made.table.choices()
    assert choices.settings == {"seed": [1, 2], "data.own": [2]}  # which one of them does not have
    assert (choices.same["model.name"], choices.same["name"]) == ("logistic", tmp_path.name)
    assert not choices.same.keys() & choices.settings.keys()
    assert {"accuracy", "bytes", "bytes_to_target", "rounds_to_target"} <= set(choices.results)
    assert "ended_by" not in choices.results  # a text
    assert len(choices.results) == len(set(choices.results))


def test_at_most_fifty_values_of_a_setting_are_offered(tmp_path: Path) -> None:
    for seed in range(52):
        make_run(tmp_path / f"s{seed}", seed, 1)
    made = Workspace(tmp_path)
    made.refresh()
    assert len(made.table.choices().settings["seed"]) == 50


def test_choices_change_only_with_the_runs(space: Workspace, runs: Path) -> None:
    before = space.table.choices()
    with (runs / "begun/seed-1/rounds.jsonl").open("a") as file:
        file.write(json.dumps(make_records(1, 5)[-1]) + "\n")
    space.index.scan()
    assert space.table.choices() is before
    with (runs / "begun/seed-1/rounds.jsonl").open("a") as file:
        file.write('{"round": 6, "own_field": 1.0}\n')
    space.index.scan()
    assert "own_field" not in before.results
    changed = space.table.choices()
    assert changed is not before
    make_run(runs / "new" / "seed-9", 9)
    space.index.scan()
    assert 9 in space.table.choices().settings["seed"]
    (runs / "new/seed-9/rounds.jsonl").write_text("nonsense\n")
    space.index.scan()
    assert 9 not in space.table.choices().settings["seed"]


def test_columns_without_a_choice(table: Page) -> None:
    names = [column["name"] for column in table("")["columns"]]
    assert names[:2] == ["seed", "algorithm.learning_rate"]
    assert names[2:] == ["accuracy", "rounds_to_target", "bytes_to_target", "sim_seconds_to_target"]
    of_settings = [column["name"] for column in table("group=settings")["columns"]]
    assert of_settings == names[1:]  # a group is over all seeds


def test_at_most_four_settings_are_columns(tmp_path: Path) -> None:
    for i in (1, 2):
        own = {f"own{j}": i for j in range(5)}
        made = {"data": {"name": "digits", **own}, "model": {"name": f"m{i}"}}
        make_run(tmp_path / f"s{i}", i, i, 0.1 * i, **made)
    space = Workspace(tmp_path)
    space.refresh()
    names = [column["name"] for column in space.table.page(RunSelection())["columns"]]
    assert names[:2] == ["seed", "algorithm.learning_rate"]
    assert len([name for name in names if "." in name or name == "seed"]) == 4
    assert "rounds" not in names


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("algorithm.learning_rate", {"title": "algorithm.learning_rate", "role": "setting", "better": "neither"}),
        ("model.name", {"title": "model.name", "role": "setting", "unit": ""}),
        ("config.seed", {"role": "setting"}),
        ("accuracy", {"title": "accuracy", "role": "result", "better": "higher", "unit": "%", "which": "best"}),
        ("rounds_to_target", {"role": "result", "better": "lower", "which": ""}),
    ],
)
def test_the_description_of_a_column(table: Page, name: str, expected: dict[str, str]) -> None:
    (column,) = table(f"column={name}&values=best")["columns"]
    assert expected.items() <= column.items()


def test_values_of_cells(table: Page) -> None:
    query = "column=seed&column=accuracy&column=rounds_to_target&column=bytes&column=model.name&column=config.rounds"
    rows = {row["path"]: row["values"] for row in table(query)["rows"]}
    done = rows["rate-0.3/seed-1"]
    records = make_records(1, 10, 0.3)
    assert done["seed"] == {"value": 1, "text": "1"}
    assert done["model.name"] == {"value": "logistic", "text": "logistic"}
    assert done["config.rounds"] == {"value": 10, "text": "10"}
    assert done["accuracy"] == {"value": records[-1]["accuracy"], "text": f"{100 * records[-1]['accuracy']:.2f}%"}
    assert done["bytes"]["value"] == 10 * (316_200 + 315_560)
    assert done["bytes"]["text"] == "6.318 MB"
    assert rows["rate-0.1/seed-1"]["rounds_to_target"] == {"value": None, "text": "not reached"}
    begun = rows["begun/seed-1"]
    assert begun["rounds_to_target"] == {"value": None, "text": "–"}  # it may be reached yet
    assert begun["bytes"] == {"value": None, "text": "–"}
    assert begun["accuracy"]["value"] == make_records(1, 4)[-1]["accuracy"]


def test_the_best_value_of_a_run_that_has_not_ended(space: Workspace, table: Page, runs: Path) -> None:
    lines = [{"round": i, "accuracy": value, "loss": value} for i, value in enumerate((0.1, 0.7, 0.3), 1)]
    (runs / "begun/seed-1/rounds.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    space.index.scan()
    query = "column=accuracy&column=loss&where=path=begun/seed-1"
    assert cells(table(f"{query}&values=best"), "accuracy") == {"begun/seed-1": None}  # its records are not read yet
    list(space.histories.refresh(space.index.entries.values()))
    found = table(f"{query}&values=best")
    assert cells(found, "accuracy") == {"begun/seed-1": 0.7}
    assert cells(found, "loss") == {"begun/seed-1": None}  # of one metric alone the curve is known
    assert cells(table(query), "accuracy") == cells(table(query), "loss") == {"begun/seed-1": 0.3}
    at = table(f"{query}&values=at&round=1")
    assert cells(at, "accuracy") == cells(at, "loss") == {"begun/seed-1": 0.1}


def paths(page: dict[str, Any]) -> list[str]:
    return [row["path"] for row in page["rows"]]


def test_sorting(table: Page) -> None:
    everything = paths(table(""))
    assert paths(table("sort=path")) == sorted(everything)
    assert paths(table("sort=-path")) == sorted(everything, reverse=True)
    by_seed = table("sort=-seed")
    assert [row["values"]["seed"]["value"] for row in by_seed["rows"]] == [3, 3, 2, 2, 1, 1, 1, None]
    assert paths(by_seed)[-1] == "broken/seed-1"
    assert paths(table("sort=status"))[:6] == [path for path in everything if path.startswith("rate")]
    assert paths(table("sort=rounds"))[:2] == ["broken/seed-1", "begun/seed-1"]


def test_rows_with_a_tag_come_first_when_sorted_by_tags(space: Workspace, table: Page) -> None:
    keys = {entry.path: entry.note_key for entry in space.index.entries.values()}
    space.notes.write(keys["rate-0.3/seed-3"], RunNote(("b",), "x"))
    space.notes.write(keys["begun/seed-1"], RunNote(("a",)))
    assert paths(table("sort=tag"))[:2] == ["begun/seed-1", "rate-0.3/seed-3"]
    assert paths(table("sort=-tag"))[:2] == ["rate-0.3/seed-3", "begun/seed-1"]
    assert paths(table("where=note=x")) == ["rate-0.3/seed-3"]
    assert paths(table("where=tag=")) == []
    (row,) = table("where=tag=b")["rows"]
    assert (row["tags"], row["note"], row["started"]) == (["b"], "x", "2026-11-18 04:17")


@pytest.mark.parametrize(
    ("words", "number"),
    [("DIGITS", 7), ("fedavg rate-0.3", 3), ("rate-0.3 seed-1", 1), ("rate-0.1 rate-0.3", 0), ("nothing", 0)],
)
def test_search(table: Page, words: str, number: int) -> None:
    assert table(f"q={words.replace(' ', '+')}")["matching"] == number


def test_search_by_id_and_after_a_change(space: Workspace, table: Page, runs: Path) -> None:
    file = runs / "begun/seed-1/config.json"
    config = json.loads(file.read_text())
    assert paths(table(f"q={config['id']}")) == ["begun/seed-1"]
    file.write_text(json.dumps(config | {"name": "renamed"}))
    space.index.scan()
    assert paths(table("q=renamed")) == ["begun/seed-1"]


def test_selected_runs(space: Workspace, table: Page) -> None:
    keys = [entry.key for entry in space.index.entries.values()]
    found = table(f"run={keys[3]},{keys[2]}&run={keys[3]},0000")
    assert [row["key"] for row in found["rows"]] == [keys[3], keys[2]]
    assert (found["total"], found["matching"], found["damaged"]) == (8, 2, 0)
    assert table("where=status=damaged")["damaged"] == 1


def test_pages_of_rows(table: Page) -> None:
    found = table("offset=6&limit=5")
    assert (len(found["rows"]), found["num_rows"], found["offset"], found["matching"]) == (2, 8, 6, 8)
    assert table("offset=8")["rows"] == []


def test_groups_by_settings(table: Page) -> None:
    rows = table("group=settings&sort=-accuracy&column=accuracy&column=seed&column=model.name")["rows"]
    best, other, *rest = rows
    assert best["values"]["accuracy"]["mean"] > other["values"]["accuracy"]["mean"]
    assert (best["count"], best["finished"], best["mixed"]) == (3, 3, False)
    assert best["values"]["seed"] == {"value": "3 values", "text": "3 values"}
    assert best["values"]["model.name"] == {"value": "logistic", "text": "logistic"}
    begun, damaged = rest
    assert (begun["group"], begun["finished"]) == ("begun", 0)
    assert begun["values"]["accuracy"] == {"mean": None, "text": "–", "n": 0, "of": 1}
    assert (damaged["group"], damaged["count"]) == ("Damaged", 1)


def test_a_group_of_different_settings_has_no_interval(table: Page) -> None:
    (row, _) = table("group=model.name&column=accuracy&where=path!=begun/seed-1")["rows"]
    values = [make_records(seed, 10, rate)[-1]["accuracy"] for rate in (0.1, 0.3) for seed in (1, 2, 3)]
    cell = row["values"]["accuracy"]
    assert (row["group"], row["mixed"], cell["n"], cell["of"]) == ("logistic", True, 6, 6)
    assert cell["mean"] == pytest.approx(fmean(values))
    assert "±" not in cell["text"]


def test_groups_are_sorted_by_label_mean_or_first_run(table: Page) -> None:
    def labels(query: str) -> list[str]:
        return [row["group"] for row in table(f"group=algorithm.learning_rate&{query}")["rows"]]

    assert labels("sort=name") == ["0.1", "0.3", "Damaged"]
    assert labels("sort=-name") == ["Damaged", "0.3", "0.1"]
    assert labels("sort=-accuracy") == ["0.3", "0.1", "Damaged"]
    assert labels("sort=path") == ["0.1", "Damaged", "0.3"]  # by their first runs


def test_runs_of_sweeps(runs: Path) -> None:
    (runs / "rate-0.1" / "sweep.json").write_text("{}")
    space = Workspace(runs)
    space.refresh()
    rows = space.table.page(RunSelection(group="sweep"))["rows"]
    assert [(row["group"], row["count"]) for row in rows] == [("rate-0.1", 3), ("Others", 4), ("Damaged", 1)]
    assert paths(space.table.page(RunSelection.parse(QueryParams("where=sweep=rate-0.1")))) == [
        f"rate-0.1/seed-{seed}" for seed in (1, 2, 3)
    ]
    inside = Workspace(runs / "rate-0.1")
    inside.refresh()
    assert [row["group"] for row in inside.table.page(RunSelection(group="sweep"))["rows"]] == ["(this folder)"]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("where=lerning_rate=1", "where: no run has a setting or result 'lerning_rate'"),
        ("sort=acuracy", "sort: no run has a setting or result 'acuracy', did you mean 'accuracy'?"),
        ("column=x.y.z", "column: no run has a setting or result 'x.y.z'"),
        ("group=sed", "group: no run has a setting or result 'sed', did you mean 'seed'?"),
        ("where=config.nothing=1", "where: no run has a setting or result 'config.nothing'"),
    ],
)
def test_an_unknown_name(table: Page, query: str, told: str) -> None:
    with pytest.raises(Exception, match="no run has") as caught:
        table(query)
    assert str(caught.value).startswith(told)
