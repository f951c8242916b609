"""One step at rate 1/2 moves a client half of the way to its b; all start at r = x = 1."""

from collections.abc import Callable

import numpy as np
import pytest

from federation import ENGINES, Federation, Handmade, Losing, points, slope
from fedge.algorithms.compressed import compressed
from fedge.algorithms.dynavg import DynAvg
from fedge.core.codecs.chain import CodecOptions
from fedge.core.drive import Outcome
from fedge.core.errors import ConfigError
from fedge.core.keys import generator
from fedge.core.world import Spent
from fedge.edge.clock import FixedClock
from fedge.edge.ledger import Ledger
from fedge.edge.selection import Uniform
from fedge.edge.world import SimulatedWorld

STEP = {"make": slope, "rate": 0.5, "steps": 1}
HUGE = 1e9


def dynavg(clients: Handmade, **options: object) -> Federation:
    return Federation(DynAvg(**options).build, clients, **STEP)


def local(federation: Federation, name: str = "y") -> list[float]:
    """Return the clients' own models, or their references."""
    return [federation.clients.kept.read(client)[name].item() for client in range(len(federation.clients.data.sizes))]


def server(federation: Federation) -> dict[str, float]:
    return {name: federation.state[name].item() for name in ("x", "r", "v")}


def asked(outcome: Outcome) -> list[tuple[int, ...]]:
    """Return the clients asked in each exchange: to train, then (pulled, ...), then those that receive the mean."""
    return [reply.ids for reply in outcome.replies]


# ---------------------------------------------------------------- when clients communicate


def test_delta_zero_communicates_every_round() -> None:
    federation = dynavg(points(0, 4), delta=0)
    assert asked(federation.round()) == [(0, 1)] * 3
    assert server(federation) == {"x": 1.5, "r": 1.5, "v": 0}  # mean of 0.5 and 2.5
    assert local(federation) == local(federation, "r") == [1.5, 1.5]
    assert asked(federation.round()) == [(0, 1)] * 3
    assert server(federation) == {"x": 1.75, "r": 1.75, "v": 0}  # mean of 0.75 and 2.75


def test_huge_delta_never_communicates_and_clients_keep_their_work() -> None:
    federation = dynavg(points(0, 4), delta=HUGE)
    for _ in range(2):
        outcome = federation.round()
        assert asked(outcome) == [(0, 1)]
        assert not outcome.replies[0].communicated
    assert server(federation) == {"x": 1, "r": 1, "v": 0}
    assert local(federation) == [0.25, 3.25]
    assert local(federation, "r") == [1, 1]


def test_a_distance_equal_to_delta_is_not_a_violation() -> None:
    # client 0 reaches 3, at a squared distance of 4
    assert len(dynavg(points(5, 1, 1, 1), delta=4).round().replies) == 1
    assert len(dynavg(points(5, 1, 1, 1), delta=3.999).round().replies) > 1


def test_checks_may_be_less_frequent_than_rounds() -> None:
    federation = dynavg(points(0, 4), delta=0, check_every=2)
    assert len(federation.round().replies) == 1
    assert server(federation) == {"x": 1, "r": 1, "v": 0}  # violations without a check do not count
    assert local(federation) == [0.5, 2.5]
    assert len(federation.round().replies) == 3
    assert server(federation) == {"x": 1.75, "r": 1.75, "v": 0}  # mean of 0.25 and 3.25
    assert len(federation.round().replies) == 1


# ---------------------------------------------------------------- violators only


def test_violators_whose_mean_is_near_are_averaged_alone() -> None:
    # -3 and 7 reach -1 and 4, both further than delta; their mean 1.5 is not
    federation = dynavg(points(-3, 7, 1.5, 1, 1, 1), delta=2)
    outcome = federation.round()
    assert asked(outcome) == [(0, 1, 2, 3, 4, 5), (0, 1), (0, 1)]
    assert [reply.communicated for reply in outcome.replies] == [False, True, False]
    assert server(federation) == {"x": 1.5, "r": 1, "v": 2}
    assert federation.weight() == 1.5  # the evaluated model is the last mean
    assert local(federation) == [1.5, 1.5, 1.25, 1, 1, 1]  # only the two receive the mean
    assert local(federation, "r") == [1] * 6


def test_the_mean_is_weighted(crowd: Callable[..., Handmade]) -> None:
    clients = crowd((-3, 1), (5, 3), *[(1, 1)] * 4)  # they reach -1 and 3
    by_samples = dynavg(clients, delta=1.5)
    by_samples.round()
    assert server(by_samples) == {"x": 2, "r": 1, "v": 2}  # (-1 + 3*3)/4
    alike = dynavg(clients, delta=1.5, weighting="uniform")
    alike.round()
    assert server(alike) == {"x": 1, "r": 1, "v": 2}


# ---------------------------------------------------------------- growth


