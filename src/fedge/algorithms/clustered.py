"""Clients whose updates point the same way learn a model of their own, around any algorithm."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

import numpy as np
import torch

from fedge.algorithms.cluster_division import beside, check_divisible, divide, grow_first, join, members_only, updates
from fedge.algorithms.one_client import tell
from fedge.core.algorithm import Algorithm, Build, Exchange, Info, Reply, Work
from fedge.core.drive import first_exchange
from fedge.core.layout import Layout, Tree, nest, pick
from fedge.core.reduce import Collect, average
from fedge.core.slots import Slot


def clustered(inner: Build, count: int, when: int) -> Build:
    """The inner algorithm on all clients, and after round `when` on each cluster alone."""

    def build(layout: Layout) -> Algorithm:
        one = inner(layout)
        check_divisible(one, when)
        clusters, undivided = [str(i) for i in range(count)], torch.zeros(1, dtype=torch.int64)

        def init(variables: Tree) -> Tree:
            states = {f"{cluster}.{name}": v for cluster in clusters for name, v in one.init(variables).items()}
            return {"members": undivided, **states}

        def round(state: Tree, info: Info) -> Generator[Exchange, Reply, Tree]:
            if info.round >= when and len(state["members"]) == 1:  # later if nobody answers in that round
                return (yield from split(state, info._replace(cohort=tuple(range(info.num_clients)))))
            members = state["members"].expand(info.num_clients)
            for i, cluster in enumerate(clusters):
                if cohort := tuple(client for client in info.cohort if members[client] == i):
                    alone = info._replace(cohort=cohort, num_clients=int((members == i).sum()))
                    state = {**state, **nest(cluster, (yield from one.round(pick(cluster, state), alone)))}
            return state

        def split(state: Tree, info: Info) -> Generator[Exchange, Reply, Tree]:
            before = pick("0", state)
            exchange = first_exchange(one, before, info)
            reply = yield exchange._replace(reduce=Collect)
            found = divide(updates(one, exchange, reply), count)
            members = torch.zeros(info.num_clients, dtype=torch.int64)
            members[list(reply.ids)] = torch.from_numpy(found)
            for i, cluster in enumerate(clusters):
                part = members_only(one, exchange, reply, np.flatnonzero(found == i))
                alone = info._replace(num_clients=int((members == i).sum()))
                state = {**state, **nest(cluster, tell(one, before, alone, part))}
                yield Exchange("join", {"cluster": torch.tensor([i])}, part.ids)
            return {**state, "members": members}

        def model(state: Tree, variables: Tree) -> Tree:
            models = [one.model(pick(cluster, state), variables) for cluster in clusters]
            weights = np.bincount(state["members"].numpy(), minlength=count).tolist()
            stacked = {name: torch.stack([each[name] for each in models]) for name in ("x", "stats")}
            return {name: average(rows, weights) for name, rows in stacked.items()} | nest("clusters", stacked)

        def personal(variables: Tree, kept: Tree) -> Tree:
            own = {name: rows[kept["cluster"].squeeze(-1)] for name, rows in pick("clusters", variables).items()}
            return one.personal(own, pick("kept", kept)) if one.personal else own

        works = {name: beside(work, "cluster") for name, work in one.works.items()}
        return one._replace(
            slots={**one.slots, "members": Slot("scalar", merge="max"), "cluster": Slot("scalar")},
            init=init,
            keep=lambda variables: {"cluster": undivided, **nest("kept", one.keep(variables))},
            works=works | {"join": Work(lambda down, kept, ctx: {}, join)},
            round=round,
            model=model,
            personal=personal,
            grow=partial(grow_first, one),
        )

    return build
