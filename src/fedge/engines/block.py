"""Blocks of clients as rows `[C, P]`, through batched kernels."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol

import torch

from fedge.core.algorithm import Exchange, Info, Reply, Work
from fedge.core.layout import Tree
from fedge.data.feed import steps_per_epoch
from fedge.engines import rows
from fedge.engines.job import Job, Request
from fedge.engines.kernels.assemble import Batched
from fedge.engines.reduction import Answer, Part, Reduction, seal


class Size(Protocol):
    """What blocks may be like."""

    num_rows: int  # the most clients in one
    masks: bool  # which may have batches of different sizes


Content = tuple[Mapping[str, Any], Tree]
"""Plain values (numbers, texts, lists and dicts of them) and tensors: what goes into a task, and what comes out."""


class Workers(Size, Protocol):
    """Whoever does tasks: this process, or others."""

    def map(self, kind: str, shared: Tree, items: Iterable[Content]) -> Generator[Content, None, None]:
        """The results of tasks in their order; `shared` is for all of them."""


class Block:
    """Runs an exchange in blocks of at most `num_rows` clients, one after another."""

    def __init__(self, job: Job, batched: Batched, num_rows: int) -> None:
        self._job, self._batched, self.num_rows = job, batched, num_rows
        self.masks = batched.masks

    def run(self, exchanges: Sequence[Exchange], infos: Sequence[Info]) -> list[Reply]:
        return [self._run(exchange, info) for exchange, info in zip(exchanges, infos, strict=True)]

    def _run(self, exchange: Exchange, info: Info) -> Reply:
        request = self._job.send(exchange, info)
        reduction = Reduction(self._job, request)
        for clients in divide_request(self._job, request, self):
            part, after = answer(self._job, self._batched, request, clients, read_kept(self._job, clients))
            reduction.merge(part)
            write_kept(self._job, clients, after)
        return reduction.reply()


def divide_request(job: Job, request: Request, size: Size) -> list[list[int]]:
    """The cohort of an exchange in blocks."""
    exchange, info = request.exchange, request.info
    return divide(job, job.algorithm.works[exchange.work], job.present(exchange), info, size)


def divide(job: Job, work: Work, clients: Sequence[int], info: Info, size: Size) -> list[list[int]]:
    """Clients in blocks, those with most steps first. Without masks the clients of a block have batches alike."""
    shapes = {client: _shape(job, work, client, info) for client in clients}
    groups: dict[object, list[int]] = {}
    for client in sorted(shapes, key=lambda client: (*(-part for part in shapes[client]), client)):
        groups.setdefault(None if size.masks else shapes[client], []).append(client)
    blocks = []
    for group in groups.values():
        num_blocks = -(-len(group) // size.num_rows)
        ends = [-(-len(group) * i // num_blocks) for i in range(num_blocks + 1)]
        blocks += [group[start:end] for start, end in pairwise(ends)]
    return blocks


def answer(job: Job, batched: Batched, request: Request, clients: Sequence[int], kept: Tree) -> tuple[Part, Tree]:
    """A block's part in an exchange, and what its clients keep: rows, or nothing if that has not changed."""
    exchange, info = request.exchange, request.info
    work = job.algorithm.works[exchange.work]
    upload, after, efforts = rows.perform(job, batched, work, clients, exchange.down, kept, info)
    upload = {name: rows.as_rows(value, len(clients)) for name, value in upload.items()}
    sizes = job.sizes(clients, info.round).tolist()
    answers = [Answer(client, size, effort, {}) for client, size, effort in zip(clients, sizes, efforts, strict=True)]
    reduction = Reduction(job, request)
    if work.codec is None:
        reduction.add_rows(answers, upload)
    else:
        for i, each in enumerate(answers):
            mine = {name: value[i] for name, value in upload.items()}
            reduction.add(seal(work, each._replace(upload=mine), exchange.down, info))
    kept = {} if after is kept else {name: rows.as_rows(value, len(clients)) for name, value in after.items()}
    return reduction.part(), kept


def read_kept(job: Job, clients: Sequence[int]) -> Tree:
    """The private state of a block's clients, as rows."""
    trees = [job.kept.read(client) for client in clients]
    return {name: torch.stack([tree[name] for tree in trees]) for name in trees[0]}


def write_kept(job: Job, clients: Sequence[int], after: Tree) -> None:
    for i, client in enumerate(clients if after else ()):
        job.kept.write(client, {name: value[i] for name, value in after.items()})


def _shape(job: Job, work: Work, client: int, info: Info) -> tuple[int, ...]:
    """How many steps a client takes, with batches of which sizes; two alike have batches alike."""
    size = job.clients.num_samples(client, info.round)
    batch = min(job.batch_size, size)
    num_steps = info.num_steps if work.num_steps is None else work.num_steps
    if not work.trains:
        return 0, 0
    if num_steps is not None:
        return num_steps, batch
    per_epoch = steps_per_epoch(size, job.batch_size, job.network.has_norm)
    return per_epoch * (info.num_epochs or 0), batch, size
