"""What a round asks of a client: one step of a federation of one, with a made-up gradient, shows it.

Algorithms are functions of vectors and cannot tell where a gradient comes from, so no data is needed. Messages have
the shapes, and compressed ones the lengths, of real ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedge.core.algorithm import ALL, Batch, Context, Exchange, Info, Reply, Work, moved
from fedge.core.codecs.codec import RESIDUAL
from fedge.core.drive import drive
from fedge.core.layout import Tree
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


def rehearse(job: Job, still: bool = False) -> list[RehearsedExchange]:
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
        local, upload, calls = self._perform(work, down, info)
        answer = seal(work, Answer(0, 1, Effort(), upload), down, info)
        plain = {name: value for name, value in upload.items() if not name.startswith(f"{RESIDUAL}.")}
        self.parts.append(
            RehearsedExchange(
                work=exchange.work,
                down=_shapes(request.coded),
                up=_shapes(answer.upload),
                plain_up=_shapes(plain),
                vectors_down=self._travelling(exchange.down),
                vectors_up=self._travelling(plain),
                memory=count_vectors(local, job.network.layout.num_params),
                full_gradients=calls["all"],
                step_gradients=calls["batch"],
            )
        )
        reduction = Reduction(job, request)
        reduction.add(answer)
        return reduction.reply()

    def _perform(self, work: Work, down: Tree, info: Info) -> tuple[Tree, Tree, Counter[str]]:
        """(local at its end, upload, number of gradients) of the client half."""
        calls: Counter[str] = Counter()

        def grad_at(x: Tensor, batch: Batch) -> Tensor:
            calls["all" if batch is ALL else "batch"] += 1
            return self._gradient

        one = torch.ones(1, dtype=self._job.network.dtype)
        context = Context(
            client=torch.tensor([0]),
            round=info.round,
            rate=info.rate,
            num_clients=info.num_clients,
            step=0,
            num_samples=one,
            num_steps=one,
            layout=self._job.network.layout,
            grad_at=grad_at,
        )
        local, batches = work.init(down, self._kept, context), [None] * work.batches_per_step
        if work.look:
            local = {**local, **work.look(torch.zeros(1, *self._job.clients.shape))}
        if work.trains:
            gradient = work.gradient(local, batches, context) if work.gradient else grad_at(local["y"], batches[0])
            if work.affine:
                local = {**local, "y": moved(local["y"], gradient, work.affine(local, context))}
            elif work.step:
                local = work.step({**local, "raw": gradient}, gradient, context)
                del local["raw"]  # the gradient itself, which is not counted as memory
        upload, self._kept = work.final(down, local, self._kept, context)
        return local, upload, calls

    def _travelling(self, tree: Tree) -> float:
        slots = self._job.algorithm.slots
        numbers = sum(value.numel() for name, value in tree.items() if slots[name].kind == "params")
        return numbers / self._job.network.layout.num_params


def _shapes(tree: Tree) -> Tree:
    return {name: value.to("meta") for name, value in tree.items()}
