"""Clients at 0 and 1/2 pull w down from 1, those at 3 and 4 up: two steps at rate 1/2 quarter the distance to b."""

from collections.abc import Callable

import pytest
import torch

from federation import BUILDS, Federation, Handmade, Losing, mixed, points, slope
from fedge.algorithms.cluster_placing import UNKNOWN
from fedge.algorithms.clustered import clustered
from fedge.algorithms.fedavg import FedAvg
from fedge.algorithms.fedopt import FedOpt
from fedge.algorithms.independent import Independent
from fedge.algorithms.reduced import reduced
from fedge.algorithms.scaffold import Scaffold
from fedge.core.drive import first_exchange
from fedge.core.errors import ConfigError
from fedge.core.layout import Tree, pick
from fedge.core.reduce import Collect, Median

HALF = {"make": slope, "rate": 0.5, "steps": 2}


def four(when: int = 2, **options: object) -> Federation:
    return Federation(clustered(FedAvg().build, 2, when), points(0, 3, 0.5, 4), **{**HALF, **options})


def weights(federation: Federation) -> list[float]:
    """Return the weight of each cluster's model."""
    return [federation.state[f"{cluster}.x"].item() for cluster in (0, 1)]


def personal(federation: Federation, client: int) -> float:
    """Return the weight used for a client's user accuracy."""
    algorithm, variables = federation.clients.algorithm, federation.clients.network.variables
    assert algorithm.personal is not None
    model = algorithm.model(federation.state, variables)
    return algorithm.personal(model, federation.clients.kept.read(client))["x"].item()


# ---------------------------------------------------------------- by hand


@pytest.mark.parametrize("engine", ["loop", "wire", "block"])
def test_two_groups_by_hand(engine: str) -> None:
    federation = Federation(clustered(FedAvg().build, 2, when=2), points(0, 3, 0.5, 4), engine, **HALF)
    federation.round()
    assert federation.weight() == 1.65625  # all: the mean of the b is 1.875, 1.875 - 0.875/4
    federation.round()
    assert federation.state["members"].tolist() == [0, 1, 0, 1]
    # each moves to the mean of its clients: 0.25 + (1.65625 - 0.25)/4 and 3.5 + (1.65625 - 3.5)/4
    assert weights(federation) == [0.6015625, 3.0390625]
    federation.round()
    assert weights(federation) == [0.25 + 0.3515625 / 4, 3.5 - 0.4609375 / 4]
    federation.rounds(20)
    assert weights(federation) == pytest.approx([0.25, 3.5], abs=1e-12)


def test_evaluated_models() -> None:
    federation = four().rounds(1)
    assert [personal(federation, client) for client in range(4)] == [1.65625] * 4
    federation.round()
    assert [personal(federation, client) for client in range(4)] == [
        0.6015625,
        3.0390625,
    ] * 2  # UA: each client's cluster model
    assert federation.weight() == (0.6015625 + 3.0390625) / 2  # CA: the mean over clients


def test_the_global_model_weights_clusters_by_clients() -> None:
    federation = Federation(clustered(FedAvg().build, 2, when=1), points(0, 0, 0, 4), **HALF).rounds(1)
    assert weights(federation) == [0.25, 3.25]
    assert federation.weight() == 1  # (3*0.25 + 3.25)/4


def test_the_split_asks_all_available_clients() -> None:
    federation = four(when=2)
    asks_all = federation.clients.algorithm.asks_all
    assert [asks_all(federation.state, round) for round in (1, 2, 3)] == [False, True, True]
    federation.rounds(2)
    assert not asks_all(federation.state, 3)


def test_clusters_without_clients_in_the_cohort_stay_unchanged() -> None:
    federation = four(when=1).rounds(1)
    federation.round(cohort=(1,))
    assert weights(federation) == [0.4375, 3 - 0.125 / 4]


