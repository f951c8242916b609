"""The server's description of data that only clients have."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from fedge.config import parse, plain
from fedge.core.effect import digest
from fedge.core.errors import ConfigError, DataError
from fedge.core.schema import choose
from fedge.data import DATASETS
from fedge.data.data_plan import DataPlan, check_settings, travelling_settings
from fedge.data.digits import Digits
from fedge.data.normalise import Scaling
from fedge.data.remote import Remote
from fedge.data.table import Table

DIGITS: dict[str, Any] = {"shape": [1, 28, 28], "outputs": 10}


def config(**data: Any) -> dict[str, Any]:
    algorithm = {"name": "fedavg", "learning_rate": 0.1, "local_steps": 1}
    return {"model": "logistic", "algorithm": algorithm, "data": {"name": "remote", **data}}


def test_test_set_may_be_that_of_any_data_set() -> None:
    given = parse(config(**DIGITS, test="digits")).data
    part = given.server_part(1)
    assert part.num_clients is None
    assert (part.shape, part.num_outputs, part.task) == ((1, 28, 28), 10, "classes")
    assert part.test is not None
    expected = Digits().build(1).pooled_test()
    assert all(torch.equal(a, b) for a, b in zip(part.test, expected, strict=True))
    assert Remote(**DIGITS).server_part(1).test is None


def test_options_survive_a_round_trip() -> None:
    given = parse(
        config(shape=[2], outputs=2, columns=["a", "b"], classes=["x", "y"], normalise={"mean": 1.0, "std": [1.0, 2.0]})
    )
    assert parse(plain(given)) == given
    nested = parse(config(**DIGITS, test={"name": "digits", "clients": 3}))
    assert parse(plain(nested)) == nested


def test_simulations_reject_remote_data() -> None:
    with pytest.raises(ConfigError, match="only clients have the data; start `fedge server`"):
        Remote(**DIGITS).build(1)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"classes": ["a"]}, "classes: expected 10 names, one for each output, got 1"),
        ({"classes": ["a"] * 10}, "classes: must be unique"),
        ({"columns": ["a"]}, r"columns: 1 names need shape \[1\], got \[1, 28, 28\]"),
        ({"task": "values", "classes": [str(n) for n in range(10)]}, "values to predict have no classes"),
        ({"words": True, "normalise": True}, "normalise: applies to numbers"),
        (
            {"test": {"name": "digits", "normalise": True}},
            "test.normalise: the test set is normalised like the clients' data",
        ),
        ({"shape": [1 << 20, 1 << 20]}, "shape: expected at most"),
        ({"shape": []}, "data.shape"),
        ({"outputs": 0}, "data.outputs"),
        ({"normalise": {"mean": 0.0, "std": 0.0}}, "data.normalise.std"),
        ({"test": "nothing"}, "data.test.name: unknown name"),
        ({"test": {"name": "remote", **DIGITS}}, "data.test.name: unknown name"),
        ({"clients": 3}, "data.clients: unknown key"),
    ],
)
def test_options_that_contradict_each_other(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse(config(**DIGITS | options))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"outputs": 9}, "data.test: expected classes from 0 to 8, got class 9"),
        ({"shape": [1, 8, 8]}, r"data.test: expected inputs of shape \[1, 8, 8\], got \[1, 28, 28\]"),
        ({"task": "values"}, "data.test: the server predicts values, but the targets here are classes"),
        ({"words": True}, "data.test: expected words = True"),
        ({"classes": ["cat", *"bcdefghij"]}, "data.test: unknown classes '0', '1'"),
    ],
)
def test_test_set_that_does_not_match(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        Remote(**DIGITS | {"test": Digits()} | options).server_part(1)


def test_columns_of_the_test_table_are_reordered_by_name(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("b,kind,a\n1,dog,2\n3,cat,4\n5,dog,6\n")
    (tmp_path / "rows.csv").write_text("b,kind,a\n1,dog,2\n3,cat,4\n")
    table = Table(file=str(tmp_path / "rows.csv"), test_file=str(tmp_path / "t.csv"), target="kind")
    remote = Remote(shape=[2], outputs=3, columns=["a", "b"], classes=["fish", "dog", "cat"], test=table)
    test = remote.server_part(1).test
    assert test is not None
    assert test.x.tolist() == [[2, 1], [4, 3], [6, 5]]
    assert test.y.tolist() == [1, 2, 1]


def test_normalised_by_given_numbers_or_by_sums_of_clients() -> None:
    scaling = Scaling(mean=0.25, std=[0.5])
    raw = Digits().build(1).pooled_test()
    for given in (
        Remote(**DIGITS, test=Digits(), normalise=scaling).server_part(1),
        Remote(**DIGITS, test=Digits(), normalise=True).server_part(1).scaled(scaling),
    ):
        assert (given.plan.scaling, given.plan.sums) == (scaling, False)
        assert given.test is not None
        assert torch.equal(given.test.x, (raw.x - 0.25) / 0.5)
    waiting = Remote(**DIGITS, test=Digits(), normalise=True).server_part(1)
    assert (waiting.plan.scaling, waiting.plan.sums) == (None, True)
    assert waiting.test is not None
    assert torch.equal(waiting.test.x, raw.x)


def test_plan_survives_encoding_and_its_digest_covers_names() -> None:
    def plan(**options: Any) -> DataPlan:
        return Remote(shape=[2], outputs=2, **options).server_part(1).plan

    first = plan(classes=["cat", "dog"], columns=["a", "b"], normalise=Scaling(mean=0.1, std=0.7))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(first), type=DataPlan) == first
    plans = [
        first,
        plan(classes=["dog", "cat"], columns=["a", "b"], normalise=Scaling(mean=0.1, std=0.7)),
        plan(classes=["cat", "dog"], columns=["b", "a"], normalise=Scaling(mean=0.1, std=0.7)),
        plan(classes=["cat", "dog"], columns=["a", "b"], normalise=Scaling(mean=0.2, std=0.7)),
    ]
    assert len({digest(msgspec.to_builtins(each)) for each in plans}) == 4


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [1 << 20] * 4},
        {"shape": [0]},
        {"shape": []},
        {"shape": [1] * 9},
        {"num_outputs": 1 << 40},
        {"task": "guess"},
        {"seed": -1},
        {"scaling": {"mean": float("inf"), "std": 1.0}},
        {"scaling": {"mean": 0.0, "std": -1.0}},
        {"test_fraction": 1.0},
        {"more": 1},
        {"classes": "abc"},
    ],
    ids=str,
)
def test_malicious_plan_is_rejected(change: dict[str, Any]) -> None:
    plan = msgspec.to_builtins(Remote(**DIGITS).server_part(1).plan) | change
    with pytest.raises((msgspec.ValidationError, ConfigError)):
        msgspec.msgpack.decode(msgspec.msgpack.encode(plan), type=DataPlan)


def test_settings_that_differ_are_named() -> None:
    server = {"name": "digits", "partition": {"name": "iid"}, "clients": 3}
    check_settings(server, dict(reversed(server.items())), "client")
    for own, problem in (
        (server | {"clients": 4}, r"data\.clients: the server has 3, client has 4"),
        (server | {"partition": {"name": "natural"}}, r"data\.partition\.name: the server has 'iid', client has 'nat"),
        ({"name": "digits", "clients": 3}, r"data\.partition\.name: the server has 'iid', client has None"),
        (server | {"\x1b[2J": "\u202e"}, r"data\.\\u001b\[2J: the server has None, client has '\\u202e'"),
    ):
        with pytest.raises(DataError, match=problem):
            check_settings(server, own, "client")
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"a": deep}
    with pytest.raises(DataError, match="nested too deep"):
        check_settings(server, deep, "client")


def test_settings_are_sent_without_paths(tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text("def load(password): ...\n")
    kind = choose(str(tmp_path / "data.py:load"), DATASETS, "data.name")
    settings = travelling_settings(kind(options={"password": "xyzzy"}))
    assert settings["name"] == "data.py:load"
    assert "xyzzy" not in str(settings)
    assert settings["options"] != travelling_settings(kind(options={"password": "abc"}))["options"]
    table = travelling_settings(Table(file=f"{tmp_path}/t.csv", test_file=f"{tmp_path}/u.csv", target="y"))
    assert str(tmp_path) not in str(table)
    assert "dir" not in travelling_settings(Digits(dir="/data"))
