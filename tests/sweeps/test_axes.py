"""From a file to the points of its grid, derived by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.errors import ConfigError
from fedge.core.schema import read
from fedge.sweeps.axes import find_axes, find_points, seeds_of
from fedge.sweeps.options import SweepOptions

LR, BATCH, NAME, OPTION = "algorithm.learning_rate", "algorithm.batch_size", "algorithm.name", "algorithm.option"


def experiment(**tables: Any) -> dict[str, Any]:
    """Return an experiment with some settings changed."""
    plain: dict[str, Any] = {
        "name": "grid",
        "rounds": 3,
        "data": {"name": "digits", "clients": 10},
        "model": {"name": "logistic"},
        "algorithm": {"name": "fedavg", "local_steps": 2},
    }
    for name, value in tables.items():
        before = plain.get(name, {})
        plain[name] = before | value if isinstance(before, dict) and isinstance(value, dict) else value
    return plain


def points(sweep: dict[str, Any] | None = None, **tables: Any) -> list[dict[str, Any]]:
    return find_points(experiment(**tables), read(sweep or {}, SweepOptions, "sweep"))


def test_no_axis_is_one_point():
    assert points() == [{}]


def test_axes_cross_in_file_order_and_the_last_varies_fastest():
    assert points(algorithm={"learning_rate": [0.1, 1.0], "batch_size": [5, 10]}) == [
        {LR: 0.1, BATCH: 5},
        {LR: 0.1, BATCH: 10},
        {LR: 1.0, BATCH: 5},
        {LR: 1.0, BATCH: 10},
    ]


def test_an_axis_may_be_at_any_depth_and_have_tables_for_values():
    shards = {"name": "shards", "per_client": 2}
    assert points(data={"partition": ["iid", shards]}) == [{"data.partition": "iid"}, {"data.partition": shards}]
    assert points(data={"partition": shards | {"per_client": [1, 2]}}) == [
        {"data.partition.per_client": 1},
        {"data.partition.per_client": 2},
    ]
    assert points(model=["logistic", "mnist_2nn"]) == [{"model": "logistic"}, {"model": "mnist_2nn"}]
    assert points(rounds=[1, 2]) == [{"rounds": 1}, {"rounds": 2}]


def test_a_list_is_a_value_if_the_setting_accepts_lists():
    assert points(seeds=[1, 2]) == [{}]
    assert points(personal={"private": ["fc1.*", "fc2.*"]}) == [{}]
    assert points(edge={"up_mbps": [1.0] * 10}) == [{}]
    assert points(model={"name": "my.py:build", "options": {"widths": [8, 16]}}) == [{}]


def test_a_list_setting_is_varied_by_its_path():
    found = points(
        {"axes": {"personal.private": [["fc1.*"], "bn"], "model.options.width": [8, 16]}}, model={"name": "my.py:build"}
    )
    assert found == [
        {"personal.private": private, "model.options.width": width}
        for private in (["fc1.*"], "bn")
        for width in (8, 16)
    ]


def test_an_axis_by_path_replaces_the_value_in_the_file():
    assert points({"axes": {LR: {"start": 1, "stop": 2, "num": 2}}}, algorithm={"learning_rate": 0.5}) == [
        {LR: 1.0},
        {LR: 2.0},
    ]


def test_ranges():
    by_step = {"start": 5, "stop": 16, "step": 5}
    assert points(algorithm={"batch_size": by_step}) == [{BATCH: 5}, {BATCH: 10}, {BATCH: 15}]
    by_ratio = {"start": 0.001, "stop": 0.1, "num": 3, "log": True}
    assert points(algorithm={"learning_rate": by_ratio}) == [{LR: 0.001}, {LR: 0.01}, {LR: 0.1}]


def test_a_range_of_an_integer_setting_has_unique_integers():
    (values,) = {tuple(point[BATCH] for point in points(algorithm={"batch_size": {"start": 1, "stop": 3, "num": 5}}))}
    assert values == (1, 2, 3)  # 1, 1.5, 2, 2.5, 3, rounded half to even
    assert {type(value) for value in values} == {int}


def test_a_distribution_is_a_value_and_a_range_is_not():
    normal = {"name": "normal", "mean": 5.0, "std": 1.0}
    assert points(edge={"up_mbps": normal}) == [{}]
    assert points(edge={"up_mbps": normal | {"mean": [4.0, 5.0]}}) == [
        {"edge.up_mbps.mean": 4.0},
        {"edge.up_mbps.mean": 5.0},
    ]
    assert len(points(edge={"up_mbps": {"start": 1, "stop": 3, "step": 1}})) == 3


def test_zipped_axes_advance_together():
    found = points(
        {"zip": [[LR, BATCH]]}, algorithm={"learning_rate": [0.1, 1.0], "batch_size": [5, 10]}, rounds=[1, 2]
    )
    assert found == [
        {"rounds": 1, LR: 0.1, BATCH: 5},
        {"rounds": 1, LR: 1.0, BATCH: 10},
        {"rounds": 2, LR: 0.1, BATCH: 5},
        {"rounds": 2, LR: 1.0, BATCH: 10},
    ]


def test_conditional_axes_apply_if_the_condition_holds():
    when = [{"if": "algorithm.name=scaffold", "key": OPTION, "values": ["I", "II"]}]
    assert points({"when": when}, algorithm={"name": ["fedavg", "scaffold"]}) == [
        {NAME: "fedavg"},
        {NAME: "scaffold", OPTION: "I"},
        {NAME: "scaffold", OPTION: "II"},
    ]


def test_a_condition_sees_values_of_the_file_and_defaults():
    rates = {"start": 1, "stop": 2, "step": 1}
    fixed = [{"if": ["algorithm.name=fedavg", "rounds=3"], "key": LR, "values": rates}]
    assert points({"when": fixed}) == [{LR: 1.0}, {LR: 2.0}]
    default = [
        {"if": ["algorithm.batch_size=20", "reduce.name=mean", "data.partition=iid"], "key": LR, "values": [1.0]}
    ]
    assert points({"when": default}) == [{LR: 1.0}]
    not_so = [{"if": "algorithm.batch_size=21", "key": LR, "values": [1.0]}]
    assert points({"when": not_so}) == [{}]


def test_conditions_may_use_conditional_axes():
    when = [
        {"if": "algorithm.name=scaffold", "key": OPTION, "values": ["I", "II"]},
        {"if": "algorithm.option=II", "key": LR, "values": [0.1, 1.0]},
    ]
    assert points({"when": when}, algorithm={"name": ["fedavg", "scaffold"]}) == [
        {NAME: "fedavg"},
        {NAME: "scaffold", OPTION: "I"},
        {NAME: "scaffold", OPTION: "II", LR: 0.1},
        {NAME: "scaffold", OPTION: "II", LR: 1.0},
    ]


def test_exclusions_need_all_their_conditions():
    axes = {"learning_rate": [0.1, 1.0], "batch_size": [5, 10]}
    assert points({"exclude": [["algorithm.learning_rate=1.0", "algorithm.batch_size=5"]]}, algorithm=axes) == [
        {LR: 0.1, BATCH: 5},
        {LR: 0.1, BATCH: 10},
        {LR: 1.0, BATCH: 10},
    ]
    assert points({"exclude": ["algorithm.learning_rate=1.0", "algorithm.batch_size=5"]}, algorithm=axes) == [
        {LR: 0.1, BATCH: 10}
    ]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.floats(0.01, 1.0), st.integers(0, 5))
def test_a_fraction_of_the_points_keeps_their_order(count, fraction, seed):
    every = points(algorithm={"batch_size": list(range(1, count + 1))})
    some = points({"fraction": fraction, "seed": seed}, algorithm={"batch_size": list(range(1, count + 1))})
    assert len(some) == max(1, round(fraction * count))
    assert some == [point for point in every if point in some]


def test_the_draw_of_a_point_depends_on_its_values_only():
    def drawn(values: list[int], seed: int = 1) -> set[int]:
        return {point[BATCH] for point in points({"fraction": 0.5, "seed": seed}, algorithm={"batch_size": values})}

    values = list(range(1, 21))
    assert drawn(values) == drawn(values[::-1])
    assert drawn(values) != drawn(values, seed=2)


def test_several_values_of_the_seed_are_repeats():
    assert seeds_of(experiment(seed=[1, 2]))["seeds"] == [1, 2]
    assert seeds_of(experiment(seed={"start": 1, "stop": 3, "step": 1}))["seeds"] == [1, 2, 3]
    assert "seed" not in seeds_of(experiment(seed=[1, 2]))
    assert seeds_of(experiment(seed=4)) == experiment(seed=4)
    with pytest.raises(ConfigError, match="seed and seeds exclude each other"):
        seeds_of(experiment(seed=[1, 2], seeds=[1]))


@pytest.mark.parametrize(
    ("sweep", "tables", "said"),
    [
        (
            {},
            {"algorithm": {"learning_rat": [1, 2]}},
            "algorithm.learning_rat: unknown key, did you mean 'learning_rate'",
        ),
        (
            {"axes": {"algorithm.batchsize": [1]}},
            {},
            "sweep.axes: algorithm.batchsize: unknown key, did you mean 'batch_size'",
        ),
        ({"axes": {LR: 0.1}}, {}, "sweep.axes: algorithm.learning_rate: expected a list of values or a range, got 0.1"),
        ({"axes": {"seeds": [[1], [2]]}}, {}, "sweep.axes: seeds cannot be an axis"),
        (
            {"zip": [[LR, "algorithm.batch"]]},
            {"algorithm": {"learning_rate": [1.0, 2.0]}},
            "algorithm.batch is not an axis",
        ),
        (
            {"zip": [[LR, BATCH]]},
            {"algorithm": {"learning_rate": [1.0, 2.0], "batch_size": [1, 2, 3]}},
            "algorithm.learning_rate has 2, algorithm.batch_size has 3",
        ),
        ({"zip": [[LR, LR]]}, {"algorithm": {"learning_rate": [1.0, 2.0]}}, "zipped more than once"),
        (
            {"when": [{"if": "algorithm.nam=x", "key": LR, "values": [1.0]}]},
            {},
            "sweep.when: algorithm.nam: unknown key",
        ),
        ({"when": [{"if": "scaffold", "key": LR, "values": [1.0]}]}, {}, "conditions like algorithm.name=scaffold"),
        ({"when": [{"if": "rounds=3", "key": "algorithm.x", "values": [1.0]}]}, {}, "sweep.when: algorithm.x: unknown"),
        (
            {"when": [{"if": "rounds=3", "key": LR, "values": [1.0]}]},
            {"algorithm": {"learning_rate": [1.0, 2.0]}},
            "is an axis of the same points already",
        ),
        ({"exclude": ["round=3"]}, {}, "sweep.exclude: round: unknown key, did you mean 'rounds'"),
        ({"exclude": ["rounds=3"]}, {}, "excludes all points"),
        ({}, {"rounds": []}, "rounds: expected at least one value"),
        ({}, {"rounds": [1, 2, 1]}, "rounds: the values of an axis must differ, got 1 more than once"),
        ({}, {"rounds": {"start": 1, "stop": 3}}, "expected one of step and num"),
        ({}, {"rounds": {"start": 1, "stop": 3, "steps": 1}}, "rounds.steps: unknown key, did you mean 'step'"),
        ({}, {"rounds": {"start": 3, "stop": 1, "step": 1}}, "step must lead from start to stop"),
        ({}, {"rounds": {"start": 3, "stop": 3, "num": 2}}, "start and stop must differ"),
        ({}, {"rounds": {"start": 0, "stop": 3, "num": 2, "log": True}}, "a start and a stop above 0"),
        ({"fraktion": 0.5}, {}, "sweep.fraktion: unknown key, did you mean 'fraction'"),
        ({"fraction": 0}, {}, "sweep.fraction"),
        (
            {},
            {"rounds": {"start": 1, "stop": 2000, "step": 1}, "algorithm": {"batch_size": list(range(1, 2001))}},
            "the axes make 4,000,000 points",
        ),
    ],
)
def test_error_messages(sweep, tables, said):
    with pytest.raises(ConfigError) as error:
        points(sweep, **tables)
    assert said in str(error.value)


def test_zipped_axes_are_one_axis():
    tables = experiment(algorithm={"learning_rate": [0.1, 1.0], "batch_size": [5, 10]})
    (axis,) = find_axes(tables, read({"zip": [[BATCH, LR]]}, SweepOptions))
    assert axis == ((BATCH, LR), [(5, 0.1), (10, 1.0)])