def test_clients_are_weighted_by_samples_within_a_cluster(crowd: Callable[..., Handmade]) -> None:
    clients = crowd((0, 1), (3, 1), (0.5, 3), (4, 3))
    federation = Federation(clustered(FedAvg().build, 2, when=1), clients, **HALF).rounds(1)
    # means of the b 1.5/4 and 15/4: 0.375 + 0.625/4 and 3.75 - 2.75/4
    assert weights(federation) == [0.53125, 3.0625]


def test_a_robust_mean_stays_robust() -> None:
    build = clustered(reduced(FedAvg().build, Median), 2, when=1)
    federation = Federation(build, points(0, 3, 0, 4, -100, 100), **HALF).rounds(2)
    # medians 0 and 4 of the b: 1/16 and 4 - 3/16
    assert weights(federation) == [0.0625, 3.8125]


def test_every_cluster_has_its_own_server_optimiser() -> None:
    build = clustered(FedOpt(optimiser="sgdm", beta=0.5).build, 2, when=1)
    federation = Federation(build, points(0, 4), **HALF).rounds(1)
    # q = 0.75 and -2.25, m = q/2 and x -= m
    assert weights(federation) == [0.625, 2.125]
    assert [federation.state[f"{cluster}.m"].item() for cluster in (0, 1)] == [0.375, -1.125]


def test_the_control_variate_of_a_cluster_is_the_mean_of_its_clients() -> None:
    federation = Federation(clustered(Scaffold().build, 2, when=1), points(0, 3, 0.5, 4), **HALF)
    for cohort in ((0, 1, 2, 3), (0, 1), (2, 3), (0, 1, 2, 3)):
        federation.round(cohort)
        own = [federation.clients.kept.read(client)["kept.c_i"].item() for client in range(4)]
        found = [federation.state[f"{cluster}.c"].item() for cluster in (0, 1)]
        assert found == pytest.approx([(own[0] + own[2]) / 2, (own[1] + own[3]) / 2], abs=1e-15)
    federation.rounds(20)
    assert weights(federation) == pytest.approx([0.25, 3.5], abs=1e-9)


# ---------------------------------------------------------------- clients that are unavailable


@pytest.mark.parametrize("engine", ["loop", "wire", "block"])
def test_clients_unavailable_at_the_split_are_assigned_when_first_asked(engine: str) -> None:
    federation = four(when=1, engine=engine)
    outcome = federation.round(cohort=(0, 1))
    assert [reply.ids for reply in outcome.replies] == [
        (0, 1),
        (0,),
        (1,),
    ]  # training, then each client receives its cluster
    assert federation.state["members"].tolist() == [0, 1, UNKNOWN, UNKNOWN]
    assert weights(federation) == [0.25, 2.5]  # 1/4, 3 - 2/4
    assert federation.weight() == (0.25 + 2.5) / 2  # unassigned clients have no weight
    assert personal(federation, 3) == (0.25 + 2.5) / 2  # unassigned clients use the mean of all clusters' models
    outcome = federation.round(cohort=(0, 3))
    # from 1, the model before the split, client 3 moves up like cluster 1; then both train with their clusters
    assert [reply.ids for reply in outcome.replies] == [(3,), (3,), (0,), (3,)]
    assert federation.state["members"].tolist() == [0, 1, UNKNOWN, 1]
    assert weights(federation) == [0.0625, 4 - 1.5 / 4]
    assert personal(federation, 3) == 4 - 1.5 / 4
    federation.round(cohort=(2,))
    # from 0.0625 it would move up like cluster 1, but from 1, the model before the split, it moves down like cluster 0
    assert federation.state["members"].tolist() == [0, 1, 0, 1]
    assert weights(federation)[0] == 0.5 - 0.4375 / 4


def test_a_client_that_does_not_answer_stays_unknown() -> None:
    federation = four(when=1)
    federation.round(cohort=(0, 1))
    federation.engine = Losing(federation.engine, lambda work, info: {2} if work == "orient" else set())
    outcome = federation.round(cohort=(0, 2))
    assert not outcome.void
    assert [reply.ids for reply in outcome.replies] == [(), (0,)]
    assert federation.state["members"].tolist() == [0, 1, UNKNOWN, UNKNOWN]


