"""Conditions, parameters of URLs, and the value of a setting or a result of a run."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.datastructures import QueryParams

from fedge.core.errors import ConfigError
from fedge.view.run_entry import RunEntry
from fedge.view.selection import Condition, RunSelection, value_of
from mutations import watched


@pytest.mark.parametrize(
    ("text", "holding", "failing"),
    [
        ("x=1", [1, 1.0, "1", [2, 1]], [2, True, "1.0", None, [2, 3], []]),
        ("x=1e1", [10, 10.0, "1e1"], ["10"]),
        ("x!=1", [2, "a", None, True, [2, 3], []], [1, 1.0, "1", [1, 2]]),
        ("x<2", [1, -5, 1.99, "15"], [2, 3, None, "3"]),
        ("x<=2", [2, 1.0], [2.01, 3, None]),
        ("x>2", [3, 2.01], [2, 1, None]),
        ("x>=2", [2, 3], [1.99, None]),
        ("x~1", [21, "a1b", 1.5, [5, 31]], [2, "a", None, []]),
        ("x~Ab", ["CAB", "cab"], ["a b", None]),
        ("x=Abc", ["abc", "ABC"], ["abcd", None]),
        ("x<b", ["a", "A"], ["b", "C", None]),
        ("x<=b", ["a", "b"], ["c"]),
        ("x=true", [True, "true", "TRUE"], [False, 1, None]),
        ("x=false", [False], [True, 0, None]),
        ("x=", [None, ""], [0, False, "a"]),
        ("x!=", [0, "a", None], [""]),
        ("x<", [], [None, "a"]),
        ("x=nan", ["nan", "NaN"], [1, None, float("nan")]),
        ('x={"a":1}', [{"a": 1}], [{"a": 2}]),
        (" x  >= 2 ", [2], [1]),
    ],
)
def test_values_that_meet_a_condition(text: str, holding: list[Any], failing: list[Any]) -> None:
    condition = Condition.parse(text)
    assert condition.name == "x"
    assert [value for value in holding if not condition.test()(value)] == []
    assert [value for value in failing if condition.test()(value)] == []


@pytest.mark.parametrize("text", ["x", "", "=1", " ", "<2"])
def test_invalid_conditions_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^where: expected a name"):
        Condition.parse(text)


@pytest.mark.parametrize("text", [" " * 5_000, "x" + " " * 200_000])
def test_a_long_text_is_no_condition(text: str) -> None:
    """A regular expression for all of it takes minutes, in which no other request is answered."""
    with watched(), pytest.raises(ConfigError, match=r"^where: expected a name"):
        Condition.parse(text)


def test_a_condition_reads_as_it_was_written() -> None:
    for text in ("a.b>=0.1", "a=b=c", "a!=x y", "a~<"):
        assert str(Condition.parse(text)) == text


def selection(query: str) -> RunSelection:
    return RunSelection.parse(QueryParams(query))


def test_no_parameters() -> None:
    assert selection("") == selection("q=&where=&run=,&group=&values=&round=&sort=&column=&offset=&limit=")
    assert selection("") == RunSelection(words=[], where=[], runs=[], columns=[])
    assert (selection("").offset, selection("").limit, selection("").which) == (0, 100, "last")


def test_all_parameters() -> None:
    query = (
        "q=A+b&where=x=1&where=y<2&run=a,b&run=c&group=g&values=at&round=7&sort=-z&column=c&column=d&offset=5&limit=9"
    )
    assert selection(query) == RunSelection(
        words=["a", "b"],
        where=[Condition("x", "=", "1"), Condition("y", "<", "2")],
        runs=["a", "b", "c"],
        group="g",
        which="at",
        round=7,
        sort="z",
        descending=True,
        columns=["c", "d"],
        offset=5,
        limit=9,
    )
    assert not selection("sort=z").descending
    assert selection(query).pairs() == [
        ("q", "a b"), ("where", "x=1"), ("where", "y<2"), ("run", "a"), ("run", "b"), ("run", "c"),
    ]  # fmt: skip
    assert selection("group=g").pairs() == []


@pytest.mark.parametrize("query", ["limit=1", "limit=1000", "offset=0", f"offset={2**53}", "values=at&round=1"])
def test_the_ends_of_ranges(query: str) -> None:
    selection(query)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("limit=0", "limit: expected a whole number from 1 to 1000, got '0'"),
        ("limit=1001", "limit: expected a whole number from 1 to 1000, got '1001'"),
        ("limit=x", "limit: expected a whole number from 1 to 1000, got 'x'"),
        ("offset=-1", f"offset: expected a whole number from 0 to {2**53}, got '-1'"),
        (f"offset={2**53 + 1}", f"offset: expected a whole number from 0 to {2**53}, got '{2**53 + 1}'"),
        ("round=0", f"round: expected a whole number from 1 to {2**53}, got '0'"),
        (f"round={2**53 + 1}", f"round: expected a whole number from 1 to {2**53}, got '{2**53 + 1}'"),
        ("values=worst", "values: expected last, best or at, got 'worst'"),
        ("values=at", "round: expected the round of values=at, got none; add round=N"),
    ],
)
def test_a_wrong_parameter(query: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        selection(query)
    assert str(caught.value) == told


ENTRY = RunEntry(
    folder=b"a",
    stamp=(),
    settings={"rounds": 9, "seed": 1, "accuracy": "a setting", "model.name": "x"},
    summary={"rounds": 5, "loss": 0.5, "best_loss": 0.25, "bytes_up": 3, "bytes_down": 4},
    last={"round": 4, "train_loss": 0.75, "flops": 8, "loss": 9.0},
)


@pytest.mark.parametrize(
    ("name", "which", "value"),
    [
        ("seed", "last", 1), ("model.name", "last", "x"), ("config.rounds", "last", 9), ("config.seed", "best", 1),
        ("config.nothing", "last", None), ("rounds", "last", 5), ("loss", "last", 0.5), ("loss", "best", 0.25),
        ("bytes", "last", 7), ("accuracy", "last", "a setting"), ("train_loss", "last", 0.75),
        ("flops", "last", None), ("nothing", "last", None), ("rounds", "best", 5), ("bytes_to_target", "last", None),
    ],
)  # fmt: skip
def test_the_value_of_a_name(name: str, which: Any, value: Any) -> None:
    """A result takes precedence over a setting of the same name; the cost of one round is not a total."""
    assert value_of(ENTRY, name, which) == value


def test_a_sum_needs_all_its_parts() -> None:
    assert value_of(RunEntry(folder=b"a", stamp=(), summary={"bytes_up": 3}), "bytes") is None
    assert value_of(RunEntry(folder=b"a", stamp=(), last={"bytes_up": 3, "bytes_down": 4}), "bytes") is None