def test_the_set_triples() -> None:
    # client 0 reaches 3; with two others at 1 the mean is 5/3, at a squared distance of 4/9
    federation = dynavg(points(5, *[1] * 9), delta=2)
    _, first, second, told = asked(federation.round())
    assert (first, len(second)) == ((0,), 2)
    assert 0 not in second
    assert sorted(told) == sorted(first + second)
    assert server(federation) == pytest.approx({"x": 5 / 3, "r": 1, "v": 1}, abs=1e-15)
    assert local(federation) == [pytest.approx(5 / 3 if client in told else 1, abs=1e-15) for client in range(10)]


def test_the_set_keeps_growing() -> None:
    # client 0 reaches 7; of three the mean is 3 (distance 4), of nine 15/9 (distance 4/9)
    federation = dynavg(points(13, *[1] * 19), delta=2)
    _, *pulled, told = asked(federation.round())
    assert [len(ids) for ids in pulled] == [1, 2, 6]
    assert len(told) == len(set(told)) == 9
    assert server(federation) == pytest.approx({"x": 15 / 9, "r": 1, "v": 1}, abs=1e-15)


def test_reaching_half_of_all_clients_synchronises_all() -> None:
    # one and two others are half of six: the rest is pulled with them, though v = 1
    federation = dynavg(points(5, *[1] * 5), delta=2)
    _, first, second, told = asked(federation.round())
    assert (first, second) == ((0,), (1, 2, 3, 4, 5))
    assert sorted(told) == [0, 1, 2, 3, 4, 5]
    assert server(federation) == pytest.approx({"x": 8 / 6, "r": 8 / 6, "v": 0}, abs=1e-15)
    assert local(federation) == local(federation, "r") == pytest.approx([8 / 6] * 6, abs=1e-15)


def test_the_clients_asked_depend_only_on_seed_and_round() -> None:
    def grown(seed: int) -> tuple[int, ...]:
        federation = dynavg(points(5, *[1] * 14), delta=2)
        federation.info = federation.info._replace(seed=seed)
        return federation.round().replies[2].ids

    assert grown(1) == grown(1)
    assert len({grown(seed) for seed in range(4)}) > 1


# ---------------------------------------------------------------- violations add up


def test_n_violations_of_n_clients_force_a_full_synchronisation() -> None:
    # every round -3 and 5 reach -1 and 3 and are set back to their mean 1: two violations
    federation = dynavg(points(-3, 5, 1.5, 1, 1, 1), delta=2)
    for violations in (2, 4):
        assert len(federation.round().replies[1].ids) == 2
        assert server(federation) == {"x": 1, "r": 1, "v": violations}
    assert local(federation) == [1, 1, 1.375, 1, 1, 1]
    _, pulled, told = asked(federation.round())
    assert sorted(pulled) == sorted(told) == [0, 1, 2, 3, 4, 5]
    mean = (-1 + 3 + 1.4375 + 1 + 1 + 1) / 6
    assert server(federation) == pytest.approx({"x": mean, "r": mean, "v": 0}, abs=1e-15)
    assert local(federation) == local(federation, "r") == pytest.approx([mean] * 6, abs=1e-15)


def test_more_violations_than_clients_force_a_full_synchronisation() -> None:
    # two a round, five clients: 2, 4, then 6 >= 5
    federation = dynavg(points(-3, 5, 1, 1, 1), delta=2).rounds(2)
    assert server(federation)["v"] == 4
    assert sorted(federation.round().replies[1].ids) == [0, 1, 2, 3, 4]
    assert server(federation) == pytest.approx({"x": 1, "r": 1, "v": 0}, abs=1e-15)


def test_after_a_synchronisation_distances_use_the_new_reference() -> None:
    federation = dynavg(points(4, 6), delta=2.5)
    federation.round()
    # 2.5 and 3.5 are 2.25 and 6.25 away: one violator alone is half of two, so both are averaged
    assert server(federation) == {"x": 3, "r": 3, "v": 0}
    outcome = federation.round()
    # 3.5 and 4.5 are 0.25 and 2.25 away from 3, but 6.25 and 12.25 from 1
    assert len(outcome.replies) == 1
    assert local(federation) == [3.5, 4.5]


def test_users_have_their_local_models() -> None:
    federation = dynavg(points(0, 4), delta=HUGE).rounds(1)
    personal = federation.clients.algorithm.personal
    assert personal is not None
    own = [personal(federation.clients.network.variables, federation.clients.kept.read(client)) for client in (0, 1)]
    assert [variables["x"].item() for variables in own] == [0.5, 2.5]


def test_a_cohort_of_violators_is_synchronised() -> None:
    """With fewer violations than clients, and no other client to ask."""
    federation = dynavg(points(0, 4, 1, 1, 1), delta=0)
    outcome = federation.round(cohort=(0, 1))
    assert not outcome.void
    assert asked(outcome) == [(0, 1)] * 3
    assert server(federation) == {"x": 1.5, "r": 1.5, "v": 0}