def test_assignment_to_a_cluster_does_not_change_kept_state() -> None:
    federation = Federation(clustered(Scaffold().build, 2, when=1), points(0, 3, 0.5, 4), **HALF)
    federation.round(cohort=(0, 1))
    federation.engine = Losing(federation.engine, lambda work, info: {3} if work == "train" else set())
    federation.round(cohort=(0, 3))
    kept = federation.clients.kept.read(3)
    assert (kept["cluster"].item(), kept["kept.c_i"].item()) == (1, 0)


def test_a_client_that_missed_its_cluster_learns_it_in_its_next_round() -> None:
    """Until then its user accuracy uses the mean of all clusters, because it does not know its own."""
    federation = four(when=1)
    usual = federation.engine
    federation.engine = Losing(usual, lambda work, info: {1, 3} if work == "join" else set())
    assert not federation.round().void  # no client of cluster 1 has received its number
    assert federation.state["members"].tolist() == [0, 1, 0, 1]
    assert federation.state["told"].tolist() == [1, 0, 1, 0]
    assert [personal(federation, client) for client in range(4)] == [weights(federation)[0], federation.weight()] * 2
    federation.engine = usual
    for cohort, told in (((0, 1), [1, 1, 1, 0]), ((0, 2), [1, 1, 1, 0]), ((3,), [1, 1, 1, 1])):
        federation.round(cohort=cohort)
        assert federation.state["told"].tolist() == told
    assert [personal(federation, client) for client in range(4)] == 2 * weights(federation)
    assert [reply.ids for reply in federation.round().replies] == [(0, 2), (1, 3)]  # all know


def test_a_split_counts_even_if_no_client_receives_its_cluster() -> None:
    """The training is not lost; clients receive their clusters in the next round."""
    federation = four(when=1)
    usual = federation.engine
    federation.engine = Losing(usual, lambda work, info: {0, 1, 2, 3} if work == "join" else set())
    assert not federation.round().void
    assert federation.state["members"].tolist() == [0, 1, 0, 1]
    assert weights(federation) == [0.4375, 2.875]  # 0.25 + 0.75/4, 3.5 - 2.5/4
    federation.engine = usual
    federation.round()
    assert federation.state["told"].tolist() == [1, 1, 1, 1]


# ---------------------------------------------------------------- clients that join


def test_a_client_that_joins_is_assigned_when_first_asked() -> None:
    federation = Federation(clustered(Scaffold().build, 2, when=1), points(0, 3, 0.5, 4, 4), num_clients=4, **HALF)
    federation.round()
    # c_i = x - y = 3/4 of 1 - b: 0.75, -1.5, 0.375, -2.25
    assert [federation.state[f"{cluster}.c"].item() for cluster in (0, 1)] == [0.5625, -1.875]
    federation.grow(5)
    assert federation.state["members"].tolist() == [0, 1, 0, 1, UNKNOWN]
    assert [federation.state[f"{cluster}.c"].item() for cluster in (0, 1)] == [0.5625, -1.875]
    for cohort in ((0, 1), (2, 3, 4), (0, 1, 4), (0, 1, 2, 3, 4)):
        federation.round(cohort)
        members = federation.state["members"].tolist()
        assert members[4] == (1 if 4 in cohort else UNKNOWN)  # it pulls up like cluster 1
        own = [federation.clients.kept.read(client)["kept.c_i"].item() for client in range(5)]
        found = [federation.state[f"{cluster}.c"].item() for cluster in (0, 1)]
        means = [(own[0] + own[2]) / 2, sum(own[i] for i in range(5) if members[i] == 1) / members.count(1)]
        assert found == pytest.approx(means, abs=1e-15)
    federation.rounds(30)
    assert weights(federation) == pytest.approx([0.25, 11 / 3], abs=1e-9)  # means of 0 and 0.5, of 3, 4 and 4


def test_clients_that_join_before_the_split_are_split_with_the_others() -> None:
    federation = four(when=2, num_clients=1).rounds(1).grow(4)
    assert federation.state["members"].tolist() == [0]
    federation.round()
    assert federation.state["members"].tolist() == [0, 1, 1, 1]  # only client 0 has reached 1/4: all others pull up


