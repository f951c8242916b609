"""Who talks in which epoch, by losses that are given, and what becomes of models, by real training.

With losses 0, 1, 2 of clients 0, 1, 2: q' = 0, 1/2, 1. Of R epochs left they talk in E_k = 1, ceil(R/2), R.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from federation import ENGINES, Federation, Handmade, Losing, Scripted, points, slope
from fedge.algorithms.dynavg_loss import DynAvgLoss

EVERYONE = (0, 1, 2)
Loss = Callable[[int, int], float]


def play(rounds: int, loss: Loss, cohort: Callable[[int], Sequence[int]] = lambda t: EVERYONE, **options: object):
    """A federation of three after so many rounds, and the talkers of each."""
    federation = Federation(DynAvgLoss(**options).build, points(*EVERYONE), make=slope)
    federation.engine = scripted = Scripted(loss)
    for t in range(1, rounds + 1):
        federation.round(cohort(t))
    return federation, [scripted.talked[t] for t in range(1, rounds + 1)]


def constant(t: int, client: int) -> float:
    return float(client)


def test_the_higher_the_loss_the_more_often() -> None:
    _, talked = play(6, constant, epochs=6)
    assert talked == [
        [0, 1, 2],  # nothing is known: all alike
        [2],  # R = 5, E_k = 1, 3, 5, every 5, 2, 1 epochs; last talks 1, 1, 1
        [1, 2],  # R = 4, E_k = 1, 2, 4, every 4, 2, 1; last 1, 1, 2
        [0, 2],  # R = 3, E_k = 1, 2, 3, every 3, 2, 1; last 1, 3, 3
        [1, 2],  # R = 2, E_k = 1, 1, 2, every 2, 2, 1; last 4, 3, 4
        [0, 1, 2],  # the last epoch
    ]


def test_losses_count_from_the_moment_they_are_reported() -> None:
    # client 2 reports 0 from epoch 2 on, client 0 reports 3 from epoch 2 on, but does not talk before epoch 4
    def changing(t: int, client: int) -> float:
        return (0.0, 1.0, 2.0)[client] if t == 1 else (3.0, 1.0, 0.0)[client]

    _, talked = play(6, changing, epochs=6)
    assert talked == [
        [0, 1, 2],
        [2],  # as above
        [1],  # q = 0, 1, 0; R = 4, E_k = 1, 4, 1, every 4, 1, 4; last 1, 1, 2
        [0, 1],  # R = 3, E_k = 1, 3, 1, every 3, 1, 3; last 1, 3, 2
        [0, 2],  # q = 3, 1, 0; R = 2, E_k = 2, 1, 1, every 1, 2, 2; last 4, 4, 2
        [0, 1, 2],
    ]


def test_equal_losses_talk_all_the_time() -> None:
    _, talked = play(4, lambda t, client: 0.7, epochs=4)
    assert talked == [[0, 1, 2]] * 4


def test_a_frozen_plan_does_not_change() -> None:
    # epoch 2 plans: R = 5, every 5, 2, 1 epochs; what clients report later does not matter
    _, talked = play(6, lambda t, client: float(client if t <= 2 else -client), epochs=6, freeze_after=2)
    assert talked == [[0, 1, 2], [2], [1, 2], [2], [1, 2], [0, 1, 2]]


def test_after_its_last_epoch_a_period_begins_anew() -> None:
    # losses are known from the start now: R = 4, E_k = 1, 2, 4, every 4, 2, 1 epochs
    # then R = 3, E_k = 1, 2, 3, every 3, 2, 1; then R = 2, E_k = 1, 1, 2, every 2, 2, 1
    _, talked = play(8, constant, epochs=4)
    assert talked[3] == [0, 1, 2]
    assert talked[4:] == [[2], [1, 2], [0, 2], [0, 1, 2]]


def test_a_frozen_plan_is_made_anew_in_the_next_period() -> None:
    # in the second period client 0 has the highest loss
    _, talked = play(8, lambda t, client: float(client if t <= 3 else 2 - client), epochs=4, freeze_after=1)
    assert talked[4] == [0]  # R = 4, E_k = 4, 2, 1, every 1, 2, 4
    assert talked[5] == [0, 1]


# ---------------------------------------------------------------- clients that are not there


def test_who_comes_later_talks_at_once_and_is_planned_then() -> None:
    # client 0 comes in epoch 4, when the plan is frozen at R = 5 with q = ?, 1, 2: every ?, 5, 1 epochs
    def loss(t: int, client: int) -> float:
        return (1.5, 1.0, 2.0)[client]

    _, talked = play(6, loss, lambda t: (1, 2) if t < 4 else EVERYONE, epochs=6, freeze_after=2)
    assert talked == [[1, 2], [2], [2], [0, 2], [2], [0, 1, 2]]  # q' of client 0 is 1/2: E_k = 3, every 2 epochs


def test_who_was_away_when_due_talks_when_it_is_back() -> None:
    _, talked = play(6, constant, lambda t: (0, 2) if t in (3, 4) else EVERYONE, epochs=6)
    assert talked[2:] == [[2], [0, 2], [1, 2], [0, 1, 2]]


def test_who_does_not_answer_stays_due() -> None:
    federation = Federation(DynAvgLoss(epochs=6).build, points(*EVERYONE), make=slope)
    scripted = Scripted(constant)
    silent = {3: (1,)}
    federation.engine = Losing(scripted, lambda work, info: silent.get(info.round, ()) if work == "pull" else ())
    federation.rounds(4)
    assert [scripted.talked[t] for t in (3, 4)] == [[2], [0, 1, 2]]
    federation.engine = Losing(scripted, lambda work, info: EVERYONE if work == "pull" else ())
    before, outcome = federation.state["x"], federation.round()
    assert not outcome.void  # all have trained
    assert [len(reply.ids) for reply in outcome.replies] == [3, 0]
    assert torch.equal(federation.state["x"], before)
    federation.engine = scripted
    federation.round()
    assert scripted.talked[6] == [0, 1, 2]


def test_a_mean_that_nobody_hears_is_the_servers_all_the_same() -> None:
    federation = Federation(DynAvgLoss(epochs=6).build, points(1, 1, 5), make=slope, rate=0.5, steps=1)
    federation.engine = Losing(federation.engine, lambda work, info: EVERYONE if work == "push" else ())
    assert not federation.round().void
    assert federation.weight() == pytest.approx(5 / 3)
    own = [federation.clients.kept.read(client)["y"].item() for client in EVERYONE]
    assert own == pytest.approx([1, 1, 3])  # all go on from where they are


# ---------------------------------------------------------------- clients that join


def joining(num_clients: int) -> tuple[Federation, Scripted]:
    """Losses 1, 2 and 3; the first of them are there from the start."""
    build = DynAvgLoss(epochs=6).build
    federation = Federation(build, points(*EVERYONE), make=slope, num_clients=num_clients)
    federation.engine = scripted = Scripted(lambda t, client: client + 1.0)
    return federation, scripted


def entries(federation: Federation) -> list[list[float]]:
    return [federation.state[name].tolist() for name in ("loss", "E_k", "last")]


def test_who_joins_is_unknown_and_talks_at_once() -> None:
    federation, scripted = joining(2)
    federation.rounds(2)
    # R = 5, E_k = 1, 5, every 5, 1 epochs: client 0 talked in epoch 1, client 1 in epoch 2
    assert entries(federation) == [[1, 2], [1, 5], [1, 2]]
    federation.grow(3)
    assert entries(federation) == [[1, 2, 0], [1, 5, 0], [1, 2, -6]]
    federation.rounds(4)
    assert [scripted.talked[t] for t in range(3, 7)] == [
        [1, 2],  # R = 4, E_k = 1, 4, every 4, 1; client 2 is not known
        [0, 2],  # q' = 0, 1/2, 1; R = 3, E_k = 1, 2, 3, every 3, 2, 1; last 1, 3, 3
        [1, 2],  # R = 2, E_k = 1, 1, 2, every 2, 2, 1; last 4, 3, 4
        [0, 1, 2],
    ]


def test_the_entry_of_a_single_client_stays_its_own() -> None:
    federation, _ = joining(1)
    federation.rounds(1).grow(3)
    assert entries(federation) == [[1, 0, 0], [0, 0, 0], [1, -6, -6]]


def test_one_entry_for_all_is_one_for_more() -> None:
    federation, scripted = joining(2)
    federation.grow(3)
    assert entries(federation) == [[0], [0], [-6]]
    federation.round()
    assert entries(federation) == [[1, 2, 3], [0, 0, 0], [1, 1, 1]]
    assert scripted.talked[1] == [0, 1, 2]


# ---------------------------------------------------------------- what they talk about


def test_the_mean_is_of_those_who_talk_and_goes_back_to_them_only() -> None:
    # a step at rate 1/2 goes half the way to b = 1, 1, 5; the losses (1 - b)^2/2 of the first epoch are 0, 0, 8
    federation = Federation(DynAvgLoss(epochs=6).build, points(1, 1, 5), make=slope, rate=0.5, steps=1)
    federation.round()
    assert federation.weight() == pytest.approx(5 / 3)
    outcome = federation.round()
    assert [reply.ids for reply in outcome.replies] == [(0, 1, 2), (2,), (2,)]
    assert [reply.communicated for reply in outcome.replies] == [False, True, False]
    assert federation.weight() == pytest.approx((5 / 3 + 5) / 2)
    own = [federation.clients.kept.read(client)["y"].item() for client in EVERYONE]
    assert own == pytest.approx([(5 / 3 + 1) / 2, (5 / 3 + 1) / 2, (5 / 3 + 5) / 2])


def test_notes_have_the_last_reported_loss_and_the_plan() -> None:
    federation, _ = play(2, constant, lambda t: (1, 2), epochs=6)
    notes = federation.clients.algorithm.notes
    assert notes is not None
    found = notes(federation.state)
    assert math.isnan(found["q"][0])
    assert found["q"][1:].tolist() == [1, 2]
    assert found["E_k"].tolist() == [0, 1, 5]


# ---------------------------------------------------------------- which loss


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("loss", "expected"), [("epoch", [0, 3.5, 8, 5]), ("first", [0, 8, 8, 8])])
def test_a_client_reports_its_mean_loss_over_the_pass_or_its_first(
    loss: str, expected: list[float], engine: str, crowd: Callable[..., Handmade]
) -> None:
    """At rate 1/2 a client with b = 5 goes from 1 to 3, 4 and 4.5: its losses (w - b)^2/2 are 8, 2 and 0.5."""
    clients = crowd((1, 2), (5, 3), (5, 1), (5, 2))  # with batches of one sample 2, 3, 1 and 2 steps
    build = DynAvgLoss(epochs=6, loss=loss).build
    federation = Federation(build, clients, engine, make=slope, rate=0.5, epochs=1, batch_size=1)
    reply, *_ = federation.round().replies
    assert federation.state["loss"].tolist() == expected
    assert reply.losses.tolist() == [0, 8, 8, 8]  # what is recorded as train_loss is the first step's in any case


def test_the_mean_loss_is_of_the_first_batch_of_each_step() -> None:
    """Client 1 alone, in two rounds of two steps: 8 and 2, then from 4 on 0.5 and 0.125."""
    federation = Federation(DynAvgLoss(epochs=6).build, points(1, 5), make=slope, rate=0.5, steps=2)
    found = [(federation.round((1,)), federation.state["loss"].tolist())[1] for _ in range(2)]
    assert found == [[0, 5], [0, 0.3125]]


# ---------------------------------------------------------------- the document's rule


def test_the_document_spaces_the_turns_of_those_who_talk_from_now_on() -> None:
    _, talked = play(6, constant, epochs=6, rule="document")
    assert talked == [
        [0, 1, 2],
        [0, 1, 2],  # by the losses of epoch 1: E_k = 1, 3, 6, every 6, 2, 1 epochs from now on
        [2],  # alone, so its share is 1: E_k = 6, every epoch
        [1, 2],  # of the two q' = 0, 1: E_k = 1, 6, every 6, 1 epochs: client 1 would be due in epoch 10
        [2],
        [0, 1, 2],  # the last epoch
    ]


def test_turns_of_the_document_are_spaced_over_all_epochs() -> None:
    # Epoch 2 plans E_k = ceil(0.26*12) = 4, every ceil(12/4) = 3 epochs. Over the 11 epochs left it would be every 4.
    _, talked = play(7, lambda t, client: (0.0, 13.0, 50.0)[client], epochs=12, rule="document")
    assert talked == [[0, 1, 2], [0, 1, 2], [2], [2], [1, 2], [2], [2]]


def test_the_document_plans_by_the_losses_of_the_talks_before() -> None:
    _, talked = play(6, lambda t, client: float(2 - client if t == 1 else client), epochs=6, rule="document")
    assert talked == [
        [0, 1, 2],
        [0, 1, 2],  # by 2, 1, 0: every 1, 2, 6 epochs
        [0],  # alone
        [0, 1],  # by client 0's loss of epoch 3 and client 1's of epoch 2, which are 0 and 1: every 6, 1 epochs
        [1],
        [0, 1, 2],
    ]


def test_a_period_of_the_document_begins_with_all() -> None:
    # losses are known from the start of the second one: E_k = 1, 2, 4, every 4, 2, 1 epochs
    _, talked = play(8, constant, epochs=4, rule="document")
    assert talked[2:] == [[2], [0, 1, 2], [0, 1, 2], [2], [1, 2], [0, 1, 2]]


def test_a_frozen_plan_of_the_document() -> None:
    # E_k = 1, 5, 6 for good: every 6, 2, 1 epochs, and client 1 also in the last 5 - floor(6/2) = 2
    _, talked = play(6, lambda t, client: (0.0, 5.0, 6.0)[client], epochs=6, rule="document", freeze_after=1)
    assert talked == [[0, 1, 2], [0, 1, 2], [2], [1, 2], [1, 2], [0, 1, 2]]


def test_who_comes_later_talks_twice_before_the_document_plans_it() -> None:
    _, talked = play(
        6, lambda t, client: (1.5, 1.0, 2.0)[client], lambda t: (1, 2) if t < 4 else EVERYONE, epochs=6, rule="document"
    )
    assert talked == [[1, 2], [1, 2], [2], [0, 2], [0, 2], [0, 1, 2]]


def test_the_mean_of_the_document_goes_to_all() -> None:
    federation = Federation(DynAvgLoss(epochs=6, rule="document").build, points(1, 1, 5), make=slope, rate=0.5, steps=1)
    federation.rounds(2)  # losses 0, 0, 8 in the first: means 5/3 and (4/3 + 4/3 + 10/3)/3 = 2
    outcome = federation.round()
    assert [reply.ids for reply in outcome.replies] == [(0, 1, 2), (2,), (0, 1, 2)]
    own = [federation.clients.kept.read(client)["y"].item() for client in EVERYONE]
    assert own == pytest.approx([(2 + 5) / 2] * 3)  # clients 0 and 1 lose what they have learned


def talks_per_epoch(num_clients: int, rule: str) -> float:
    """Of clients with losses that are alike, as of IID data, the mean share that talks in an epoch."""
    epochs = 100
    losses = 1 + 0.02 * np.random.default_rng(1).standard_normal((epochs + 1, num_clients))
    federation = Federation(DynAvgLoss(epochs=epochs, rule=rule).build, points(*range(num_clients)), make=slope)
    federation.engine = scripted = Scripted(lambda t, client: float(losses[t, client]))
    federation.rounds(epochs)
    return sum(map(len, scripted.talked.values())) / (num_clients * epochs)


def test_only_the_documents_rule_has_the_documents_traffic() -> None:
    """Its authors' result files have 5.3 times less traffic with 7 clients and 9.1 times less with 31."""
    assert 5 < 1 / talks_per_epoch(7, "document") < 8
    assert 9 < 1 / talks_per_epoch(31, "document") < 14
    # with shares uniform between 0 and 1 a client talks in about half of the epochs
    assert 2 < 1 / talks_per_epoch(31, "spaced") < 3
