"""What every algorithm promises in every engine, as checks that raise an AssertionError.

Each takes a build: the function that makes the algorithm for a layout, such as `FedAvg().build`.
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
    """Check all that is in `CONTRACT` for an algorithm, given by its options or its build."""
    build = trained(algorithm) if isinstance(algorithm, TrainingOptions) else algorithm
    for check in CONTRACT.values():
        check(build)


def check_engines_agree(build: Build, codes: bool = False, **amount: int) -> None:
    """Three rounds in float64: `wire` equals `loop` bit for bit, `block` to rounding.

    With `codes`, uploads are compressed, and a code may turn on rounding noise: `block` is not compared. `amount` is
    `steps=3` or `epochs=1`.
    """
    loop, wire, block = (Federation(build, mixed(), engine, **amount).rounds(3).everything() for engine in ENGINES)
    assert_same(loop, wire)
    if not codes:
        assert_close(loop, block, rtol=1e-9, atol=1e-12)


def check_float32(build: Build) -> None:
    """One round in float32: `block` is near `loop`."""
    loop, block = (
        Federation(build, mixed(), engine, dtype=torch.float32).rounds(1).everything() for engine in ("loop", "block")
    )
    assert_close(loop, block, rtol=1e-3, atol=1e-4)


def check_inputs_unchanged(build: Build, engine: str = "loop") -> None:
    """No function changes what it is given."""
    federation = Federation(_guarded(build), mixed(), engine)
    state = federation.state
    before = _copy(state)
    federation.rounds(2)
    assert_same(before, state)


def check_empty_client(build: Build, engine: str = "loop") -> None:
    """A client without samples is ignored: a round with it and a round without it end alike."""
    full, without = (Federation(build, mixed((7, 12, 0, 12)), engine) for _ in range(2))
    outcome = full.round((0, 1, 2, 3))
    without.round((0, 1, 3))
    _require(outcome.replies[0].missing == (2,), f"expected client 2 to be missing, got {outcome.replies[0].missing}")
    assert_same(full.everything(), without.everything())


def check_order(build: Build, engine: str = "loop") -> None:
    """The order of a cohort does not matter."""
    one, other = (Federation(build, mixed(), engine) for _ in range(2))
    for cohort in ((0, 1, 3), (1, 2, 3)):
        one.round(cohort)
        other.round(cohort[::-1])
    assert_same(one.everything(), other.everything())


def check_checkpoint(build: Build) -> None:
    """State survives a checkpoint: two rounds, a save, a round that is forgotten, and a third round from the file."""
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
    """Engines agree when clients join: two rounds of three clients, then one with two more."""
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
    """Growing in two steps is growing at once, and leaves the state that it is given alone."""
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
"""Every promise with its check, for an algorithm whose uploads are not compressed."""


def assert_same(one: Tree, other: Tree) -> None:
    """Raise an AssertionError if two trees differ in a name or a bit."""
    _require(one.keys() == other.keys(), f"expected {sorted(one)}, got {sorted(other)}")
    for key, value in one.items():
        _require(torch.equal(value, other[key]), f"{key} differs: {value} and {other[key]}")


def assert_close(one: Tree, other: Tree, rtol: float, atol: float) -> None:
    """Raise an AssertionError if two trees differ in a name or by more than rounding."""
    _require(one.keys() == other.keys(), f"expected {sorted(one)}, got {sorted(other)}")
    for key, value in one.items():

        def explain(text: str, key: str = key) -> str:
            return f"{key}: {text}"

        torch.testing.assert_close(other[key], value, rtol=rtol, atol=atol, msg=explain)


def _require(holds: bool, text: str) -> None:
    if not holds:  # not an assert statement, which Python may leave out
        raise AssertionError(text)


def _copy(tree: Tree) -> Tree:
    return {name: value.clone() for name, value in tree.items()}


def _use(federation: Federation, kept: Kept) -> None:
    """Let clients keep their private state elsewhere."""
    federation.sides = federation.sides._replace(clients=federation.clients._replace(kept=kept))
    federation.engine = type(federation.engine)(federation.sides)  # type: ignore[call-arg]


def _guarded(build: Build) -> Build:
    """The same algorithm, which raises if one of its functions changes what it was given."""

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
