"""Answers that arrive too late are missing, in every engine."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from federation import BUILDS, Federation, batched_of, mixed, points, slope
from fedge.algorithms.dynavg import DynAvg
from fedge.algorithms.fedavg import FedAvg
from fedge.core.algorithm import Build, Costs
from fedge.core.drive import Admission, Outcome, drive
from fedge.core.layout import Tree
from fedge.engines.pool import Pool

SAMPLE = (
    "fedavg",
    "scaffold",
    "mtfl(fedavg_adam, bn)",
    "dynavg(0.02)",
    "median(fedavg)",
    "clustered(fedavg)",
    "codec(scaffold, sparse)",
)
SIZES = (6, 9, 9, 1, 5)


def only(*clients: int) -> Admission:
    """Admit only these clients, in every exchange."""
    return lambda number, ids, costs: np.isin(ids, clients)


def everybody(number: int, ids: tuple[int, ...], costs: Costs) -> np.ndarray:
    return np.ones(len(ids), bool)


def play(federation: Federation, admit: Admission) -> Outcome:
    """Run one round in which some clients may be late."""
    federation.info = federation.info._replace(round=federation.info.round + 1)
    job = federation.clients
    (outcome,) = drive(federation.engine, job.algorithm, [federation.state], [federation.info], admit)
    federation.state = outcome.state
    return outcome


def alternate(federation: Federation) -> list[Outcome]:
    """Run three rounds, with different late clients in each."""
    return [play(federation, only(*clients)) for clients in ((0, 1, 3, 4), (1, 2, 3), (0, 2, 4))]


@pytest.fixture
def federate() -> Iterator[Callable[..., Federation]]:
    """Makes federations in any engine, with two workers in the pool, and closes them."""
    opened: list[Pool] = []

    def make(build: Build, engine: str, **options: object) -> Federation:
        made = Federation(build, mixed(SIZES), "block" if engine == "pool" else engine, **options)  # type: ignore[arg-type]
        if engine == "pool":
            opened.append(Pool(made.sides, batched_of(made.sides), num_rows=2, num_workers=2))
            made.engine = opened[-1]
        return made

    yield make
    for pool in opened:
        pool.close()


def kept(federation: Federation, client: int) -> Tree:
    return federation.clients.kept.read(client)


def assert_same(found: Tree, expected: Tree) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


def same(one: Tree, other: Tree) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


def assert_same_costs(found: Costs, expected: Costs, which: Sequence[int] = ()) -> None:
    """Check that costs equal all expected ones, or those at some positions, and that no times were measured."""
    assert found.measured is expected.measured is None
    for name in Costs._fields[:-1]:
        values = getattr(expected, name)
        assert getattr(found, name).tolist() == values[list(which) or slice(None)].tolist(), name


@pytest.mark.parametrize("name", SAMPLE)
def test_if_all_are_in_time_nothing_changes(name: str) -> None:
    asked, plain = (Federation(BUILDS[name], mixed(SIZES)) for _ in range(2))
    for _ in range(2):
        found, expected = play(asked, everybody), plain.round()
        assert [reply.late for reply in found.replies] == [None] * len(expected.replies)
        for one, other in zip(found.replies, expected.replies, strict=True):
            assert (one.ids, one.missing, one.communicated) == (other.ids, other.missing, other.communicated)
            assert_same_costs(one.costs, other.costs)
    assert_same(asked.everything(), plain.everything())


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from([name for name in SAMPLE if name != "clustered(fedavg)"]), st.sets(st.integers(0, 4), min_size=2)
)
def test_late_clients_have_no_effect(name: str, in_time: set[int]) -> None:
    """In the second round, when there is state to lose. (Clustering asks all clients, whatever the selection.)"""
    late, absent = (Federation(BUILDS[name], mixed(SIZES)).rounds(1) for _ in range(2))
    play(late, only(*in_time))
    absent.round(sorted(in_time))
    assert_same(late.everything(), absent.everything())


@pytest.mark.parametrize("name", SAMPLE)
def test_engines_agree(name: str, federate: Callable[..., Federation]) -> None:
    loop, wire, block, pool = (federate(BUILDS[name], engine) for engine in ("loop", "wire", "block", "pool"))
    outcomes = {made: alternate(made) for made in (loop, wire, block, pool)}
    assert_same(wire.everything(), loop.everything())
    assert_same(pool.everything(), block.everything())
    if "codec" not in name:  # a code may depend on rounding noise
        for key, value in loop.everything().items():
            torch.testing.assert_close(block.everything()[key], value, rtol=1e-9, atol=1e-12, msg=key)
    for made in (wire, block, pool):
        for found, expected in zip(outcomes[made], outcomes[loop], strict=True):
            assert [reply.ids for reply in found.replies] == [reply.ids for reply in expected.replies]
            assert [reply.late and reply.late.ids for reply in found.replies] == [
                reply.late and reply.late.ids for reply in expected.replies
            ]


@pytest.mark.parametrize("engine", ["loop", "wire", "block", "pool"])
@pytest.mark.parametrize("name", ["scaffold", "mtfl(fedavg_adam, bn)", "dynavg(0.02)"])
def test_late_clients_keep_their_old_private_state(name: str, engine: str, federate: Callable[..., Federation]) -> None:
    made = federate(BUILDS[name], engine).rounds(1)
    before = [kept(made, client) for client in range(5)]
    play(made, only(0, 3, 4))
    changed = [not same(kept(made, client), before[client]) for client in range(5)]
    assert changed == [True, False, False, True, True]


@pytest.mark.parametrize("engine", ["loop", "wire", "block", "pool"])
def test_late_work_is_charged(engine: str, federate: Callable[..., Federation]) -> None:
    """In epochs, so that work depends on the number of samples."""
    asked: list[tuple[int, tuple[int, ...], Costs]] = []

    def admit(number: int, ids: tuple[int, ...], costs: Costs) -> np.ndarray:
        asked.append((number, ids, costs))
        return np.isin(ids, (0, 2, 3))

    plain = federate(BUILDS["scaffold"], engine, epochs=2).round().replies[0]
    (reply,) = play(federate(BUILDS["scaffold"], engine, epochs=2), admit).replies
    ((number, ids, costs),) = asked
    assert (number, ids) == (0, (0, 1, 2, 3, 4))
    assert_same_costs(costs, plain.costs)
    assert (reply.ids, reply.missing) == ((0, 2, 3), (1, 4))
    assert_same_costs(reply.costs, plain.costs, (0, 2, 3))
    assert reply.late is not None
    assert reply.late.ids == (1, 4)
    assert_same_costs(reply.late.costs, plain.costs, (1, 4))
    assert reply.late.costs.samples.tolist() == [
        16,
        8,
    ]  # batches of 4; a last batch of a single sample is dropped
    assert reply.samples.tolist() == [6, 9, 1]
    assert len(reply.losses) == 3


@pytest.mark.parametrize("engine", ["loop", "wire", "block", "pool"])
@pytest.mark.parametrize("name", ["scaffold", "dynavg(0.02)", "median(fedavg)"])
def test_a_round_in_which_all_are_late_is_void(name: str, engine: str, federate: Callable[..., Federation]) -> None:
    made = federate(BUILDS[name], engine).rounds(1)
    before = made.everything()
    outcome = play(made, only())
    (reply,) = outcome.replies
    assert outcome.void
    assert (reply.value, reply.ids, reply.missing) == ({}, (), (0, 1, 2, 3, 4))
    assert reply.late is not None
    assert reply.late.ids == (0, 1, 2, 3, 4)
    assert_same(made.everything(), before)


def test_a_round_of_several_exchanges_continues_with_clients_in_time() -> None:
    """Rate 1 takes each client to its target: 1 (where it is), 3, 5 and 7. Two of them, 3 and 7, signal in time; 7 is
    late with its model, so the mean is 3, within 5 of r = 1. Pushing it changes nothing for 3."""
    federation = Federation(DynAvg(delta=5.0).build, points(1, 3, 5, 7), make=slope, rate=1.0, steps=1)
    asked: list[tuple[int, ...]] = []

    def admit(number: int, ids: tuple[int, ...], costs: Costs) -> np.ndarray:
        asked.append(ids)
        return np.isin(ids, (0, 1, 3) if len(asked) == 1 else (0, 1, 2))

    federation.clients.kept.write(1, {**kept(federation, 1), "r": torch.tensor([-1.0], dtype=torch.float64)})
    outcome = play(federation, admit)
    assert not outcome.void
    assert asked == [(0, 1, 2, 3), (1, 3), (1,)]
    assert [reply.late and reply.late.ids for reply in outcome.replies] == [(2,), (3,), None]
    assert federation.weight() == 3
    assert [float(kept(federation, client)["y"]) for client in range(4)] == [1, 3, 1, 7]


def test_the_distance_between_updates_covers_clients_in_time() -> None:
    """From 1, two clients go up and one goes down. Over all pairs, the mean of 1 - u.v is (0 + 2 + 2)/3."""
    for engine in ("loop", "block"):
        federation = Federation(FedAvg().build, points(2, 3, -4), engine, make=slope, compare_updates=True)
        assert play(federation, everybody).replies[0].cosine_distance == pytest.approx(4 / 3)
        assert play(federation, only(0, 1)).replies[0].cosine_distance == pytest.approx(0)
        assert play(federation, only(2)).replies[0].cosine_distance is None


@pytest.mark.parametrize("engine", ["loop", "block", "pool"])
def test_exchanges_of_one_call_are_admitted_separately(engine: str, federate: Callable[..., Federation]) -> None:
    """Even if a client is in both: its lateness in the first is known before the second."""

    def admit(number: int, ids: tuple[int, ...], costs: Costs) -> np.ndarray:
        return np.isin(ids, ((0, 1), (2, 3))[number])

    made, apart = federate(BUILDS["scaffold"], engine).rounds(1), federate(BUILDS["scaffold"], engine).rounds(1)
    cohorts = (0, 1, 2), (2, 3, 4)
    infos = [made.info._replace(round=2, cohort=cohort) for cohort in cohorts]
    found = drive(made.engine, made.clients.algorithm, [made.state] * 2, infos, admit)
    expected = [
        drive(apart.engine, apart.clients.algorithm, [apart.state], [info._replace(cohort=cohort)])[0]
        for info, cohort in zip(infos, ((0, 1), (2, 3)), strict=True)
    ]
    for one, other in zip(found, expected, strict=True):
        assert one.replies[0].ids == other.replies[0].ids
        for name, value in other.state.items():
            torch.testing.assert_close(one.state[name], value, rtol=1e-12, atol=1e-12)
    for client in range(5):
        assert_same(kept(made, client), kept(apart, client))
