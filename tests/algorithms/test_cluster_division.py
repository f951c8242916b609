from itertools import combinations
from math import cos, radians, sin

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedge.algorithms.cluster_division import beside, divide, members_only, updates
from fedge.algorithms.independent import Independent
from fedge.algorithms.mfl import Mfl
from fedge.core.algorithm import Costs, Exchange, Reply, Work
from fedge.core.errors import ConfigError
from fedge.core.layout import Layout
from fedge.core.reduce import Mean, Median

NOTHING = np.zeros(3)
FREE = Costs.free(len(NOTHING))
LAYOUT = Layout(())


def towards(*degrees: float) -> np.ndarray:
    return np.array([[cos(radians(angle)), sin(radians(angle))] for angle in degrees])


def collected(*uploads: dict[str, float]) -> Reply:
    """Return a reply with one row per client; client i has i + 1 samples."""
    value = {name: torch.tensor([[upload[name]] for upload in uploads]) for name in uploads[0]}
    ids = tuple(range(len(uploads)))
    return Reply(value, ids, np.arange(1, len(ids) + 1), (), FREE, NOTHING, communicated=True)


# ---------------------------------------------------------------- divide


def test_average_linkage_by_hand() -> None:
    # 1 - cos: 34-62 0.117, merged. To {34, 62}: 0 (0.171 + 0.531)/2, 95 (0.161 + 0.515)/2; but 95-140 is 0.293, merged.
    # Then 0 is 0.351 from {34, 62}, and that 0.686 from {95, 140}. Nearest neighbours alone would leave 140 out.
    assert divide(towards(0, 34, 62, 95, 140), 2).tolist() == [0, 0, 0, 1, 1]
    assert divide(towards(0, 34, 62, 95, 140), 3).tolist() == [0, 1, 1, 2, 2]


def test_clusters_are_numbered_by_their_first_rows() -> None:
    assert divide(towards(140, 0, 95, 62, 34), 2).tolist() == [0, 1, 0, 1, 1]


def test_every_client_may_be_its_own_cluster() -> None:
    assert divide(towards(0, 1, 2), 3).tolist() == [0, 1, 2]


def test_opposite_updates_are_furthest_apart() -> None:
    assert divide(np.array([[1.0], [-2.0], [0.5], [-0.1]]), 2).tolist() == [0, 1, 0, 1]


def test_a_zero_update_has_distance_one_to_all_others() -> None:
    # distance 1 to each: it joins the first, because the other two are 2 apart
    assert divide(np.array([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]]), 2).tolist() == [0, 0, 1]
    assert divide(np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 0.1]]), 2).tolist() == [0, 1, 1]
    assert divide(np.zeros((3, 2)), 2).tolist() == [0, 0, 1]


@pytest.mark.parametrize("seed", range(8))
def test_the_distance_of_clusters_is_the_mean_over_all_pairs(seed: int) -> None:
    rows = np.random.default_rng(seed).standard_normal((12, 3))
    distance = 1 - np.corrcoef(np.hstack([rows, -rows]))  # rows with mean 0, whose correlation is the cosine
    clusters = [[i] for i in range(len(rows))]
    while len(clusters) > 3:
        a, b = min(combinations(clusters, 2), key=lambda pair: distance[np.ix_(*pair)].mean())
        clusters = [cluster for cluster in clusters if cluster not in (a, b)] + [a + b]
    found = divide(rows, 3)
    assert {frozenset(cluster) for cluster in clusters} == {frozenset(np.flatnonzero(found == i)) for i in range(3)}


def test_more_clusters_than_clients() -> None:
    with pytest.raises(ConfigError, match=r"cluster\.count: expected at most the 2 clients that have samples, got 3"):
        divide(towards(0, 90), 3)


@given(
    rows=arrays(np.float64, st.tuples(st.integers(2, 8), st.just(3)), elements=st.integers(-3, 3)),
    powers=st.lists(st.integers(-5, 5), min_size=8, max_size=8),
    count=st.integers(2, 4),
)
@settings(max_examples=40, deadline=None)
def test_only_directions_count(rows: np.ndarray, powers: list[int], count: int) -> None:
    count = min(count, len(rows))
    found = divide(rows, count)
    assert list(dict.fromkeys(found.tolist())) == list(range(count))  # numbered in order of appearance
    scaled = rows * np.exp2(powers[: len(rows)])[:, None]
    assert divide(scaled, count).tolist() == found.tolist()


# ---------------------------------------------------------------- replies


def test_an_update_is_the_change_of_the_model() -> None:
    algorithm = Mfl(optimiser="sgdm").build(LAYOUT)
    exchange = Exchange("train", {"x": torch.tensor([1.0]), "m": torch.tensor([7.0])}, (0, 1))
    reply = collected({"m": 9.0, "t": 1.0, "y": 3.0}, {"m": 8.0, "t": 2.0, "y": -4.0})
    assert updates(algorithm, exchange, reply).tolist() == [[2], [-5]]  # y - x, though m comes first


def test_updates_need_an_uploaded_model() -> None:
    algorithm = Independent().build(LAYOUT)
    reply = Reply({}, (0,), np.ones(1), (), FREE, NOTHING, communicated=False)
    with pytest.raises(ConfigError, match="this algorithm uploads none"):
        updates(algorithm, Exchange("train", {}, (0,)), reply)


@pytest.mark.parametrize(("reduce", "y"), [(Mean, (2 * 4 + 3 * 14) / 5), (Median, 9)])
def test_members_are_reduced_by_the_reducer_of_the_exchange(reduce: type[Mean], y: float) -> None:
    algorithm = Mfl(weighting="samples").build(LAYOUT)
    reply = collected({"y": 100.0}, {"y": 4.0}, {"y": 14.0})
    found = members_only(algorithm, Exchange("train", {}, (0, 1, 2), reduce), reply, np.array([1, 2]))
    assert found.value["y"].item() == y
    assert found.ids == (1, 2)
    assert found.samples.tolist() == [2, 3]


def test_beside_hides_its_entry_from_the_work() -> None:
    work = Work(
        init=lambda down, kept, ctx: {"seen": kept["own"]},
        final=lambda down, local, kept, ctx: (local, {"own": kept["own"] + 1}),
    )
    both = {"cluster": torch.tensor([3]), "kept.own": torch.tensor([10])}
    wrapped = beside(work, "cluster")
    local = wrapped.init({}, both, None)  # type: ignore[arg-type]
    upload, after = wrapped.final({}, local, both, None)  # type: ignore[arg-type]
    assert upload["seen"].item() == 10
    assert {name: value.item() for name, value in after.items()} == {"cluster": 3, "kept.own": 11}
