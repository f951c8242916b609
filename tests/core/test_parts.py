"""User-defined names: what they resolve to, which are rejected, and entry points of installed packages."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from fedge.algorithms import ALGORITHMS
from fedge.api.functions import run
from fedge.api.run import Run
from fedge.core.codecs.chain import CodecOptions
from fedge.core.errors import ConfigError, StreamError
from fedge.core.parts import noting_parts, permitting, short_name
from fedge.core.schema import Options, choose, tag
from fedge.data import PARTITIONS
from fedge.models import MODELS
from own_parts import BASE, write_own

Install = Callable[..., None]


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return write_own(tmp_path / "code")


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install packages that register entry points, for the duration of a test."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def add(package: str, code: str, **entries: str) -> None:
        module = package.replace("-", "_")
        (site / f"{module}.py").write_text(code)
        info = site / f"{module}-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.5\n")
        groups = "".join(f"[fedge.{group}]\n{entry}\n" for group, entry in entries.items())
        (info / "entry_points.txt").write_text(groups)

    before = set(sys.modules)
    yield add
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(site)):
            del sys.modules[name]


OWN = "from fedge.algorithm import *\nclass Mine(FedAvg):\n    '''Mine of a package.'''\n    extra: int = 3\n"


def problem(name: str, kinds: Any = ALGORITHMS, what: str = "algorithm.name") -> str:
    with pytest.raises(ConfigError) as caught:
        choose(name, kinds, what)
    return str(caught.value)


def test_loading_a_class_twice_gives_one_class(mine: Path) -> None:
    kind, again = (choose(f"{mine}:FedAvgM", ALGORITHMS, "algorithm.name") for _ in range(2))
    assert kind is again
    assert tag(kind) == f"{mine}:FedAvgM"
    made = kind(beta=0.25)
    assert made == kind(beta=0.25)
    assert msgspec.to_builtins(made)["name"] == f"{mine}:FedAvgM"
    with noting_parts(made) as sources:
        pass
    assert {Path(path).name for path in sources} == {"mine.py", "mine_helper.py"}


def test_an_edited_file_gives_another_class(mine: Path) -> None:
    before = choose(f"{mine}:FedAvgM", ALGORITHMS, "algorithm.name")
    mine.write_text(mine.read_text().replace("] = 0.9", "] = 0.1"))
    after = choose(f"{mine}:FedAvgM", ALGORITHMS, "algorithm.name")
    assert (before().beta, after().beta) == (0.9, 0.1)


def test_options_survive_pickling_as_ray_sends_them(mine: Path) -> None:
    made = choose(f"{mine}:FedAvgM", ALGORITHMS, "algorithm.name")(beta=0.25)
    assert pickle.loads(pickle.dumps(made)) == made
    build = choose(f"{mine}:build", MODELS, "model.name")(options={"width": 2})
    assert pickle.loads(pickle.dumps(build)) == build


@pytest.mark.parametrize(
    ("name", "kinds", "expected"),
    [
        (
            "Net",
            ALGORITHMS,
            "a class derived from TrainingOptions of fedge.algorithm, for an algorithm; got a model of the class Net",
        ),
        (
            "FedAvgM",
            MODELS,
            "derived from Model of fedge.models.model or a function, for a model; got an algorithm of",
        ),
        ("Plain", ALGORITHMS, "for an algorithm; got the class Plain"),
        ("load", PARTITIONS, "derived from Partitioner of fedge.data.partition, for a partition; got a function"),
        ("not_a_part", MODELS, "got a value of type int"),
        ("TrainingOptions", ALGORITHMS, "got an algorithm of the class TrainingOptions"),
        ("FedAvgN", ALGORITHMS, "defines no 'FedAvgN', did you mean 'FedAvg"),
    ],
)
def test_objects_of_another_kind_are_rejected(mine: Path, name: str, kinds: Any, expected: str) -> None:
    found = problem(f"{mine}:{name}", kinds)
    assert found.startswith("algorithm.name: ")
    assert expected in found
    assert str(mine) in found


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("f = lambda: 3", "got a function"),
        ("def outer():\n    from fedge.algorithm import FedAvg\n    class f(FedAvg): ...\n", "defines no 'f'"),
        ("from fedge.algorithm import *\nclass f(FedAvg):\n    name: str = 'x'\n", "line 2 of"),
        ("from fedge.algorithm import *\nclass f(FedAvg):\n    x: int = 1\n1 / 0\n", "line 4 of"),
    ],
)
def test_lambdas_local_classes_and_broken_files_are_refused(tmp_path: Path, code: str, expected: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(code)
    assert expected in problem(f"{path}:f")


def test_a_package_offers_a_part_by_its_entry_point(install: Install) -> None:
    install("fedge-extra", OWN, algorithms="mine = fedge_extra:Mine")
    kind = choose("mine", ALGORITHMS, "algorithm.name")
    assert kind is choose("mine", ALGORITHMS, "algorithm.name")
    assert msgspec.to_builtins(kind(extra=4))["name"] == "mine"
    with noting_parts(kind()) as sources:
        pass
    assert sources == {"fedge-extra": "1.5"}
    assert pickle.loads(pickle.dumps(kind(extra=4))) == kind(extra=4)


METRIC = """
from fedge.metrics import Metric

