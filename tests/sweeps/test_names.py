"""Names of points."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.sweeps.names import name_points

VALUES = st.one_of(
    st.integers(), st.floats(allow_nan=False), st.text(max_size=8), st.booleans(), st.lists(st.integers(), max_size=3)
)


def test_names_contain_the_chosen_values():
    points = [
        {"algorithm.name": "fedavg", "algorithm.learning_rate": 0.1},
        {"algorithm.name": "scaffold", "algorithm.learning_rate": 0.1, "algorithm.option": "II"},
        {"algorithm.name": "scaffold", "algorithm.learning_rate": 1e-05, "algorithm.option": "I"},
    ]
    assert name_points(points, "grid") == [
        "fedavg+learning_rate-0.1",
        "scaffold+learning_rate-0.1+option-II",
        "scaffold+learning_rate-1e-05+option-I",
    ]


def test_settings_with_the_same_last_part_are_distinguished():
    points = [{"edge.up.mean": 1, "edge.down.mean": 2}, {"edge.up.mean": 3, "edge.down.mean": 4}]
    assert name_points(points, "grid") == ["edge.up.mean-1+edge.down.mean-2", "edge.up.mean-3+edge.down.mean-4"]


def test_names_of_tables_lists_and_files():
    points = [
        {"data.partition": {"name": "shards", "per_client": 2}},
        {"data.partition": "iid"},
        {"data.partition": ["a*", "b"]},
        {"data.partition": "my file.py:build"},
    ]
    assert name_points(points, "grid") == [
        "partition-shards.per_client-2",
        "partition-iid",
        "partition-a.b",
        "partition-my-file.py-build",
    ]


def test_a_file_without_axes_gives_its_name():
    assert name_points([{}], "grid") == ["grid"]


def test_values_that_look_alike_get_a_number():
    assert name_points([{"x": 0.10001}, {"x": 0.10002}, {"x": 0.2}], "grid") == ["x-0.1", "x-0.1+2", "x-0.2"]


def test_a_long_name_is_cut_and_stays_unique():
    names = name_points([{"x": "a" * 300}, {"x": "a" * 299 + "b"}], "grid")
    assert len(set(names)) == 2
    assert all(len(name) < 200 for name in names)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["a.x", "b.x", "c.name"]), VALUES), min_size=1, max_size=8))
def test_names_are_unique_and_valid_for_directories(points):
    names = name_points(points, "grid")
    assert len(set(names)) == len(names) == len(points)
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", name) for name in names)