def test_whole_models_are_not_made_sparse() -> None:
    build = compressed(DynAvg().build, *CodecOptions(up=["sparsify(0.9)"]).chains)
    with pytest.raises(ConfigError, match=r"codec\.up: sparsify"):
        Federation(build, points(0, 4), **STEP)


# ---------------------------------------------------------------- unavailable clients


def test_unanswered_pulls_terminate() -> None:
    """Six of ten clients reach 9, and one of them answers; two of the others do, which is never half of all."""
    federation = dynavg(points(*[17] * 6, *[1] * 4), delta=0.1)
    others = generator(federation.info.seed, "augment", round=1).permutation(range(6, 10)).tolist()
    answering = {0, others[0], others[2]}  # the set grows by two, then by the two that are left: one of each answers
    federation.engine = Losing(
        federation.engine, lambda work, info: set(range(10)) - answering if work == "pull" else set()
    )
    assert [len(ids) for ids in asked(federation.round())] == [10, 1, 1, 1, 3]
    # all were asked, so the mean of the three answers is the new reference: (9 + 1 + 1)/3
    assert server(federation) == pytest.approx({"x": 11 / 3, "r": 11 / 3, "v": 0})


def test_violators_that_do_not_answer_are_counted_until_all_are_asked() -> None:
    """One of three violates in each round and never answers: after the third violation all are synchronised."""
    federation = dynavg(points(17, 1, 1), delta=0.1)
    federation.engine = Losing(federation.engine, lambda work, info: {0} if work == "pull" else set())
    outcomes = [federation.round() for _ in range(3)]
    assert not any(outcome.void for outcome in outcomes)
    assert [[len(ids) for ids in asked(outcome)] for outcome in outcomes] == [[3, 0], [3, 0], [3, 2, 2]]
    assert local(federation) == [15, 1, 1]  # no client loses its progress: 1, 9, 13, 15


def test_the_server_keeps_a_mean_that_no_client_receives() -> None:
    federation = dynavg(points(0, 4), delta=0)
    federation.engine = Losing(federation.engine, lambda work, info: {0, 1} if work == "renew" else set())
    assert not federation.round().void
    assert server(federation) == {"x": 1.5, "r": 1.5, "v": 0}
    assert local(federation) == [0.5, 2.5]


def test_clients_outside_the_cohort_keep_their_model_and_reference() -> None:
    federation = dynavg(points(0, 4, 8), delta=0)
    federation.round((0, 1))
    assert local(federation) == local(federation, "r") == [1.5, 1.5, 1]
    federation.round((0, 2))  # they reach 0.75 and 4.5
    assert local(federation) == local(federation, "r") == [2.625, 1.5, 2.625]


# ---------------------------------------------------------------- silence is free


def charged(outcome: Outcome) -> list[list[int]]:
    """Return the clients charged in each exchange."""
    return [
        [client for client, size in zip(reply.ids, reply.costs.bytes_up, strict=True) if size]
        for reply in outcome.replies
    ]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_client_without_a_violation_is_not_charged(engine: str) -> None:
    federation = Federation(DynAvg(delta=2).build, points(-3, 7, 1.5, 1, 1, 1), engine, **STEP)
    outcome = federation.round()
    assert outcome.replies[0].ids == (0, 1, 2, 3, 4, 5)  # all answer
    assert charged(outcome) == [[0, 1]] * 3
    costs = outcome.replies[0].costs
    assert np.array_equal(costs.bytes_down > 0, costs.bytes_up > 0)
    assert costs.steps.tolist() == [1] * 6  # they did train
    record = Ledger().charge(outcome.replies, Spent())
    assert record["messages"] == 12  # a request and an answer of two clients, in three exchanges


def test_between_checks_no_client_is_charged() -> None:
    federation = dynavg(points(0, 4), delta=0, check_every=2)
    assert charged(federation.round()) == [[]]
    assert charged(federation.round()) == [[0, 1]] * 3


def test_silence_takes_no_airtime() -> None:
    """The round takes one minibatch of 0.017 s."""
    federation = dynavg(points(5, 1, 1, 1), delta=2)
    (train, *_) = federation.round().replies
    world = SimulatedWorld(FixedClock(), Uniform(), 4, 1, 7, lambda ids: (ids, ids), 100)
    world.spend(1, [0], [[train]], 0)
    described = world.describe(None)
    assert described["finish_s"][1:] == pytest.approx([0.017] * 3)
    assert described["finish_s"][0] > 0.0171


# ---------------------------------------------------------------- optimisers


def test_optimiser_statistics_stay_on_the_client() -> None:
    federation = dynavg(points(0, 4), delta=0, optimiser="sgdm", beta=0.5).rounds(2)
    # m = 0.5 and -1.5, y = 0.75 and 1.75, mean 1.25; then gradients 1.25 and -2.75: m = 0.875 and -2.125
    assert local(federation, "m") == [0.875, -2.125]
    assert server(federation)["x"] == 1.25 - 0.5 * (0.875 - 2.125) / 2
