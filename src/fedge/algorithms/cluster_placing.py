"""Assignment of clients to clusters: available clients are split at once, others are assigned when first asked."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedge.algorithms.cluster_division import directions_of, divide, members_only, updates
from fedge.algorithms.one_client import tell
from fedge.core.algorithm import Algorithm, Context, Exchange, Info, Reply, Work
from fedge.core.drive import first_exchange
from fedge.core.layout import Tree, nest, pick
from fedge.core.reduce import Collect

UNKNOWN = -1  # the cluster of a client that is not assigned yet


def split(algorithm: Algorithm, state: Tree, info: Info, count: int) -> Generator[Exchange, Reply, Tree]:
    """Train the cohort and split it into clusters; if too few clients answer, run an ordinary round."""
    before = pick("0", state)
    exchange = first_exchange(algorithm, before, info)
    reply = yield exchange._replace(reduce=Collect)
    if len(reply.ids) < min(count, info.num_clients):  # the others were not asked or did not answer
        whole = members_only(algorithm, exchange, reply, np.arange(len(reply.ids)))
        return {**state, **nest("0", tell(algorithm, before, info, whole))}
    changes = updates(algorithm, exchange, reply)
    found = divide(changes, count)
    members = torch.full((info.num_clients,), UNKNOWN)
    members[list(reply.ids)] = torch.from_numpy(found)
    state = {**state, "told": torch.zeros_like(members)}
    for i in range(count):
        part = members_only(algorithm, exchange, reply, np.flatnonzero(found == i))
        alone = info._replace(num_clients=len(part.ids))
        state = {**state, **nest(str(i), tell(algorithm, before, alone, part))}
        state = yield from _tell_cluster(state, i, part.ids)
    return {**state, "members": members, "centres": _centres(changes, found), **nest("before", before)}


def place_unknown(algorithm: Algorithm, state: Tree, info: Info) -> Generator[Exchange, Reply, Tree]:
    """Train the cohort's unknown clients once from the model before the split, and assign each to the nearest cluster.

    The distance is that of the split: the mean of 1 - cosine over the cluster's members. This training does not change
    what a client keeps.
    """
    members, before = state["members"], pick("before", state)
    unknown = tuple(client for client in info.cohort if members[client] == UNKNOWN)
    if not unknown:
        return state
    exchange = first_exchange(algorithm, before, info._replace(cohort=unknown))
    reply = yield exchange._replace(work="orient", reduce=Collect, optional=True)
    if not reply.ids:
        return state
    nearest = np.argmax(directions_of(updates(algorithm, exchange, reply)) @ state["centres"].numpy().T, axis=1)
    for cluster in np.unique(nearest).tolist():
        joining = [client for client, own in zip(reply.ids, nearest.tolist(), strict=True) if own == cluster]
        state = yield from _tell_cluster(_join(algorithm, state, cluster, joining), cluster, joining)
    return state


def remind(state: Tree, info: Info) -> Generator[Exchange, Reply, Tree]:
    """Repeat the cluster's number to clients that missed it, for example because their connection broke."""
    if "told" not in state:
        return state
    members = state["members"]
    unaware = [client for client in sorted(info.cohort) if members[client] != UNKNOWN and not state["told"][client]]
    for cluster in sorted({int(members[client]) for client in unaware}):
        own = [client for client in unaware if members[client] == cluster]
        state = yield from _tell_cluster(state, cluster, own)
    return state


def grow_unknown(algorithm: Algorithm, state: Tree, num_before: int, num_after: int) -> Tree:
    """`grow` of a clustered state: new clients are unknown; before the split they count in cluster 0."""
    members = state["members"]
    if len(members) == 1:
        return {**state, **nest("0", algorithm.grow(pick("0", state), num_before, num_after))}
    new = members.new_full((num_after - num_before,), UNKNOWN)
    told = {"told": torch.cat([state["told"], torch.zeros_like(new)])} if "told" in state else {}
    return {**state, "members": torch.cat([members, new]), **told}


def untraced(work: Work) -> Work:
    """Return the same work without any change to what the client keeps."""

    def final(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
        return work.final(down, local, kept, ctx)[0], kept

    return work._replace(final=final)


def _join(algorithm: Algorithm, state: Tree, cluster: int, clients: Sequence[int]) -> Tree:
    """Return the state with these clients added to a cluster."""
    num_before = int((state["members"] == cluster).sum())
    own = algorithm.grow(pick(str(cluster), state), num_before, num_before + len(clients))
    members = state["members"].index_fill(0, torch.tensor(clients), cluster)
    return {**state, "members": members, **nest(str(cluster), own)}


def _tell_cluster(state: Tree, cluster: int, clients: Sequence[int]) -> Generator[Exchange, Reply, Tree]:
    """Send clients the number of their cluster; return the state with a record of who received it."""
    reply = yield Exchange("join", {"cluster": torch.tensor([cluster])}, clients, optional=True)
    if "told" not in state:
        return state
    return {**state, "told": state["told"].index_fill(0, torch.tensor(reply.ids, dtype=torch.int64), 1)}


def _centres(changes: NDArray[np.float64], clusters: NDArray[np.int64]) -> Tensor:
    """Return the mean direction of each cluster's updates; its dot product with a direction is their mean cosine."""
    directions = directions_of(changes)
    return torch.from_numpy(np.stack([directions[clusters == i].mean(0) for i in range(clusters.max() + 1)]))
