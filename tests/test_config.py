"""Experiment files. The validation of single fields is tested in core/test_schema.py."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tomli_w

from fedge.algorithms import ALGORITHMS
from fedge.algorithms.fedavg import FedAvg
from fedge.algorithms.scaffold import Scaffold
from fedge.config import (
    BudgetOptions,
    Config,
    TargetOptions,
    assignments,
    change,
    effective,
    load,
    load_raw,
    parse,
    plain,
)
from fedge.core.anchor import PATHS
from fedge.core.effect import NO_EFFECT, digest, paths_without_effect
from fedge.core.errors import ConfigError
from fedge.core.schema import Options, structs, tag
from fedge.data import DATASETS, PARTITIONS
from fedge.data.digits import Digits
from fedge.data.huggingface import HuggingFace
from fedge.edge.availability import AvailabilityTrace
from fedge.edge.cells import CellClock
from fedge.edge.client_values import Normal
from fedge.edge.clock import ClockOptions, FixedClock
from fedge.edge.selection import FedCS, Uniform
from fedge.models import MODELS
from fedge.models.dense import Logistic
from fedge.runs.files import RunMark, encode_config

SMALL: dict[str, Any] = {"data": "digits", "model": "logistic", "algorithm": "fedavg"}

FULL: dict[str, Any] = {
    "name": "first",
    "seeds": [1, 2, 3],
    "rounds": 7,
    "data": {
        "name": "digits",
        "clients": 10,
        "partition": {"name": "shards", "per_client": 3},
        "noise": {"fraction": 0.2, "std": 3.0},
    },
    "model": {"name": "mtfl_2nn"},
    "algorithm": {"name": "scaffold", "option": "I", "local_steps": 4, "weighting": "samples"},
    "personal": {"private": ["2.*", "4.bias"]},
    "reduce": {"name": "trimmed_mean", "fraction": 0.25},
    "selection": {"count": 5},
    "edge": {"down_mbps": [1.0] * 10, "up_mbps": {"name": "normal", "mean": 5, "std": 1}, "seconds_per_step": 0.3},
    "evaluate": {"every": 5, "user_accuracy": True, "users": "selected"},
    "target": {"metric": "user_accuracy", "value": 0.9, "stop": True},
    "budget": {"sim_seconds": 36000, "bytes_up": 1e9},
    "checkpoint": {"every": 3},
    "engine": {"name": "wire", "dtype": "float64"},
}


def problems(**changes: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(SMALL | changes)
    return list(caught.value.problems)


# ---------------------------------------------------------------- reading


def test_names_alone_are_enough() -> None:
    config = parse(SMALL)
    assert (config.name, config.rounds, config.seed, config.seeds) == ("run", 100, 1, None)
    assert config.data == Digits()
    assert config.algorithm == FedAvg()


def test_a_full_configuration_is_read() -> None:
    config = parse(FULL)
    assert (config.seed, config.seeds) == (None, [1, 2, 3])
    assert config.algorithm == Scaffold(option="I", local_steps=4, weighting="samples")
    assert isinstance(config.edge, FixedClock)
    assert config.edge.up_mbps == Normal(mean=5, std=1)
    assert config.edge.down_mbps == [1.0] * 10
    assert config.selection.number(10) == 5


def test_clocks_are_chosen_by_the_key_clock() -> None:
    assert parse(SMALL).edge == FixedClock()
    assert parse(SMALL | {"edge": {"up_mbps": 7}}).edge == FixedClock(up_mbps=7.0)
    assert parse(SMALL | {"edge": "cells"}).edge == CellClock()
    assert parse(SMALL | {"edge": {"clock": "cells", "cells": 4}}).edge == CellClock(cells=4)


def test_a_selection_without_a_name_is_uniform() -> None:
    assert parse(SMALL | {"selection": {"count": 3}}).selection == Uniform(count=3)
    by_time = {"selection": {"name": "fedcs", "count": 3}, "edge": {"deadline_s": 2}}
    assert parse(SMALL | by_time).selection == FedCS(count=3)


def test_several_problems_are_reported_at_once() -> None:
    found = problems(
        algorithm={"name": "fedavg", "learning_rate": -1, "lokal_steps": 3},
        data={"name": "digit"},
        rounds="many",
        engine={"name": "gpu"},
        evaluation={},
    )
    assert [problem.partition(":")[0] for problem in found] == [
        "data.name",
        "algorithm.learning_rate",
        "algorithm.lokal_steps",
        "rounds",
        "engine.name",
        "evaluation",
    ]
    assert found[0].startswith("data.name: unknown name 'digit', did you mean 'digits'?; known: ")
    assert found[1] == "algorithm.learning_rate: expected float > 0.0, got -1"
    assert found[2].startswith("algorithm.lokal_steps: unknown key, did you mean 'local_steps'?; valid here: ")
    assert found[3] == "rounds: expected int, got 'many'"
    assert found[5].startswith("evaluation: unknown key, did you mean 'evaluate'?; valid here: name, seed, ")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"seed": -1}, "seed: expected int >= 0, got -1"),
        ({"seeds": []}, "seeds: expected array of length >= 1, got []"),
        ({"rounds": 0}, "rounds: expected int >= 1, got 0"),
        ({"selection": {"fraction": 0}}, "selection.fraction: expected float > 0.0, got 0"),
        ({"selection": {"fraction": 1.5}}, "selection.fraction: expected float <= 1.0, got 1.5"),
        ({"algorithm": {"name": "fedavg", "batch_size": 0}}, "algorithm.batch_size: expected int >= 1, got 0"),
        (
            {"algorithm": {"name": "ce_fedavg", "sparsity": 1}},
            "algorithm.sparsity: expected float < 1.0, got 1",
        ),
        ({"target": {"metric": "loss"}}, "target: expected value, patience or both, got neither; set target.value"),
        ({"checkpoint": 3}, "checkpoint: expected a table, got 3; set checkpoint.every"),
        ({"seed": 1, "seeds": [1]}, "seed and seeds exclude each other; give one of them"),
        ({"seeds": [1, 2, 1]}, "seeds must differ from each other, got [1, 2, 1]"),
        (
            {"algorithm": {"name": "fedavg", "local_steps": 1, "local_epochs": 1}},
            "algorithm: local_steps and local_epochs exclude each other; set only one "
            "(--set algorithm.local_epochs= unsets)",
        ),
        (
            {"target": {"metric": "user_accuracy", "value": 0.9}},
            "target.metric is user_accuracy, which is not measured: set evaluate.user_accuracy = true",
        ),
        ({"selection": "fedcs"}, "selection.name is fedcs, which needs a deadline: set edge.deadline_s"),
        (
            {"cluster": {"round": 3}, "edge": "cells"},
            "cluster and the cells of edge both divide clients and exclude each other; remove one",
        ),
        ({"edge": {"clock": "fixed", "cells": 4}}, 'edge.cells: needs clock = "cells" in the same table'),
        ({"edge": {"clock": "cell"}}, "edge.clock: unknown name 'cell', did you mean 'cells'?; known: cells, fixed"),
        (
            {"edge": {"clock": "cells", "cells": 6, "grid": [2, 2]}},
            "edge: grid [2, 2] has 4 cells, but cells is 6; set only one of them, or make them agree",
        ),
        ({"edge": {"clock": "cells", "mobility_rate": 1.1}}, "edge.mobility_rate: expected float <= 1.0, got 1.1"),
    ],
)
def test_invalid_settings_are_rejected(changes: dict[str, Any], problem: str) -> None:
    assert problems(**changes) == [problem]


@pytest.mark.parametrize("name", ["", "a/b", "../a", ".hidden", "a b"])
def test_a_name_must_be_a_valid_directory_name(name: str) -> None:
    (problem,) = problems(name=name)
    assert problem.startswith("name: expected ")


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"schedule": {"learning_rate": "step"}}, "the schedule step"),
        ({"schedule": {"local_steps": {"name": "product", "rules": ["fixed", "step"]}}}, "the schedule step"),
        ({"target": {"patience": 3}}, "target.patience"),
        ({"target": {"metric": "validation_loss", "value": 1.0}}, "target.metric"),
    ],
)
def test_uses_of_the_validation_split_require_one(changes: dict[str, Any], what: str) -> None:
    raw = SMALL | {"algorithm": {"name": "fedavg", "local_steps": 4}} | changes
    with pytest.raises(ConfigError, match=rf"^{what} needs a validation split, .* set data\.validation = 0\.1"):
        parse(raw)
    assert parse(raw | {"data": {"name": "digits", "validation": 0.1}}).data.validation == 0.1


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: Config(**PARTS, rounds=-3), "rounds: expected int >= 1"),
        (lambda: Config(**PARTS, rounds="5"), "rounds: expected int, got '5'"),
        (lambda: Config(**PARTS, name="../../x"), "name: expected at most 200 letters, digits"),
        (lambda: Uniform(fraction=3), "fraction: expected float <= 1"),
    ],
)
def test_options_made_in_python_are_checked(make: Callable[[], object], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value).startswith(expected)


PARTS: dict[str, Any] = {"data": Digits(), "model": Logistic(), "algorithm": FedAvg()}


def test_required_parts() -> None:
    with pytest.raises(ConfigError) as caught:
        parse({})
    assert list(caught.value.problems) == ["data: is required", "model: is required", "algorithm: is required"]


# ---------------------------------------------------------------- there and back


def minimal(kind: type[Options]) -> dict[str, Any]:
    """Return the minimal table that chooses this kind."""
    values: dict[str, Any] = {"shape": [2], "outputs": 3}
    required = {f.name: values.get(f.name, "given") for f in msgspec.structs.fields(kind) if f.required}
    return required | {"name": tag(kind)}


def assert_round_trip(config: Config) -> None:
    found = plain(config)
    assert parse(found) == config
    assert plain(parse(json.loads(json.dumps(found)))) == found


def test_a_full_configuration_survives() -> None:
    config = parse(FULL)
    assert_round_trip(config)
    assert plain(config)["edge"]["up_mbps"] == {"name": "normal", "mean": 5.0, "std": 1.0}


@pytest.mark.parametrize("kind", ALGORITHMS, ids=lambda kind: kind.__name__)
def test_every_algorithm_survives(kind: type[Options]) -> None:
    config = parse(SMALL | {"algorithm": minimal(kind)})
    assert type(config.algorithm) is kind
    assert_round_trip(config)


@pytest.mark.parametrize("kind", [kind for kind in DATASETS if tag(kind)], ids=lambda kind: kind.__name__)
def test_every_data_set_survives(kind: type[Options]) -> None:
    choice = {"folder": "/set"} if kind is HuggingFace else {}  # a folder or a hub: neither is required alone
    config = parse(SMALL | {"data": minimal(kind) | choice})
    assert type(config.data) is kind
    assert_round_trip(config)


@pytest.mark.parametrize("kind", PARTITIONS, ids=lambda kind: kind.__name__)
def test_every_partition_survives(kind: type[Options]) -> None:
    config = parse(SMALL | {"data": {"name": "digits", "partition": minimal(kind)}})
    assert type(config.data.partition) is kind
    assert_round_trip(config)


@pytest.mark.parametrize("kind", [kind for kind in MODELS if tag(kind)], ids=lambda kind: kind.__name__)
def test_every_model_survives(kind: type[Options]) -> None:
    config = parse(SMALL | {"model": minimal(kind)})
    assert type(config.model) is kind
    assert_round_trip(config)


CELLS: dict[str, Any] = {
    "clock": "cells",
    "grid": [2, 3],
    "clients_per_cell": [5, 1, 1, 1, 1, 1],
    "global_every": 3,
    "mobility_rate": 0.25,
    "move_to": "neighbours",
    "sync": "merge",
    "deadline_s": 2.5,
    "availability": {"name": "diurnal", "period_s": 100},
    "dropout": 0.1,
    "devices": [{"share": 0.5, "compute_scale": 2}, {"share": 0.5, "mobility_rate": 0}],
    "radius_m": [100, 200, 300, 400, 500, 600],
    "seconds_per_sample_param": {"name": "lognormal", "median": 5e-9, "sigma": 0.5},
    "backhaul_mbps": 1000,
    "divergence": "l1_l2",
    "record": True,
}


def test_every_option_of_cells_survives() -> None:
    config = parse(SMALL | {"edge": CELLS})
    assert_round_trip(config)
    assert {name: value for name, value in plain(config)["edge"].items() if name in CELLS} == {
        **CELLS,
        "availability": {"name": "diurnal", "mean": 0.5, "amplitude": 0.4, "period_s": 100.0, "spread": 1.0},
        "devices": [
            {"share": 0.5, "compute_scale": 2.0, "mobility_rate": None},
            {"share": 0.5, "compute_scale": 1.0, "mobility_rate": 0.0},
        ],
    }


# ---------------------------------------------------------------- files


def test_a_file_names_the_experiment(tmp_path: Path) -> None:
    path = tmp_path / "second.toml"
    path.write_text('data = "digits"\nmodel = "logistic"\n[algorithm]\nname = "fedavg"\n')
    assert load(path).name == "second"
    assert load(path, ["name=third", "algorithm.learning_rate=0.5"]).algorithm == FedAvg(learning_rate=0.5)
    path.write_text('name = "named"\n' + path.read_text())
    assert load(path).name == "named"


def test_invalid_toml_files_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    with pytest.raises(ConfigError, match=r"x\.toml: cannot be read .*; expected a TOML file"):
        load_raw(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_raw(path)
    path.write_text("rounds = = 3")
    with pytest.raises(ConfigError, match=r"x\.toml: is not valid TOML: .*line 1"):
        load_raw(path)


@pytest.mark.parametrize("part", ["data", "model"])
def test_a_users_function_is_found_from_anywhere(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "mine.py").write_text("def f(): ...\n")
    expected = f"{tmp_path.resolve()}/code/mine.py:f"
    raw = SMALL | {part: {"name": "code/mine.py:f", "options": {"x": 1}}}
    found = parse(raw, tmp_path)
    assert plain(found)[part]["name"] == expected
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for same in (raw, SMALL | {part: {"name": expected, "options": {"x": 1}}}):
        assert parse(same) == found
    for name in (expected, "code/mine.py:f", "~/code/mine.py:f"):
        assert plain(parse(SMALL | {part: name}))[part]["name"] == expected


FILES: dict[str, dict[str, str]] = {
    "data.dir": {"name": "mnist"},
    "data.file": {"name": "table", "target": "y"},
    "data.test_file": {"name": "table", "target": "y", "file": "/x.csv"},
    "data.folder": {"name": "images"},
    "model.weights": {"name": "logistic"},
    "edge.trace": {"clock": "cells"},
}
"""Every option that is a path, with the other keys it needs."""


@pytest.mark.parametrize("path", FILES)
def test_paths_start_at_the_experiment_file_and_those_of_changes_here(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, key = path.split(".")
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(), there.mkdir()
    monkeypatch.chdir(here)
    raw = SMALL | {part: FILES[path] | {key: "../it"}}
    (there / "x.toml").write_text(tomli_w.dumps(raw))
    first = load(there / "x.toml")
    assert getattr(getattr(first, part), key) == str(tmp_path / "it")
    changed = load(there / "x.toml", [f"{path}=it"])
    assert getattr(getattr(changed, part), key) == str(here / "it")
    assert getattr(getattr(parse(change(raw, {path: "it"})), part), key) == str(here / "it")  # from Python
    monkeypatch.chdir("/")
    assert parse(plain(first)) == first


def test_every_path_option_is_listed_in_paths() -> None:
    """Their descriptions mention a file or folder; add new ones to `PATHS`."""

    def described(kinds: list[type[msgspec.Struct]]) -> set[str]:
        found = set()
        for kind in kinds:
            for field in msgspec.structs.fields(kind):
                found |= described([each for each in structs(field.type) if each not in kinds])
                text = f"{field.name} {getattr(field.type, '__metadata__', '')}"
                if "str" in str(field.type) and re.search("(?i)file|folder|csv", text) and field.name != "name":
                    found.add(field.encode_name)
        return found

    assert described([Config]) | {"dir"} == PATHS


def test_traces_lie_beside_the_experiment_file(tmp_path: Path) -> None:
    edge = {"clock": "cells", "trace": "moves.csv", "availability": {"name": "trace", "file": "../on.csv"}}
    config = parse(SMALL | {"edge": edge}, tmp_path / "there")
    assert isinstance(config.edge, CellClock)
    assert config.edge.trace == str(tmp_path.resolve() / "there" / "moves.csv")
    assert config.edge.availability == AvailabilityTrace(file=str(tmp_path.resolve() / "on.csv"))
    assert parse(plain(config), Path("/else")) == config


def test_a_sweep_is_not_an_experiment() -> None:
    with pytest.raises(ConfigError, match="this is a sweep; run it with `fedge sweep FILE`"):
        parse(SMALL | {"sweep": {"workers": 2}})


def test_keys_that_a_run_directory_adds_are_ignored() -> None:
    stored = json.loads(encode_config(plain(parse(SMALL)), RunMark("0123456789abcdef", 2, ("trace",))))
    assert stored.keys() - plain(parse(SMALL)).keys() == {"format", *RunMark.__struct_fields__}
    assert parse(stored) == parse(SMALL)


# ---------------------------------------------------------------- effect on results


@pytest.mark.parametrize("clock", ["fixed", "cells"])
def test_options_without_effect(clock: str) -> None:
    config = parse(SMALL | {"edge": {"clock": clock}, "trace": {"every": 2}})
    without = ["data.dir", "edge.record", "trace", "track", "checkpoint.every", "engine.workers"]
    without += ["engine.stall_s", "net"]
    assert paths_without_effect(config) == without
    expected = plain(config)
    del expected["net"], expected["track"]
    for table, key in (("data", "dir"), ("edge", "record"), ("checkpoint", "every"), ("engine", "workers")):
        del expected[table][key]
    del expected["engine"]["stall_s"]
    del expected["trace"]
    assert effective(config) == expected


@pytest.mark.parametrize("kind", [kind for kind in DATASETS if "dir" in kind.__struct_fields__])
def test_the_data_folder_of_no_data_set_has_an_effect(kind: type[Options]) -> None:
    (declared,) = (field.type for field in msgspec.structs.fields(kind) if field.name == "dir")
    assert [note.extra for note in declared.__metadata__] == [NO_EFFECT]


@pytest.mark.parametrize(
    ("setting", "value", "same"),
    [
        ("engine.workers", 3, True),
        ("data.dir", "/elsewhere", True),
        ("checkpoint.every", 3, True),
        ("edge.record", True, True),
        ("trace.every", 3, True),
        ("engine.rows", 3, False),
        ("engine.name", "loop", False),
        ("evaluate.every", 3, False),
        ("data.clients", 3, False),
        ("seed", 3, False),
        ("name", "other", False),
    ],
)
def test_settings_that_change_the_digest(setting: str, value: object, same: bool) -> None:
    before, after = parse(SMALL), parse(change(SMALL, {setting: value}))
    assert plain(before) != plain(after)
    assert (digest(effective(before)) == digest(effective(after))) is same


# ---------------------------------------------------------------- --set


def test_values_are_toml_or_else_text() -> None:
    texts = [
        "a=1",
        "b.c=0.05",
        "d=true",
        'e="quoted"',
        "f=plain words",
        "g=[1, 2]",
        "h={name = 'normal', mean = 2}",
        "i=mine.py:f",
        "j=a=b",
        " k = 3 ",
        "l=",
    ]
    assert assignments(texts) == {
        "a": 1,
        "b.c": 0.05,
        "d": True,
        "e": "quoted",
        "f": "plain words",
        "g": [1, 2],
        "h": {"name": "normal", "mean": 2},
        "i": "mine.py:f",
        "j": "a=b",
        "k": 3,
        "l": None,
    }


def test_all_invalid_assignments_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        assignments(["rounds", "=3", "rounds=3"])
    assert list(caught.value.problems) == [
        f"--set {text}: expected a.b=value, such as algorithm.learning_rate=0.05" for text in ("rounds", "=3")
    ]


def test_a_change_makes_the_tables_it_needs() -> None:
    assert change({"x": 1}, {"a.b.c": 2, "x": 3}) == {"x": 3, "a": {"b": {"c": 2}}}


def test_a_name_alone_becomes_a_table() -> None:
    changed = change(SMALL, {"algorithm.learning_rate": 0.5})
    assert changed["algorithm"] == {"name": "fedavg", "learning_rate": 0.5}
    assert parse(changed).algorithm == FedAvg(learning_rate=0.5)


def test_a_change_does_not_modify_its_argument() -> None:
    raw = {"a": {"b": 1}}
    assert change(raw, {"a.b": 2}) == {"a": {"b": 2}}
    assert raw == {"a": {"b": 1}}


# ---------------------------------------------------------------- target and budget


@pytest.mark.parametrize(
    ("metric", "measured", "reached"),
    [("accuracy", 0.9, True), ("accuracy", 0.899, False), ("loss", 0.9, True), ("loss", 0.901, False)],
)
def test_a_target_is_reached_from_the_right_side(metric: str, measured: float, reached: bool) -> None:
    target = TargetOptions(metric=metric, value=0.9)
    assert target.reached({metric: measured}) is reached
    assert not target.reached({})


def test_exhausted_budgets_are_reported() -> None:
    totals = {"sim_seconds": 10, "bytes_up": 99, "flops": 1e6, "local_steps": 7, "energy_j": 3.5}
    assert BudgetOptions().spent(totals) is None
    assert BudgetOptions(sim_seconds=10.5, bytes_up=100).spent(totals) is None
    assert BudgetOptions(sim_seconds=10).spent(totals) == "sim_seconds"
    assert BudgetOptions(bytes_up=100, flops=1, local_steps=1).spent(totals) == "flops"
    assert BudgetOptions(energy_j=3.5).spent(totals) == "energy_j"


def test_every_kind_is_written_by_its_name() -> None:
    """A run's configuration is read back, so the key that chooses a kind must be `name`, or `clock` for clocks."""
    seen: set[type[msgspec.Struct]] = set()
    waiting: list[type[msgspec.Struct]] = [Config]
    while waiting:
        kind = waiting.pop()
        if kind not in seen:
            seen.add(kind)
            waiting += [found for field in msgspec.structs.fields(kind) for found in structs(field.type)]
    named = {kind for kind in seen if tag(kind)}
    assert len(named) > 50
    assert {kind for kind in named if kind.__struct_config__.tag_field != "name"} == {FixedClock, CellClock}
    assert ClockOptions.__struct_config__.tag_field == "clock"


@pytest.mark.parametrize(
    ("metrics", "problem"),
    [("f1", "expected a list, got 'f1'; write evaluate.metrics=['f1']"), (3, "expected a list, got 3")],
)
def test_metrics_are_a_list(metrics, problem):
    raw = {"data": {"name": "digits"}, "model": {"name": "nn"}, "algorithm": {"name": "fedavg"}}
    with pytest.raises(ConfigError) as error:
        parse(raw | {"evaluate": {"metrics": metrics}})
    assert f"evaluate.metrics: {problem}" in str(error.value)
