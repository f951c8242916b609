"""Clustering as a wrapper around any algorithm: clients with similar updates share a model."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

import numpy as np
import torch

from fedge.algorithms.cluster_division import beside, check_divisible, join
from fedge.algorithms.cluster_placing import UNKNOWN, grow_unknown, place_unknown, remind, split, untraced
from fedge.core.algorithm import Algorithm, Build, Exchange, Info, Reply, Work
from fedge.core.layout import Layout, Tree, nest, pick
from fedge.core.reduce import average
from fedge.core.slots import Slot


def clustered(inner: Build, count: int, when: int) -> Build:
    """Run the inner algorithm on all clients, and after round `when` on each cluster alone.

    Clients that were unavailable in that round are assigned when they are first asked.
    """

    def build(layout: Layout) -> Algorithm:
        one = inner(layout)
        check_divisible(one, when)
        clusters, undivided = [str(i) for i in range(count)], torch.zeros(1, dtype=torch.int64)
        untold = torch.full((1,), UNKNOWN)

        def init(variables: Tree) -> Tree:
            states = {f"{cluster}.{name}": v for cluster in clusters for name, v in one.init(variables).items()}
            return {"members": undivided, **states}

        def asks_all(state: Tree, round: int) -> bool:  # later if too few answer in round `when`
            return round >= when and len(state["members"]) == 1

        def round(state: Tree, info: Info) -> Generator[Exchange, Reply, Tree]:
            if asks_all(state, info.round):
                return (yield from split(one, state, info, count))
            if len(state["members"]) > 1:
                state = yield from place_unknown(one, state, info)
            members = state["members"].expand(info.num_clients)
            for i, cluster in enumerate(clusters):
                if cohort := tuple(client for client in info.cohort if members[client] == i):
                    alone = info._replace(cohort=cohort, num_clients=int((members == i).sum()))
                    state = {**state, **nest(cluster, (yield from one.round(pick(cluster, state), alone)))}
            return (yield from remind(state, info))

        def model(state: Tree, variables: Tree) -> Tree:
            models = [one.model(pick(cluster, state), variables) for cluster in clusters]
            members = state["members"]
            weights = np.bincount(members[members != UNKNOWN].numpy(), minlength=count).tolist()
            stacked = {name: torch.stack([each[name] for each in models]) for name in ("x", "stats")}
            return {name: average(rows, weights) for name, rows in stacked.items()} | nest("clusters", stacked)

        def personal(variables: Tree, kept: Tree) -> Tree:
            number = kept["cluster"]  # a client that does not know its cluster uses the mean of all clusters' models
            models = {name: rows[number.squeeze(-1)] for name, rows in pick("clusters", variables).items()}
            own = {name: torch.where(number == UNKNOWN, variables[name], model) for name, model in models.items()}
            return one.personal(own, pick("kept", kept)) if one.personal else own

        works = {name: beside(work, "cluster") for name, work in one.works.items()}
        works["orient"] = untraced(next(iter(works.values())))
        return one._replace(
            slots={**one.slots, **dict.fromkeys(("members", "centres", "told", "cluster"), Slot("scalar"))},
            init=init,
            keep=lambda variables: {"cluster": untold, **nest("kept", one.keep(variables))},
            works=works | {"join": Work(lambda down, kept, ctx: {}, join)},
            round=round,
            model=model,
            personal=personal,
            asks_all=asks_all,
            grow=partial(grow_unknown, one),
        )

    return build
