"""The epochs in which clients talk, for given losses, and the resulting models, with real training.

With losses 0, 1, 2 of clients 0, 1, 2: q' = 0, 1/2, 1. Of R remaining epochs they talk in E_k = 1, ceil(R/2), R.
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
    """Return a federation of three clients after `rounds` rounds, and the clients that talked in each round."""
    federation = Federation(DynAvgLoss(**options).build, points(*EVERYONE), make=slope)
    federation.engine = scripted = Scripted(loss)
    for t in range(1, rounds + 1):
        federation.round(cohort(t))
    return federation, [scripted.talked[t] for t in range(1, rounds + 1)]


def constant(t: int, client: int) -> float:
    return float(client)


def test_a_higher_loss_means_more_talks() -> None:
    _, talked = play(6, constant, epochs=6)
    assert talked == [
        [0, 1, 2],  # no losses are known yet
        [2],  # R = 5, E_k = 1, 3, 5, every 5, 2, 1 epochs; last talks 1, 1, 1
        [1, 2],  # R = 4, E_k = 1, 2, 4, every 4, 2, 1; last 1, 1, 2
        [0, 2],  # R = 3, E_k = 1, 2, 3, every 3, 2, 1; last 1, 3, 3
        [1, 2],  # R = 2, E_k = 1, 1, 2, every 2, 2, 1; last 4, 3, 4
        [0, 1, 2],  # the last epoch
    ]


def test_losses_count_from_the_time_they_are_reported() -> None:
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


def test_clients_with_equal_losses_talk_in_every_epoch() -> None:
    _, talked = play(4, lambda t, client: 0.7, epochs=4)
    assert talked == [[0, 1, 2]] * 4


def test_a_frozen_plan_does_not_change() -> None:
    # epoch 2 plans: R = 5, every 5, 2, 1 epochs; what clients report later does not matter
    _, talked = play(6, lambda t, client: float(client if t <= 2 else -client), epochs=6, freeze_after=2)
    assert talked == [[0, 1, 2], [2], [1, 2], [2], [1, 2], [0, 1, 2]]


def test_a_new_period_starts_after_the_last_epoch() -> None:
    # losses are now known from the start: R = 4, E_k = 1, 2, 4, every 4, 2, 1 epochs
    # then R = 3, E_k = 1, 2, 3, every 3, 2, 1; then R = 2, E_k = 1, 1, 2, every 2, 2, 1
    _, talked = play(8, constant, epochs=4)
    assert talked[3] == [0, 1, 2]
    assert talked[4:] == [[2], [1, 2], [0, 2], [0, 1, 2]]


def test_a_frozen_plan_is_renewed_in_the_next_period() -> None:
    # in the second period client 0 has the highest loss
    _, talked = play(8, lambda t, client: float(client if t <= 3 else 2 - client), epochs=4, freeze_after=1)
    assert talked[4] == [0]  # R = 4, E_k = 4, 2, 1, every 1, 2, 4
    assert talked[5] == [0, 1]


# ---------------------------------------------------------------- unavailable clients


def test_a_late_client_talks_at_once_and_is_then_planned() -> None:
    # client 0 comes in epoch 4, when the plan is frozen at R = 5 with q = ?, 1, 2: every ?, 5, 1 epochs
    def loss(t: int, client: int) -> float:
        return (1.5, 1.0, 2.0)[client]

    _, talked = play(6, loss, lambda t: (1, 2) if t < 4 else EVERYONE, epochs=6, freeze_after=2)
    assert talked == [[1, 2], [2], [2], [0, 2], [2], [0, 1, 2]]  # q' of client 0 is 1/2: E_k = 3, every 2 epochs


def test_a_client_unavailable_when_due_talks_when_it_returns() -> None:
    _, talked = play(6, constant, lambda t: (0, 2) if t in (3, 4) else EVERYONE, epochs=6)
    assert talked[2:] == [[2], [0, 2], [1, 2], [0, 1, 2]]


def test_a_client_that_does_not_answer_stays_due() -> None:
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


def test_the_server_keeps_a_mean_that_no_client_receives() -> None:
    federation = Federation(DynAvgLoss(epochs=6).build, points(1, 1, 5), make=slope, rate=0.5, steps=1)
    federation.engine = Losing(federation.engine, lambda work, info: EVERYONE if work == "push" else ())
    assert not federation.round().void
    assert federation.weight() == pytest.approx(5 / 3)
    own = [federation.clients.kept.read(client)["y"].item() for client in EVERYONE]
    assert own == pytest.approx([1, 1, 3])  # all continue from their own models


# ---------------------------------------------------------------- clients that join


def joining(num_clients: int) -> tuple[Federation, Scripted]:
    """Return a federation with losses 1, 2 and 3, of which the first `num_clients` clients have joined."""
    build = DynAvgLoss(epochs=6).build
    federation = Federation(build, points(*EVERYONE), make=slope, num_clients=num_clients)
    federation.engine = scripted = Scripted(lambda t, client: client + 1.0)
    return federation, scripted


def entries(federation: Federation) -> list[list[float]]:
    return [federation.state[name].tolist() for name in ("loss", "E_k", "last")]


def test_a_client_that_joins_is_unknown_and_talks_at_once() -> None:
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


def test_the_entry_of_a_single_client_is_kept_when_others_join() -> None:
    federation, _ = joining(1)
    federation.rounds(1).grow(3)
    assert entries(federation) == [[1, 0, 0], [0, 0, 0], [1, -6, -6]]


def test_a_shared_entry_also_covers_new_clients() -> None:
    federation, scripted = joining(2)
    federation.grow(3)
    assert entries(federation) == [[0], [0], [-6]]
    federation.round()
    assert entries(federation) == [[1, 2, 3], [0, 0, 0], [1, 1, 1]]
    assert scripted.talked[1] == [0, 1, 2]


# ---------------------------------------------------------------- exchanged models


def test_only_clients_that_talk_contribute_to_and_receive_the_mean() -> None:
    # a step at rate 1/2 goes half of the way to b = 1, 1, 5; the losses (1 - b)^2/2 of the first epoch are 0, 0, 8
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
def test_a_client_reports_its_mean_loss_or_its_first_loss(
    loss: str, expected: list[float], engine: str, crowd: Callable[..., Handmade]
) -> None:
    """At rate 1/2 a client with b = 5 goes from 1 to 3, 4 and 4.5: its losses (w - b)^2/2 are 8, 2 and 0.5."""
    clients = crowd((1, 2), (5, 3), (5, 1), (5, 2))  # with batches of one sample 2, 3, 1 and 2 steps
    build = DynAvgLoss(epochs=6, loss=loss).build
    federation = Federation(build, clients, engine, make=slope, rate=0.5, epochs=1, batch_size=1)
    reply, *_ = federation.round().replies
    assert federation.state["loss"].tolist() == expected
    assert reply.losses.tolist() == [0, 8, 8, 8]  # train_loss is always that of the first step


def test_the_mean_loss_uses_the_first_batch_of_each_step() -> None:
    """Client 1 alone, in two rounds of two steps: 8 and 2, then from 4 on 0.5 and 0.125."""
    federation = Federation(DynAvgLoss(epochs=6).build, points(1, 5), make=slope, rate=0.5, steps=2)
    found = [(federation.round((1,)), federation.state["loss"].tolist())[1] for _ in range(2)]
    assert found == [[0, 5], [0, 0.3125]]


# ---------------------------------------------------------------- rule = "document" (Reddy 2020)


def test_rule_document_spaces_the_talks_of_the_clients_that_talk() -> None:
    _, talked = play(6, constant, epochs=6, rule="document")
    assert talked == [
        [0, 1, 2],
        [0, 1, 2],  # by the losses of epoch 1: E_k = 1, 3, 6, every 6, 2, 1 epochs from now on
        [2],  # alone, so its share is 1: E_k = 6, every epoch
        [1, 2],  # of the two q' = 0, 1: E_k = 1, 6, every 6, 1 epochs: client 1 would be due in epoch 10
        [2],
        [0, 1, 2],  # the last epoch
    ]


def test_rule_document_spaces_talks_over_all_epochs() -> None:
    # Epoch 2 plans E_k = ceil(0.26*12) = 4, every ceil(12/4) = 3 epochs. Over the 11 epochs left it would be every 4.
    _, talked = play(7, lambda t, client: (0.0, 13.0, 50.0)[client], epochs=12, rule="document")
    assert talked == [[0, 1, 2], [0, 1, 2], [2], [2], [1, 2], [2], [2]]


def test_rule_document_plans_by_the_losses_of_earlier_talks() -> None:
    _, talked = play(6, lambda t, client: float(2 - client if t == 1 else client), epochs=6, rule="document")
    assert talked == [
        [0, 1, 2],
        [0, 1, 2],  # by 2, 1, 0: every 1, 2, 6 epochs
        [0],  # alone
        [0, 1],  # by client 0's loss of epoch 3 and client 1's of epoch 2, which are 0 and 1: every 6, 1 epochs
        [1],
        [0, 1, 2],
    ]


def test_rule_document_starts_a_period_with_all_clients() -> None:
    # losses are known from the start of the second one: E_k = 1, 2, 4, every 4, 2, 1 epochs
    _, talked = play(8, constant, epochs=4, rule="document")
    assert talked[2:] == [[2], [0, 1, 2], [0, 1, 2], [2], [1, 2], [0, 1, 2]]


def test_rule_document_with_a_frozen_plan() -> None:
    # E_k = 1, 5, 6 for good: every 6, 2, 1 epochs, and client 1 also in the last 5 - floor(6/2) = 2
    _, talked = play(6, lambda t, client: (0.0, 5.0, 6.0)[client], epochs=6, rule="document", freeze_after=1)
    assert talked == [[0, 1, 2], [0, 1, 2], [2], [1, 2], [1, 2], [0, 1, 2]]


def test_rule_document_plans_a_late_client_after_two_talks() -> None:
    _, talked = play(
        6, lambda t, client: (1.5, 1.0, 2.0)[client], lambda t: (1, 2) if t < 4 else EVERYONE, epochs=6, rule="document"
    )
    assert talked == [[1, 2], [1, 2], [2], [0, 2], [0, 2], [0, 1, 2]]


def test_rule_document_sends_the_mean_to_all() -> None:
    federation = Federation(DynAvgLoss(epochs=6, rule="document").build, points(1, 1, 5), make=slope, rate=0.5, steps=1)
    federation.rounds(2)  # losses 0, 0, 8 in the first: means 5/3 and (4/3 + 4/3 + 10/3)/3 = 2
    outcome = federation.round()
    assert [reply.ids for reply in outcome.replies] == [(0, 1, 2), (2,), (0, 1, 2)]
    own = [federation.clients.kept.read(client)["y"].item() for client in EVERYONE]
    assert own == pytest.approx([(2 + 5) / 2] * 3)  # clients 0 and 1 lose their progress


def talks_per_epoch(num_clients: int, rule: str) -> float:
    """Return the mean share of clients that talk in an epoch if losses are similar, as with IID data."""
    epochs = 100
    losses = 1 + 0.02 * np.random.default_rng(1).standard_normal((epochs + 1, num_clients))
    federation = Federation(DynAvgLoss(epochs=epochs, rule=rule).build, points(*range(num_clients)), make=slope)
    federation.engine = scripted = Scripted(lambda t, client: float(losses[t, client]))
    federation.rounds(epochs)
    return sum(map(len, scripted.talked.values())) / (num_clients * epochs)


def test_only_rule_document_matches_the_published_traffic() -> None:
    """The result files of Reddy (2020) show 5.3 times less traffic with 7 clients and 9.1 times less with 31."""
    assert 5 < 1 / talks_per_epoch(7, "document") < 8
    assert 9 < 1 / talks_per_epoch(31, "document") < 14
    # with shares uniform between 0 and 1 a client talks in about half of the epochs
    assert 2 < 1 / talks_per_epoch(31, "spaced") < 3
