"""Clustering of clients by the direction of their updates."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from fedge.core.algorithm import Algorithm, Context, Exchange, Reply, Work
from fedge.core.errors import ConfigError
from fedge.core.layout import Tree, nest, pick
from fedge.core.schema import Options


class Cluster(Options, tag=False):
    """Clusters of clients with one model each, by the cosine of their updates (Briggs et al. 2020, algorithm 1)."""

    count: Annotated[int, Meta(ge=2, le=1000, description="number of clusters")] = 2
    round: Annotated[
        int, Meta(ge=1, description="round in which all available clients train and are then clustered")
    ] = 10


def check_divisible(algorithm: Algorithm, when: int) -> None:
    """Raise ConfigError if clusters could not continue from the algorithm's state in round `when`."""
    if len(algorithm.works) != 1:
        raise ConfigError(f"cluster: needs one exchange per round; this algorithm has {', '.join(algorithm.works)}")
    sums = [name for name, slot in algorithm.slots.items() if slot.merge == "sum"]
    if sums and when > 1:  # the members' share of the sum is unknown, and a wrong one would shift their minimum
        raise ConfigError(
            f"cluster.round: expected 1, because {sums[0]!r} of this algorithm is a sum over all clients "
            f"that cannot be split later, got {when}"
        )


def updates(algorithm: Algorithm, exchange: Exchange, reply: Reply) -> NDArray[np.float64]:
    """Return the change of the model in each collected upload, one row per client."""
    for name, rows in reply.value.items():
        slot = algorithm.slots[name]
        if slot.kind == "params" and not slot.moment:
            changes = rows if slot.anchor is None else rows - exchange.down[slot.anchor]
            return changes.to("cpu").double().numpy()
    raise ConfigError("cluster: needs uploaded models to cluster clients, but this algorithm uploads none")


def members_only(algorithm: Algorithm, exchange: Exchange, reply: Reply, rows: NDArray[np.int64]) -> Reply:
    """Return the reply that the exchange would have had from these clients alone."""
    reducer = exchange.reduce(algorithm.slots)
    for row in rows:
        reducer.add({name: value[row] for name, value in reply.value.items()}, float(reply.samples[row]))
    ids = tuple(reply.ids[row] for row in rows)
    return reply._replace(value=reducer.value(), ids=ids, samples=reply.samples[rows], losses=reply.losses[rows])


def beside(work: Work, own: str) -> Work:
    """Return the work with its kept state nested under `kept`, beside the entry `own` that it does not see."""

    def final(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
        upload, after = work.final(down, local, pick("kept", kept), ctx)
        return upload, {own: kept[own], **nest("kept", after)}

    return work._replace(init=lambda down, kept, ctx: work.init(down, pick("kept", kept), ctx), final=final)


def join(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
    """`final` of the work in which a client learns its cluster."""
    return {}, {**kept, "cluster": down["cluster"]}


def directions_of(changes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rows scaled to length 1; zero rows stay zero."""
    lengths = np.linalg.norm(changes, axis=1, keepdims=True)
    return np.asarray(changes / np.where(lengths > 0, lengths, 1))


def divide(changes: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return the cluster of each row, by average linkage of the distance 1 - cosine down to `count` clusters.

    Clusters are numbered in the order of their first rows. Raises ConfigError if there are fewer rows than clusters.
    """
    if len(changes) < count:
        raise ConfigError(f"cluster.count: expected at most the {len(changes)} clients that have samples, got {count}")
    directions = directions_of(changes)
    distance = 1 - directions @ directions.T
    np.fill_diagonal(distance, np.inf)
    members = {i: [i] for i in range(len(changes))}
    while len(members) > count:
        i, j = sorted(map(int, np.unravel_index(np.argmin(distance), distance.shape)))
        a, b = len(members[i]), len(members[j])
        distance[i] = distance[:, i] = (a * distance[i] + b * distance[j]) / (a + b)
        distance[i, i] = np.inf
        distance[j] = distance[:, j] = np.inf
        members[i] += members.pop(j)
    found = np.empty(len(changes), np.int64)
    for number, first in enumerate(sorted(members)):
        found[members[first]] = number
    return found
