"""What every algorithm and wrapper promises in every engine."""

from pathlib import Path
from typing import Any

import pytest
import torch

from federation import BUILDS, ENGINES, PLAIN, SAMPLE, Federation, mixed, sampled
from fedge.core.algorithm import Algorithm, Build, Work
from fedge.core.layout import Layout, Tree, nest, pick
from fedge.runs.directory import RunDirectory

AMOUNTS = {"steps": {"steps": 3}, "epochs": {"epochs": 1}}
ENGINES_APART = ("loop", "block")  # `wire` is `loop`, as the first test shows
# A code of 8 bits may turn on rounding noise: compressed uploads are promised between loop and wire only.
ROUNDED = [name for name in BUILDS if "ce_fedavg" not in name and "codec" not in name]


def every(*variants: str) -> list[Any]:
    """Every build with each variant; the full tests have all, the default ones a sample and, if wrapped, the last."""
    return [
        pytest.param(
            name,
            variant,
            marks=[] if name in PLAIN or (name in SAMPLE and variant == variants[-1]) else pytest.mark.full,
        )
        for name in BUILDS
        for variant in variants
    ]


@pytest.mark.parametrize(("name", "amount"), every("epochs", "steps"))
def test_engines_agree(name: str, amount: str) -> None:
    """Three rounds in float64: `wire` bit for bit, `block` to rounding."""
    loop, wire, block = (
        Federation(BUILDS[name], mixed(), engine, **AMOUNTS[amount]).rounds(3).everything() for engine in ENGINES
    )
    _assert_same(loop, wire)
    if name in ROUNDED:
        _assert_close(loop, block, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", sampled(ROUNDED))
def test_engines_agree_in_float32(name: str) -> None:
    loop, block = (
        Federation(BUILDS[name], mixed(), engine, dtype=torch.float32).rounds(1).everything()
        for engine in ("loop", "block")
    )
    _assert_close(loop, block, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("name", "engine"), every(*ENGINES_APART))
def test_inputs_are_unchanged(name: str, engine: str) -> None:
    federation = Federation(_guarded(BUILDS[name]), mixed(), engine)
    state = federation.state
    before = {key: value.clone() for key, value in state.items()}
    federation.rounds(2)
    _assert_same(before, state)


@pytest.mark.parametrize(("name", "engine"), every(*ENGINES_APART))
def test_client_without_samples_is_ignored(name: str, engine: str) -> None:
    full, without = (Federation(BUILDS[name], mixed((7, 12, 0, 12)), engine) for _ in range(2))
    outcome = full.round((0, 1, 2, 3))
    without.round((0, 1, 3))
    assert outcome.replies[0].missing == (2,)
    _assert_same(full.everything(), without.everything())


@pytest.mark.parametrize(("name", "engine"), every(*ENGINES_APART))
def test_order_of_cohort_does_not_matter(name: str, engine: str) -> None:
    one, other = (Federation(BUILDS[name], mixed(), engine) for _ in range(2))
    for cohort in ((0, 1, 3), (1, 2, 3)):
        one.round(cohort)
        other.round(cohort[::-1])
    _assert_same(one.everything(), other.everything())


@pytest.mark.parametrize("name", sampled())
def test_state_survives_a_checkpoint(name: str, tmp_path: Path) -> None:
    undisturbed = Federation(BUILDS[name], mixed()).rounds(3)
    first = Federation(BUILDS[name], mixed())
    template = first.clients.algorithm.keep(first.clients.network.variables)
    with RunDirectory.create(tmp_path / "run", {"name": "x"}, {}) as directory:
        first = _keeping(first, directory.kept_store(template))
        first.rounds(2)
        directory.save(nest("server", first.state), {"round": 2})
        first.round()  # whatever comes after the checkpoint is forgotten
    with RunDirectory.open(tmp_path / "run") as directory:
        second = _keeping(Federation(BUILDS[name], mixed()), directory.kept_store(template))
        restored = directory.restore()
        assert restored is not None
        second.state = pick("server", restored[0])
        second.info = second.info._replace(round=2)
        second.round()
        _assert_same(undisturbed.everything(), second.everything())


@pytest.mark.parametrize("name", sampled())
def test_engines_agree_when_clients_join(name: str) -> None:
    """Two rounds of three clients, then one with two more."""
    federations = [Federation(BUILDS[name], mixed((6, 9, 9, 1, 5)), engine, num_clients=3) for engine in ENGINES]
    for federation in federations:
        outcome = federation.rounds(2).grow(5).round()
        assert {client for reply in outcome.replies for client in reply.ids} == set(range(5))
    loop, wire, block = (federation.everything() for federation in federations)
    _assert_same(loop, wire)
    if name in ROUNDED:
        _assert_close(loop, block, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", sampled())
def test_growing_in_steps_is_growing_at_once(name: str) -> None:
    federation = Federation(BUILDS[name], mixed((6, 9, 9)))
    grow, fresh = federation.clients.algorithm.grow, federation.state
    for state in (fresh, federation.rounds(2).state):
        before = {key: value.clone() for key, value in state.items()}
        _assert_same(grow(state, 3, 3), state)
        _assert_close(grow(grow(state, 3, 4), 4, 7), grow(state, 3, 7), rtol=1e-14, atol=0)
        _assert_same(before, state)


@pytest.mark.parametrize("name", [name for name in BUILDS if "scaffold" in name and "clustered" not in name])
def test_wrappers_forward_growth(name: str) -> None:
    """SCAFFOLD's c is a sum over clients, divided by their number."""
    federation = Federation(BUILDS[name], mixed((6, 9, 9))).rounds(2)
    grown = federation.clients.algorithm.grow(federation.state, 3, 6)
    assert federation.state["c"].any()
    assert torch.equal(grown["c"], federation.state["c"] / 2)


def _keeping(federation: Federation, kept: object) -> Federation:
    federation.sides = federation.sides._replace(clients=federation.clients._replace(kept=kept))
    federation.engine = type(federation.engine)(federation.sides)
    return federation


def _guarded(build: Build) -> Build:
    """The same algorithm, which raises if one of its functions changes what it was given."""

    def guard(function):
        def guarded(*args):
            trees = [arg for arg in args if isinstance(arg, dict)]
            before = [{name: value.clone() for name, value in tree.items()} for tree in trees]
            result = function(*args)
            for tree, copy in zip(trees, before, strict=True):
                _assert_same(copy, tree)
            return result

        return guarded if function else None

    def watch(work: Work) -> Work:
        names = ("init", "final", "affine", "step", "gradient")
        return work._replace(**{name: guard(getattr(work, name)) for name in names})

    def guarded_build(layout: Layout) -> Algorithm:
        algorithm = build(layout)
        return algorithm._replace(works={name: watch(work) for name, work in algorithm.works.items()})

    return guarded_build


def _assert_same(one: Tree, other: Tree) -> None:
    assert one.keys() == other.keys()
    for key, value in one.items():
        assert torch.equal(value, other[key]), key


def _assert_close(one: Tree, other: Tree, rtol: float, atol: float) -> None:
    assert one.keys() == other.keys()
    for key, value in one.items():
        torch.testing.assert_close(other[key], value, rtol=rtol, atol=atol, msg=lambda text, key=key: f"{key}: {text}")
