"""Quotes of alternative algorithms."""

from __future__ import annotations

from typing import Any

import pytest

from fedge.algorithms import ALGORITHMS
from fedge.config import parse
from fedge.core.schema import tag
from fedge.costs import Alternative, Forecast, alternatives
from fedge.experiment.setup import Setup


def found(algorithm: Any = "fedavg", model: str = "logistic", **tables: Any) -> list[Alternative]:
    data = {"name": "digits", "clients": 10}
    config = parse({"data": data, "model": model, "algorithm": algorithm, **tables})
    return list(alternatives(Setup.of(config, 1)))


def names(alternatives: list[Alternative]) -> list[str]:
    return [alternative.algorithm for alternative in alternatives]


def test_every_algorithm_with_its_optimisers() -> None:
    listed = names(found(model="nn"))
    assert {name.partition("(")[0].removesuffix(", silent") for name in listed} == {tag(kind) for kind in ALGORITHMS}
    for name in ("mfl", "mimelite", "mimexlite", "fedgbo"):
        assert {f"{name}({optimiser})" for optimiser in ("sgdm", "rmsprop", "adam")} <= set(listed)
    assert {"dynavg", "dynavg, silent", "ce_fedavg(0.6)", "ce_fedavg(0.9)", "ce_fedavg(0.95)"} <= set(listed)


@pytest.mark.parametrize(
    ("algorithm", "codec", "name", "written"),
    [
        ("fedavg", None, "fedavg", ""),
        ({"name": "fedgbo", "optimiser": "sgdm"}, None, "fedgbo(sgdm)", ""),
        ({"name": "ce_fedavg", "sparsity": 0.9}, None, "ce_fedavg(0.9)", ""),
        ("mfl", {"up": ["fp16"], "moments": ["expq"]}, "mfl(adam)", "fp16; moments: expq"),
        ("fedavg", {"up": ["sparsify(0.6)", "uniq", "golomb"]}, "fedavg", "sparsify(0.6), uniq, golomb"),
    ],
)
def test_the_configured_one_comes_first_and_once(algorithm: Any, codec: Any, name: str, written: str) -> None:
    tables = {"codec": codec} if codec else {}
    listed = found(algorithm, **tables)
    assert [each[:2] for each in listed if each.configured] == [(name, written)]
    assert listed[0].configured
    assert len({each[:2] for each in listed}) == len(listed)


def test_the_configured_one_is_also_compressed() -> None:
    listed = [each for each in found("mfl") if each.algorithm == "mfl(adam)"]
    ratios = [each.quote.compression for each in listed]
    assert [each.codec[:13] for each in listed] == ["", "sparsify(0.6)", "sparsify(0.9)", "sparsify(0.95"]
    assert ratios[0] == 1
    assert ratios == sorted(ratios)


def test_alternatives_have_the_same_steps_and_batch_size() -> None:
    algorithm = {"name": "scaffold", "local_steps": 7, "batch_size": 5}
    quotes = {each.algorithm: each.quote for each in found(algorithm)}
    assert {quote.local_steps for name, quote in quotes.items() if name != "dsgd"} == {7}
    assert quotes["dsgd"].local_steps == 1
    assert quotes["fedavg"].flops == 7 * (5 * 3 * 784 * 10 + 2 * 7850)


def test_algorithms_that_cannot_be_built_are_skipped() -> None:
    listed = names(found(personal={"private": ["1.bias"]}))
    assert "fedmax" not in listed  # a linear model has no features
    assert "dynavg" not in listed  # has several exchanges, which cannot be combined with private tensors
    assert "mfl(adam)" in listed


def test_schedules_of_rates_do_not_matter() -> None:
    schedule = {
        "server_learning_rate": {"name": "exp", "decay": 0.9},
        "local_steps": {"name": "post_local", "delay": 1},
    }
    quotes = {each.algorithm: each.quote for each in found({"name": "fedsgd", "local_steps": 9}, schedule=schedule)}
    assert quotes["fedavg"].local_steps == quotes["fedsgd"].local_steps == 1  # the first round has one step


def test_private_tensors_are_not_sent() -> None:
    shared = (784 * 10) / 7850  # all but the biases
    quotes = {each.algorithm: each.quote for each in found(personal={"private": ["1.bias"]})}
    assert quotes["fedavg"].vectors_up == pytest.approx(shared)
    assert quotes["mfl(adam)"].vectors_down == pytest.approx(3 * shared)
    assert quotes["fedavg"].kept == pytest.approx(1 - shared)


def test_quotes_equal_those_of_a_forecast() -> None:
    config = parse({"data": {"name": "digits", "clients": 10}, "model": "logistic", "algorithm": "mimelite"})
    quotes = {each.algorithm: each.quote for each in found()}
    assert quotes["mimelite(adam)"] == Forecast(Setup.of(config, 1)).quote()
