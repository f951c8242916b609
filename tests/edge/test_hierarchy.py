"""States of cells and their merge, derived by hand, and for every algorithm."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from federation import BUILDS, Federation, make_sides, mixed, normed
from fedge.algorithms.scaffold import Scaffold
from fedge.config import parse
from fedge.core.algorithm import Build, Costs, Reply
from fedge.core.drive import Outcome, drive
from fedge.core.layout import Tree
from fedge.core.slots import Slot
from fedge.edge.clock import Norms
from fedge.edge.hierarchy import Hierarchy, divergence, merge
from fedge.experiment.setup import Setup

SLOTS = {
    "x": Slot("params"),
    "c": Slot("params", merge="sum"),
    "members": Slot("scalar", merge="max"),
}


def vector(*values: float) -> Tensor:
    return torch.tensor(values)


def outcome(state: Tree, num_clients: int, void: bool = False) -> Outcome:
    """Return the outcome of a round with this many answers."""
    nothing = np.zeros(num_clients)
    costs = Costs.free(num_clients)
    return Outcome(state, [Reply({}, tuple(range(num_clients)), nothing, (), costs, nothing, True)], void)


def weights(state: Tree) -> Tensor:
    return state["x"]


def assert_same(found: Tree, expected: Tree) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value), name


# ---------------------------------------------------------------- slots by hand


def test_models_are_weighted_by_participants() -> None:
    base = {"x": vector(0.0, 0.0)}
    merged = merge(SLOTS, base, [{"x": vector(1.0, 8.0)}, {"x": vector(5.0, 0.0)}], [3, 1])
    assert merged["x"].tolist() == [2.0, 6.0]  # (3*1 + 5)/4 and (3*8 + 0)/4


def test_sums_add_the_changes_of_each_cell() -> None:
    base = {"c": vector(10.0)}
    merged = merge(SLOTS, base, [{"c": vector(11.0)}, {"c": vector(14.0)}, {"c": vector(9.0)}], [100, 1, 1])
    assert merged["c"].tolist() == [10 + 1 + 4 - 1]  # whatever the weights


def test_max_takes_the_largest_value() -> None:
    merged = merge(SLOTS, {"members": vector(0, 0)}, [{"members": vector(1, 0)}, {"members": vector(0, 3)}], [1, 9])
    assert merged["members"].tolist() == [1, 3]


def test_nested_names_belong_to_the_same_slot() -> None:
    merged = merge(SLOTS, {"1.c": vector(1.0)}, [{"1.c": vector(2.0)}, {"1.c": vector(3.0)}], [1, 1])
    assert merged["1.c"].tolist() == [1 + 1 + 2]


def test_a_single_state_is_returned_as_is() -> None:
    state = {"x": vector(0.1), "c": vector(0.3)}
    assert merge(SLOTS, {"x": vector(0.7), "c": vector(0.2)}, [state], [5]) is state


@pytest.mark.parametrize("name", BUILDS)
def test_merging_equal_states_changes_nothing(name: str) -> None:
    """Bit for bit, for any number of states and any weights, in the dtype of each slot."""
    server = make_sides(BUILDS[name], mixed(), normed, dtype=torch.float32).server
    state = server.algorithm.init(server.variables)
    for participants in ([1, 1], [3, 1, 7]):
        assert_same(merge(server.algorithm.slots, state, [state] * len(participants), participants), state)


# ---------------------------------------------------------------- several rounds


def test_cells_train_separately_until_they_merge() -> None:
    hierarchy = Hierarchy(SLOTS, {"x": vector(0.0), "c": vector(0.0)}, 3)
    early, late = {"x": vector(1.0), "c": vector(1.0)}, {"x": vector(2.0), "c": vector(5.0)}
    other = {"x": vector(4.0), "c": vector(2.0)}
    hierarchy.take([0, 2], [outcome(early, 2), outcome(other, 1)])
    hierarchy.take([0], [outcome(late, 1)])
    assert [state["x"].item() for state in hierarchy.states] == [2.0, 0.0, 4.0]
    assert hierarchy.base["x"].item() == 0.0
    hierarchy.merge(weights, "l2")
    # cell 0 had three participants and cell 2 one; cell 1 had none and is skipped, but also gets the merged state
    assert [state["x"].item() for state in hierarchy.states] == [(3 * 2 + 1 * 4) / 4] * 3
    assert [state["c"].item() for state in hierarchy.states] == [5.0 + 2.0] * 3


def test_cells_may_have_equal_weights() -> None:
    hierarchy = Hierarchy(SLOTS, {"x": vector(0.0)}, 3, equal=True)
    hierarchy.take([0, 2], [outcome({"x": vector(2.0)}, 3), outcome({"x": vector(4.0)}, 1)])
    assert hierarchy.merged()["x"].item() == 3.0  # not 2.5, and without the cell that had no participants
    hierarchy.merge(weights, "l2")
    assert [state["x"].item() for state in hierarchy.states] == [3.0] * 3


def test_a_merge_resets_the_participant_counts() -> None:
    hierarchy = Hierarchy(SLOTS, {"x": vector(0.0)}, 2)
    hierarchy.take([0, 1], [outcome({"x": vector(1.0)}, 99), outcome({"x": vector(1.0)}, 1)])
    hierarchy.merge(weights, "l2")
    hierarchy.take([0, 1], [outcome({"x": vector(2.0)}, 1), outcome({"x": vector(4.0)}, 1)])
    assert hierarchy.merged()["x"].item() == 3.0


def test_merged_has_no_side_effect() -> None:
    hierarchy = Hierarchy(SLOTS, {"x": vector(0.0)}, 2)
    hierarchy.take([0, 1], [outcome({"x": vector(2.0)}, 1), outcome({"x": vector(4.0)}, 1)])
    assert hierarchy.merged()["x"].item() == 3.0
    assert [state["x"].item() for state in hierarchy.states] == [2.0, 4.0]


def test_without_participants_nothing_changes() -> None:
    base = {"x": vector(7.0)}
    hierarchy = Hierarchy(SLOTS, base, 2)
    hierarchy.take([0], [outcome(base, 0, void=True)])
    assert hierarchy.merge(weights, "l2") is None
    assert hierarchy.merged() is base


def test_a_round_that_became_void_has_no_participants() -> None:
    """Its first exchange was answered and its second was not, so the state is unchanged."""
    base = {"x": vector(1.0)}
    hierarchy = Hierarchy(SLOTS, base, 2)
    hierarchy.take([0, 1], [outcome(base, 5, void=True), outcome({"x": vector(3.0)}, 1)])
    assert hierarchy.merged()["x"].item() == 3.0


# ---------------------------------------------------------------- divergence


def test_divergence_by_hand() -> None:
    own, merged = vector(3.0, 4.0, 1.0), vector(0.0, 0.0, 1.0)
    assert divergence(own, merged, "l2") == pytest.approx(5.0)  # sqrt(9 + 16) / 1
    assert divergence(own, merged, "l1_l2") == pytest.approx(7.0)  # (3 + 4) / 1
    assert divergence(own, 2 * own, "l2") == pytest.approx(0.5)


def test_divergence_from_zero() -> None:
    zero = vector(0.0, 0.0)
    assert divergence(zero, zero, "l2") == 0.0
    assert divergence(vector(1.0, 0.0), zero, "l2") == float("inf")


@pytest.mark.parametrize(("norms", "expected"), [("l2", (5 / 5 + 10 / 5) / 2), ("l1_l2", (7 / 5 + 14 / 5) / 2)])
def test_a_merge_returns_the_divergence_of_cells(norms: Norms, expected: float) -> None:
    """The unweighted mean over cells with participants, of their weights before the merge."""
    hierarchy = Hierarchy(SLOTS, {"x": vector(9.0, 9.0)}, 3)
    # merged is (2*(0, 0) + (9, 12))/3 = (3, 4) of norm 5; the differences are (-3, -4) and (6, 8)
    hierarchy.take([0, 2], [outcome({"x": vector(0.0, 0.0)}, 2), outcome({"x": vector(9.0, 12.0)}, 1)])
    assert hierarchy.merge(weights, norms) == pytest.approx(expected)


# ---------------------------------------------------------------- checkpoints


def test_a_checkpoint_in_the_middle_of_a_period() -> None:
    states = [{"x": vector(1.0, 2.0), "c": vector(3.0)}, {"x": vector(4.0, 5.0), "c": vector(6.0)}]
    base = {"x": vector(0.0, 0.0), "c": vector(0.0)}
    before, after = Hierarchy(SLOTS, base, 3), Hierarchy(SLOTS, base, 3)
    before.take([0, 2], [outcome(states[0], 2), outcome(states[1], 5)])
    saved = {name: value.clone() for name, value in before.state().items()}
    # cell 1 is still at the base
    assert saved.keys() == {"base.x", "base.c", "0.x", "0.c", "2.x", "2.c", "participants"}
    after.restore(saved)
    assert_same(after.merged(), before.merged())
    for one, other in zip(after.states, before.states, strict=True):
        assert_same(one, other)
    before.take([1], [outcome(states[0], 1)])
    after.take([1], [outcome(states[0], 1)])
    assert_same(after.merged(), before.merged())


def test_a_saved_state_is_a_copy() -> None:
    hierarchy = Hierarchy(SLOTS, {"x": vector(0.0)}, 1)
    saved = hierarchy.state()
    hierarchy.take([0], [outcome({"x": vector(1.0)}, 3)])
    assert saved["participants"].tolist() == [0]
    hierarchy.restore(saved)
    hierarchy.take([0], [outcome({"x": vector(1.0)}, 3)])
    assert saved["participants"].tolist() == [0]


def test_after_a_merge_one_state_is_stored() -> None:
    hierarchy = Hierarchy(SLOTS, {"x": vector(0.0)}, 9)
    hierarchy.take([3, 4], [outcome({"x": vector(1.0)}, 1), outcome({"x": vector(2.0)}, 1)])
    hierarchy.merge(weights, "l2")
    assert hierarchy.state().keys() == {"base.x", "participants"}


def test_the_size_is_that_of_an_encoded_state() -> None:
    """Each additional float32 parameter takes four bytes."""
    small, large = (Hierarchy(SLOTS, {"x": torch.zeros(n)}, 5).num_bytes for n in (1000, 2000))
    assert large - small == pytest.approx(4000, abs=8)  # apart from the digits of the length
    assert small >= 4000


# ---------------------------------------------------------------- real algorithms


SIZES = (6, 9, 9, 1, 5, 4)


class Cells:
    """A federation whose clients are in cells."""

    def __init__(self, build: Build, num_cells: int) -> None:
        self.federation = Federation(build, mixed(SIZES))
        self.hierarchy = Hierarchy(self.federation.clients.algorithm.slots, self.federation.state, num_cells)

    def round(self, where: Sequence[int], asked: Sequence[int] | None = None) -> None:
        """Train all clients, or those asked, in their current cells."""
        made = self.federation
        made.info = made.info._replace(round=made.info.round + 1)
        who = range(len(SIZES)) if asked is None else asked
        cohorts: dict[int, list[int]] = {}
        for client in sorted(who):
            cohorts.setdefault(where[client], []).append(client)
        infos = [made.info._replace(cohort=tuple(cohort)) for cohort in cohorts.values()]
        states = [self.hierarchy.states[cell] for cell in cohorts]
        self.hierarchy.take(list(cohorts), drive(made.engine, made.clients.algorithm, states, infos))

    def kept(self) -> list[Tree]:
        return [self.federation.clients.kept.read(client) for client in range(len(SIZES))]


ROUNDS = st.lists(
    st.tuples(st.lists(st.integers(0, 2), min_size=6, max_size=6), st.sets(st.integers(0, 5)), st.booleans()),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("option", ["I", "II"])
@given(rounds=ROUNDS)
@settings(max_examples=12, deadline=None)
def test_scaffolds_c_stays_the_mean_of_all_c_i(
    option: Literal["I", "II"], rounds: list[tuple[list[int], set[int], bool]]
) -> None:
    """For any cohorts, moves and merges: in float64, to rounding."""
    cells = Cells(Scaffold(option=option).build, 3)
    for where, asked, merges in rounds:
        cells.round(where, sorted(asked))
        mean = torch.stack([kept["c_i"] for kept in cells.kept()]).mean(0)
        assert torch.allclose(cells.hierarchy.merged()["c"], mean, rtol=1e-12, atol=1e-14)
        if merges:
            cells.hierarchy.merge(weights, "l2")
            assert torch.allclose(cells.hierarchy.base["c"], mean, rtol=1e-12, atol=1e-14)


def test_scaffolds_c_of_a_cell_is_not_the_mean() -> None:
    """Otherwise the test above would prove nothing."""
    cells = Cells(BUILDS["scaffold"], 2)
    cells.round([0, 0, 0, 1, 1, 1])
    mean = torch.stack([kept["c_i"] for kept in cells.kept()]).mean(0)
    assert not any(torch.allclose(state["c"], mean) for state in cells.hierarchy.states)


def test_one_cell_is_a_plain_federation() -> None:
    flat, cells = Federation(BUILDS["scaffold"], mixed(SIZES)), Cells(BUILDS["scaffold"], 1)
    for _ in range(3):
        flat.round()
        cells.round([0] * 6)
        cells.hierarchy.merge(weights, "l2")
    assert_same(cells.hierarchy.base, flat.state)


@pytest.mark.parametrize("name", ["mtfl(fedavg, bn)", "mtfl(fedavg_adam, bn)", "mtfl(scaffold, bn)"])
def test_private_state_moves_with_its_client(name: str) -> None:
    """Only clients that are asked change their private state, in any cell."""
    cells = Cells(BUILDS[name], 3)
    for where, asked in (
        ([0, 0, 1, 1, 2, 2], [0, 1, 2, 3, 4, 5]),
        ([1, 0, 2, 1, 0, 2], [0, 2, 5]),
        ([2, 2, 2, 0, 0, 0], [1, 2]),
    ):
        before = cells.kept()
        cells.round(where, asked)
        changed = {
            client
            for client, (one, other) in enumerate(zip(before, cells.kept(), strict=True))
            if any(not torch.equal(value, other[part]) for part, value in one.items())
        }
        assert changed == set(asked)


def test_private_state_does_not_depend_on_the_cell() -> None:
    """A client whose model is entirely private learns the same in any cell."""
    still, moving = Cells(BUILDS["independent"], 3), Cells(BUILDS["independent"], 3)
    for round in range(3):
        still.round([0, 0, 1, 1, 2, 2])
        moving.round([round, 2, 0, round, 1, 0])
        moving.hierarchy.merge(lambda state: torch.zeros(1), "l2")
    for one, other in zip(still.kept(), moving.kept(), strict=True):
        assert_same(one, other)


def test_cells_have_the_configured_weights() -> None:
    def merged(**edge: object) -> float:
        cells = {"clock": "cells", "cells": 2, **edge}
        config = parse({"data": "digits", "model": "logistic", "algorithm": "fedavg", "edge": cells})
        hierarchy = Setup.of(config, seed=1).hierarchy()
        states = [{name: torch.full_like(v, value) for name, v in hierarchy.base.items()} for value in (2.0, 4.0)]
        hierarchy.take([0, 1], [outcome(states[0], 3), outcome(states[1], 1)])
        return float(hierarchy.merged()["x"][0])

    assert merged() == 2.5
    assert merged(merge_weight="equal") == 3.0
