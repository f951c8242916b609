"""Rehearse a round with a single client and no data, to find out what it asks of a client.

Messages have the shapes of real ones, and compressed messages their lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedge.core.algorithm import Exchange, Info, Reply
from fedge.core.answer import Answer, seal
from fedge.core.codecs.codec import RESIDUAL
from fedge.core.drive import drive
from fedge.core.effort import Effort
from fedge.core.layout import Tree
from fedge.core.reduction import Reduction, find_silent
from fedge.core.rehearsal import Gradients, rehearse
from fedge.core.server_side import ServerSide

_INFO = Info(round=0, rate=0.1, num_steps=1, num_epochs=None, num_clients=1, seed=0, cohort=(0,))
"""In round 0, everything periodic is due."""


class RehearsedExchange(NamedTuple):
    """One exchange of a round. Trees have shapes but no values."""

    work: str
    down: Tree  # encoded
    up: Tree
    plain_up: Tree  # before its codec
    vectors_down: float  # in model-sized vectors, before any codec
    vectors_up: float
    memory: float  # working memory of a client, in model-sized vectors
    gradients: Gradients
    charged: bool = True  # False: the client stays silent


def rehearse_round(server: ServerSide, still: bool = False) -> list[RehearsedExchange]:
    """Return the exchanges of a round in which every client communicates, or with `still`, only trains."""
    x = server.variables["x"]
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=x.dtype)
    alone = replace(server, clients=server.clients._replace(sizes=np.ones(1, np.int64)), rehearsals={})
    engine = _Rehearsal(alone, noise)
    drive(engine, server.algorithm, [server.algorithm.init(server.variables)], [_INFO])
    if not still:
        return engine.parts
    slots, works = server.algorithm.slots, server.algorithm.works
    return [
        part._replace(charged=not any(slots[name].speaks for name in part.plain_up))
        for part in engine.parts
        if works[part.work].trains
    ]


def count_vectors(tree: Tree, num_params: int) -> float:
    """Return the size of a tree in model-sized vectors, without layer statistics and scalars."""
    sizes = [value.numel() for name, value in tree.items() if name.rpartition(".")[2] != "stats"]
    return sum(size for size in sizes if size > 1 or num_params == 1) / num_params


class _Rehearsal:
    """An engine for one client and one step, in which every gradient is the same vector."""

    def __init__(self, server: ServerSide, gradient: Tensor) -> None:
        self.parts: list[RehearsedExchange] = []
        self._server, self._gradient = server, gradient
        self._kept = server.algorithm.keep(server.variables)

    def run(self, exchanges: Sequence[Exchange], infos: Sequence[Info]) -> list[Reply]:
        return [self._run(exchange, info) for exchange, info in zip(exchanges, infos, strict=True)]

    def _run(self, exchange: Exchange, info: Info) -> Reply:
        server, request = self._server, self._server.send(exchange, info)
        work, down = server.algorithm.works[exchange.work], request.exchange.down
        layout, shape = server.layout, server.clients.shape
        done = rehearse(work, down, self._kept, info, layout, shape, self._gradient)
        self._kept = done.kept
        answer = seal(work, exchange.work, Answer(0, 1, Effort(), done.upload), down, info)
        plain = {name: value for name, value in done.upload.items() if not name.startswith(f"{RESIDUAL}.")}
        self.parts.append(
            RehearsedExchange(
                work=exchange.work,
                down=_shapes(request.coded),
                up=_shapes(answer.upload),
                plain_up=_shapes(plain),
                vectors_down=self._travelling(exchange.down),
                vectors_up=self._travelling(plain),
                memory=count_vectors(done.local, layout.num_params),
                gradients=done.gradients,
                charged=not find_silent(server.algorithm.slots, plain, 1),
            )
        )
        reduction = Reduction(server, request)
        reduction.add(answer)
        return reduction.reply()

    def _travelling(self, tree: Tree) -> float:
        slots = self._server.algorithm.slots
        numbers = sum(value.numel() for name, value in tree.items() if slots[name].kind == "params")
        return numbers / self._server.layout.num_params


def _shapes(tree: Tree) -> Tree:
    return {name: value.to("meta") for name, value in tree.items()}