class Wrong(Metric):
    better, low, high = "lower", 0.0, 1.0
    per_sample = (0.0, 1.0)
    weight: float = 1.0

    def count(self, outputs, targets):
        wrong = (outputs.argmax(-1) != targets).double() * self.weight
        return {"wrong": wrong.sum().reshape(1), "all": wrong.new_tensor([len(targets)])}

    def value(self, sums):
        return float(sums["wrong"] / sums["all"])
"""


def test_a_package_offers_a_metric(install: Install, tmp_path: Path) -> None:
    """It is recorded under the name that the package registers, may be the target, and its version is noted."""
    install("fedge-wrong", METRIC, metrics="wrong_share = fedge_wrong:Wrong\nf1 = fedge_wrong:Wrong")
    chosen = ["f1", {"name": "wrong_share", "weight": 0.5}]
    target = {"metric": "wrong_share", "value": 0.5}
    found = run(BASE | {"evaluate": {"metrics": chosen}, "target": target}, runs=tmp_path / "runs", progress=False)
    assert isinstance(found, Run)
    assert found.config["evaluate"]["metrics"][1] == {"name": "wrong_share", "weight": 0.5}
    for record in found.rounds:
        assert record["wrong_share"] == pytest.approx((1 - record["accuracy"]) / 2)
        assert record["f1"] != pytest.approx(1 - record["accuracy"])  # built-in names win
    assert (found.summary or {})["rounds_to_target"] == 1
    assert found.own_fields["wrong_share"].better == "lower"
    assert list(found.code) == ["fedge-wrong"]


def test_a_package_is_imported_only_when_it_is_named(install: Install) -> None:
    install("fedge-broken", "1 / 0\n", algorithms="broken = fedge_broken:Mine\nfedavg = fedge_broken:Mine")
    assert tag(choose("fedavg", ALGORITHMS, "algorithm.name")) == "fedavg"  # built-in names win
    assert "did you mean 'broken'?" in problem("brokem")
    assert "fedge_broken" not in sys.modules
    assert problem("broken") == (
        "algorithm.name: 'broken' of the package fedge-broken 1.5 cannot be imported from fedge_broken:Mine: "
        "ZeroDivisionError: division by zero"
    )


def test_an_ambiguous_name_lists_both_packages(install: Install) -> None:
    for package in ("fedge-one", "fedge-two"):
        install(package, OWN, algorithms=f"mine = {package.replace('-', '_')}:Mine")
    assert problem("mine") == (
        "algorithm.name: fedge-one 1.5 and fedge-two 1.5 both register 'mine' as fedge.algorithms; "
        "uninstall one of them"
    )


class Nothing:
    """Rules that allow nothing."""

    def find_file(self, reference: str, where: str) -> str:
        raise ConfigError(f"{where}: {reference} is not allowed")

    def check_package(self, package: str, version: str, where: str) -> None:
        raise ConfigError(f"{where}: {package} {version} is not allowed")


def test_nothing_is_loaded_without_permission(mine: Path, install: Install) -> None:
    install("fedge-extra", "raise SystemExit\n", algorithms="mine = fedge_extra:Mine")
    mine.write_text("raise SystemExit\n")
    with permitting(Nothing()):
        assert problem(f"{mine}:FedAvgM") == f"algorithm.name: {mine}:FedAvgM is not allowed"
        assert problem("mine") == "algorithm.name: fedge-extra 1.5 is not allowed"
        with pytest.raises(ConfigError, match=r"mine\.py:Sign is not allowed"):
            CodecOptions(up=[f"{mine}:Sign"])
        with pytest.raises(ConfigError, match=r"mine\.py is not allowed"):
            choose(str(mine), ALGORITHMS, "algorithm.name")


def test_a_user_defined_quantiser(mine: Path) -> None:
    """Signs times twice the mean magnitude: 1, -3, 2 become 4, -4, 4."""
    chain = CodecOptions(up=[f"{mine}:Sign(2.0)"]).chains.up
    assert chain is not None
    codes, bounds = chain.quantiser.quantise(np.array([1, -3, 2], np.float32), np.random.default_rng())
    assert chain.quantiser.restore(codes, bounds, 3, np.dtype("float32")).tolist() == [4, -4, 4]
    assert chain.quantiser.name == "Sign(scale=2.0)"  # no path: both ends compare it
    for bad in (np.array([np.nan], np.float32), np.array([], np.float32)):
        with pytest.raises(StreamError):
            chain.quantiser.restore(codes, bad, 3, np.dtype("float32"))


def test_short_names() -> None:
    assert short_name("/a/b/mine.py:Sign(0.5)") == "mine.py:Sign(0.5)"
    assert short_name("fedavg") == "fedavg"
    assert short_name("a/b") == "a/b"


class Holder(Options, tag=False):
    """Options that are not a part: users cannot add kinds."""

    x: int = 1


def test_users_cannot_extend_kinds_that_are_not_parts(mine: Path) -> None:
    assert "unknown name" in problem(f"{mine}:FedAvgM", [Holder])