def test_before_the_split_all_new_clients_join_the_first_cluster() -> None:
    federation = Federation(clustered(Scaffold().build, 2, when=1), points(0, 4), **HALF)
    before = federation.state | {"0.c": torch.tensor([6.0]), "1.c": torch.tensor([6.0])}
    after = federation.clients.algorithm.grow(before, 2, 3)
    assert [after[name].tolist() for name in ("members", "0.c", "1.c")] == [[0], [4], [6]]


# ---------------------------------------------------------------- before the split


@pytest.mark.parametrize("name", ["fedavg", "fedavg_adam", "fedgbo", "fedopt", "mtfl(fedavg_adam, bn)"])
def test_before_the_split_it_equals_the_inner_algorithm(name: str) -> None:
    wrapped = Federation(clustered(BUILDS[name], 2, when=4), mixed(), dtype=torch.float32)
    plain = Federation(BUILDS[name], mixed(), dtype=torch.float32)
    for cohort in ((0, 1, 2, 3), (1, 3), (0, 2)):
        wrapped.round(cohort)
        plain.round(cohort)
    same(pick("0", wrapped.state), plain.state)
    for client in range(4):
        same(pick("kept", wrapped.clients.kept.read(client)), plain.clients.kept.read(client))
    models = [f.clients.algorithm.model(f.state, f.clients.network.variables) for f in (wrapped, plain)]
    same({name: models[0][name] for name in ("x", "stats")}, models[1])


def same(one: Tree, other: Tree) -> None:
    assert one.keys() == other.keys()
    for key, value in one.items():
        assert torch.equal(value, other[key]), key


def test_a_split_without_answers_is_repeated() -> None:
    federation = four(when=2).rounds(1)
    later = federation.info._replace(round=5)
    exchange = first_exchange(federation.clients.algorithm, federation.state, later)
    assert tuple(exchange.cohort) == (0, 1, 2, 3)
    assert exchange.reduce is Collect


def test_too_few_clients_for_a_split_train_together() -> None:
    federation = four(when=1)
    federation.round(cohort=(2,))
    assert federation.state["members"].tolist() == [0]
    assert federation.weight() == 0.625  # 0.5 + 0.5/4
    federation.round()
    assert federation.state["members"].tolist() == [0, 1, 0, 1]  # b = 0 and 0.5 are below, 3 and 4 above


def test_too_few_answers_for_a_split_are_not_an_error() -> None:
    """On a network, all clients may be asked and all but one be late."""
    federation = four(when=1)
    federation.engine = Losing(federation.engine, lambda work, info: {0, 1, 3} if info.round == 1 else set())
    federation.round()
    assert federation.state["members"].tolist() == [0]
    federation.round()
    assert federation.state["members"].tolist() == [0, 1, 0, 1]


# ---------------------------------------------------------------- limitations


def test_more_clusters_than_clients() -> None:
    federation = Federation(clustered(FedAvg().build, 3, when=1), points(0, 4), **HALF)
    with pytest.raises(ConfigError, match=r"cluster\.count: expected at most the 2 clients that have samples, got 3"):
        federation.round()


def test_algorithms_with_several_exchanges_per_round_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"cluster: needs one exchange per round; .* train, pull, push, renew"):
        Federation(clustered(BUILDS["dynavg"], 2, when=1), mixed())


def test_a_sum_over_all_clients_cannot_be_split_later() -> None:
    """With the mean of all control variates in place of its clients', a cluster would stop near the common minimum."""
    with pytest.raises(ConfigError, match=r"cluster\.round: expected 1, because 'c' .* is a sum over all.*, got 2"):
        Federation(clustered(Scaffold().build, 2, when=2), mixed())


def test_clustering_needs_uploads() -> None:
    federation = Federation(clustered(Independent().build, 2, when=1), points(0, 4), **HALF)
    with pytest.raises(ConfigError, match="this algorithm uploads none"):
        federation.round()
