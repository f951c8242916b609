"""What a round asks of a client: a federation of one rehearses it without data.

Messages have the shapes, and compressed ones the lengths, of real ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedge.core.algorithm import Exchange, Info, Reply
from fedge.core.codecs.codec import RESIDUAL
from fedge.core.drive import drive
from fedge.core.layout import Tree
from fedge.core.rehearsal import rehearse
from fedge.engines.job import Job
from fedge.engines.reduction import Answer, Effort, Reduction, seal

_INFO = Info(round=0, rate=0.1, num_steps=1, num_epochs=None, num_clients=1, seed=0, cohort=(0,))
"""In round 0 all that is done every so many rounds is due."""


class RehearsedExchange(NamedTuple):
    """One exchange of a round. Trees have shapes but no values."""

    work: str
    down: Tree  # as it travels
    up: Tree
    plain_up: Tree  # before its codec
    vectors_down: float  # as large as the model, before any codec
    vectors_up: float
    memory: float  # vectors that a client works on
    full_gradients: int  # over all samples
    step_gradients: int  # over a minibatch, in every step


def rehearse_round(job: Job, still: bool = False) -> list[RehearsedExchange]:
    """The exchanges of a round in which every client moves far and talks, or else `still` only trains."""
    x = job.network.variables["x"]
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=x.dtype)
    engine = _Rehearsal(job, noise)
    drive(engine, job.algorithm, [job.algorithm.init(job.network.variables)], [_INFO])
    return [part for part in engine.parts if job.algorithm.works[part.work].trains or not still]


def count_vectors(tree: Tree, num_params: int) -> float:
    """How many vectors as large as the model a client holds, without statistics of layers and single numbers."""
    sizes = [value.numel() for name, value in tree.items() if name.rpartition(".")[2] != "stats"]
    return sum(size for size in sizes if size > 1 or num_params == 1) / num_params


class _Rehearsal:
    """An engine for one client and one step, in which every gradient is the same vector."""

    def __init__(self, job: Job, gradient: Tensor) -> None:
        self.parts: list[RehearsedExchange] = []
        self._job, self._gradient = job, gradient
        self._kept = job.algorithm.keep(job.network.variables)

    def run(self, exchanges: Sequence[Exchange], infos: Sequence[Info]) -> list[Reply]:
        return [self._run(exchange, info) for exchange, info in zip(exchanges, infos, strict=True)]

    def _run(self, exchange: Exchange, info: Info) -> Reply:
        job, request = self._job, self._job.send(exchange, info)
        work, down = job.algorithm.works[exchange.work], request.exchange.down
        layout, shape = job.network.layout, job.clients.shape
        done = rehearse(work, down, self._kept, info, layout, shape, self._gradient)
        self._kept = done.kept
        answer = seal(work, Answer(0, 1, Effort(), done.upload), down, info)
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
                full_gradients=done.full_gradients,
                step_gradients=done.step_gradients,
            )
        )
        reduction = Reduction(job, request)
        reduction.add(answer)
        return reduction.reply()

    def _travelling(self, tree: Tree) -> float:
        slots = self._job.algorithm.slots
        numbers = sum(value.numel() for name, value in tree.items() if slots[name].kind == "params")
        return numbers / self._job.network.layout.num_params


def _shapes(tree: Tree) -> Tree:
    return {name: value.to("meta") for name, value in tree.items()}
