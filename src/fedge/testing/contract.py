"""The contract of every algorithm in every engine, as checks that raise AssertionError.

Each check takes a build: the function that returns the algorithm for a layout, such as `FedAvg().build`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from fedge.algorithms.compose import trained
from fedge.algorithms.options import TrainingOptions
from fedge.core.algorithm import Algorithm, Build, Kept, Work
from fedge.core.layout import Layout, Tree, nest, pick
from fedge.runs.directory import RunDirectory
from fedge.testing.federation import ENGINES, Federation, mixed

_FUNCTIONS = ("init", "final", "affine", "step", "gradient")  # of the client half


def check_contract(algorithm: TrainingOptions | Build) -> None:
    """Run all checks of `CONTRACT` for an algorithm, given by its options or its build."""
    build = trained(algorithm) if isinstance(algorithm, TrainingOptions) else algorithm
    for check in CONTRACT.values():
        check(build)


def check_engines_agree(build: Build, codes: bool = False, **amount: int) -> None:
    """Check that after three rounds in float64 `wire` equals `loop` bit for bit, and `block` equals it to rounding.

    With `codes`, uploads are compressed, and codes may differ because of rounding: `block` is not compared. `amount` is
    `steps=3` or `epochs=1`.
    """
    loop, wire, block = (Federation(build, mixed(), engine, **amount).rounds(3).everything() for engine in ENGINES)
    assert_same(loop, wire)
    if not codes:
        assert_close(loop, block, rtol=1e-9, atol=1e-12)


def check_float32(build: Build) -> None:
    """Check that after one round in float32 `block` is close to `loop`."""
    loop, block = (
        Federation(build, mixed(), engine, dtype=torch.float32).rounds(1).everything() for engine in ("loop", "block")
    )
    assert_close(loop, block, rtol=1e-3, atol=1e-4)


def check_inputs_unchanged(build: Build, engine: str = "loop") -> None:
    """Check that no function modifies its arguments."""
    federation = Federation(_guarded(build), mixed(), engine)
    state = federation.state
    before = _copy(state)
    federation.rounds(2)
    assert_same(before, state)


def check_empty_client(build: Build, engine: str = "loop") -> None:
    """Check that a client without samples is ignored: a round has the same result with and without it."""
    full, without = (Federation(build, mixed((7, 12, 0, 12)), engine) for _ in range(2))
    outcome = full.round((0, 1, 2, 3))
    without.round((0, 1, 3))
    _require(outcome.replies[0].missing == (2,), f"expected client 2 to be missing, got {outcome.replies[0].missing}")
    assert_same(full.everything(), without.everything())


def check_order(build: Build, engine: str = "loop") -> None:
    """Check that the order of a cohort does not matter."""
    one, other = (Federation(build, mixed(), engine) for _ in range(2))
    for cohort in ((0, 1, 3), (1, 2, 3)):
        one.round(cohort)
        other.round(cohort[::-1])
    assert_same(one.everything(), other.everything())


def check_checkpoint(build: Build) -> None:
    """Check that state survives a checkpoint: two rounds, a save, a discarded round, a third round from the file."""
    undisturbed = Federation(build, mixed()).rounds(3)
    first = Federation(build, mixed())
    template = first.clients.algorithm.keep(first.clients.network.variables)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        with RunDirectory.create(path, {"name": "x"}, {}) as directory:
            _use(first, directory.kept_store(template))
            first.rounds(2)
            directory.save(nest("server", first.state), {"round": 2})
            first.round()
        with RunDirectory.open(path) as directory:
            second = Federation(build, mixed())
            _use(second, directory.kept_store(template))
            restored = directory.restore()
            assert restored is not None
            second.state = pick("server", restored[0])
            second.info = second.info._replace(round=2)
            second.round()
            assert_same(undisturbed.everything(), second.everything())


def check_joining(build: Build, codes: bool = False) -> None:
    """Check that engines agree when clients join: two rounds of three clients, then one round with two more."""
    federations = [Federation(build, mixed((6, 9, 9, 1, 5)), engine, num_clients=3) for engine in ENGINES]
    for federation in federations:
        outcome = federation.rounds(2).grow(5).round()
        answered = {client for reply in outcome.replies for client in reply.ids}
        _require(answered == set(range(5)), f"expected all of 5 clients to answer, got {sorted(answered)}")
    loop, wire, block = (federation.everything() for federation in federations)
    assert_same(loop, wire)
    if not codes:
        assert_close(loop, block, rtol=1e-9, atol=1e-12)


def check_growth(build: Build) -> None:
    """Check that growing in two steps equals growing at once, and that `grow` does not modify its argument."""
    federation = Federation(build, mixed((6, 9, 9)))
    grow, fresh = federation.clients.algorithm.grow, federation.state
    for state in (fresh, federation.rounds(2).state):
        before = _copy(state)
        assert_same(grow(state, 3, 3), state)
        assert_close(grow(grow(state, 3, 4), 4, 7), grow(state, 3, 7), rtol=1e-14, atol=0)
        assert_same(before, state)


CONTRACT: dict[str, Callable[[Build], None]] = {
    "engines agree by steps": lambda build: check_engines_agree(build, steps=3),
    "engines agree by epochs": lambda build: check_engines_agree(build, epochs=1),
    "engines agree in float32": check_float32,
    "inputs are unchanged": check_inputs_unchanged,
    "inputs are unchanged in blocks": lambda build: check_inputs_unchanged(build, "block"),
    "a client without samples is ignored": check_empty_client,
    "the order of a cohort does not matter": check_order,
    "state survives a checkpoint": check_checkpoint,
    "engines agree when clients join": check_joining,
    "growing in steps is growing at once": check_growth,
}
"""All checks by name, for an algorithm whose uploads are not compressed."""


def assert_same(one: Tree, other: Tree) -> None:
    """Raise AssertionError if two trees differ in a name or a bit."""
    _require(one.keys() == other.keys(), f"expected {sorted(one)}, got {sorted(other)}")
    for key, value in one.items():
        if not torch.equal(value, other[key]):  # texts of tensors are slow
            raise AssertionError(f"{key} differs: {value} and {other[key]}")


def assert_close(one: Tree, other: Tree, rtol: float, atol: float) -> None:
    """Raise AssertionError if two trees differ in a name or by more than the tolerances."""
    _require(one.keys() == other.keys(), f"expected {sorted(one)}, got {sorted(other)}")
    for key, value in one.items():

        def explain(text: str, key: str = key) -> str:
            return f"{key}: {text}"

        torch.testing.assert_close(other[key], value, rtol=rtol, atol=atol, msg=explain)


def _require(holds: bool, text: str) -> None:
    if not holds:  # not an assert statement, which `python -O` removes
        raise AssertionError(text)


def _copy(tree: Tree) -> Tree:
    return {name: value.clone() for name, value in tree.items()}


def _use(federation: Federation, kept: Kept) -> None:
    """Make clients keep their private state in this storage."""
    federation.sides = federation.sides._replace(clients=federation.clients._replace(kept=kept))
    federation.engine = type(federation.engine)(federation.sides)  # type: ignore[call-arg]


def _guarded(build: Build) -> Build:
    """Return the same algorithm with functions that raise if they modify their arguments."""

    def guard(function: Callable[..., Any] | None) -> Callable[..., Any] | None:
        def guarded(*args: Any) -> Any:
            trees = [arg for arg in args if isinstance(arg, dict)]
            before = [_copy(tree) for tree in trees]
            result = function(*args) if function else None
            for tree, copy in zip(trees, before, strict=True):
                assert_same(copy, tree)
            return result

        return guarded if function else None

    def watch(work: Work) -> Work:
        changed: dict[str, Any] = {name: guard(getattr(work, name)) for name in _FUNCTIONS}
        return work._replace(**changed)

    def guarded_build(layout: Layout) -> Algorithm:
        algorithm = build(layout)
        return algorithm._replace(works={name: watch(work) for name, work in algorithm.works.items()})

    return guarded_build
