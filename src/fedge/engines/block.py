"""Blocks of clients as rows `[C, P]`, through batched kernels."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import torch

from fedge.core.algorithm import Exchange, Info, Kept, Reply, Work
from fedge.core.layout import Tree
from fedge.data.feed import steps_per_epoch
from fedge.engines import block_work as rows
from fedge.engines.job import Job, Request
from fedge.engines.kernels.assemble import Batched
from fedge.engines.reduction import Answer, PartialReply, Reduction, seal


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


class Rows(NamedTuple):
    """The clients of a block. They may be asked by different exchanges, for the same work."""

    clients: list[int]
    asked: list[int]  # by which exchange each is asked


class Found(NamedTuple):
    """What became of a block."""

    parts: dict[int, PartialReply]  # its part in each exchange
    kept: Tree  # what its clients keep: rows, or nothing if that has not changed


Find = Callable[[Sequence[Reduction], Sequence[Rows]], Generator[Found, None, None]]
"""Does the blocks of several exchanges, and says what became of each, in order."""


class Block:
    """Runs exchanges in blocks of at most `num_rows` clients, one after another."""

    def __init__(self, job: Job, batched: Batched, num_rows: int) -> None:
        self._job, self._batched, self.num_rows = job, batched, num_rows
        self.masks = batched.masks

    def run(self, exchanges: Sequence[Exchange], infos: Sequence[Info]) -> list[Reply]:
        return run_in_blocks(self._job, self, exchanges, infos, self._find)

    def _find(self, reductions: Sequence[Reduction], blocks: Sequence[Rows]) -> Generator[Found, None, None]:
        requests = {number: reduction.request for number, reduction in enumerate(reductions)}
        for block in blocks:
            yield answer(self._job, self._batched, requests, block, read_kept(self._job, block.clients))


def run_in_blocks(
    job: Job, size: Size, exchanges: Sequence[Exchange], infos: Sequence[Info], find: Find
) -> list[Reply]:
    """Exchanges as an engine with blocks runs them: parts are merged in the blocks' order, whichever was done first."""
    replies = []
    for requests in disjoint([job.send(exchange, info) for exchange, info in zip(exchanges, infos, strict=True)]):
        reductions = [Reduction(job, request) for request in requests]
        blocks = divide_requests(job, requests, size)
        with closing(find(reductions, blocks)) as results:
            for block, found in zip(blocks, results, strict=True):
                for number, part in found.parts.items():
                    reductions[number].merge(part)
                write_kept([reductions[number].kept for number in block.asked], block.clients, found.kept)
        replies += [reduction.reply() for reduction in reductions]
    return replies


def disjoint(requests: Sequence[Request]) -> Iterator[list[Request]]:
    """Requests that can be worked on at once: what a client keeps of one is there for the next."""
    group: list[Request] = []
    seen: set[int] = set()
    for request in requests:
        if not seen.isdisjoint(request.exchange.cohort):
            yield group
            group, seen = [], set()
        group.append(request)
        seen.update(request.exchange.cohort)
    yield group


def divide_requests(job: Job, requests: Sequence[Request], size: Size) -> list[Rows]:
    """The cohorts of exchanges in blocks. Those that ask for the same share them: cells have few clients each."""
    groups: dict[tuple[str, Info, object], dict[int, int]] = {}  # by which exchange each client is asked
    for number, request in enumerate(requests):
        asked = groups.setdefault(_question(request), {})
        asked.update(dict.fromkeys(job.present(request.exchange), number))
    return [
        Rows(clients, [asked[client] for client in clients])
        for (work, info, _), asked in groups.items()
        for clients in divide(job, job.algorithm.works[work], list(asked), info, size)
    ]


def divide(job: Job, work: Work, clients: Sequence[int], info: Info, size: Size) -> list[list[int]]:
    """Clients in blocks, those with most steps first. Without masks the clients of a block have batches alike."""
    shapes = {client: _shape(job, work, client, info) for client in clients}
    groups: dict[object, list[int]] = {}
    for client in sorted(shapes, key=lambda client: tuple(-part for part in shapes[client])):
        groups.setdefault(None if size.masks else shapes[client], []).append(client)
    blocks = []
    for group in groups.values():
        num_blocks = -(-len(group) // size.num_rows)
        ends = [-(-len(group) * i // num_blocks) for i in range(num_blocks + 1)]
        blocks += [group[start:end] for start, end in pairwise(ends)]
    return blocks


def answer(job: Job, batched: Batched, requests: Mapping[int, Request], block: Rows, kept: Tree) -> Found:
    """A block's part in each exchange, and what its clients keep."""
    first = requests[block.asked[0]]
    work, down, info = first.exchange.work, first.exchange.down, first.info
    clients, numbers = block.clients, list(dict.fromkeys(block.asked))
    if len(numbers) > 1:
        down = {name: torch.stack([requests[number].exchange.down[name] for number in block.asked]) for name in down}
    upload, after, efforts = rows.perform(job, batched, job.algorithm.works[work], clients, down, kept, info)
    upload = {name: rows.as_rows(value, len(clients)) for name, value in upload.items()}
    sizes = job.sizes(clients, info.round).tolist()
    answers = [Answer(client, size, effort, {}) for client, size, effort in zip(clients, sizes, efforts, strict=True)]
    parts = {}
    for number in numbers:
        mine = [row for row, asked in enumerate(block.asked) if asked == number]
        span = slice(mine[0], mine[-1] + 1)
        # As a rule they are side by side, and need not be copied.
        which = span if span.stop - span.start == len(mine) else mine
        own = {name: value[which] for name, value in upload.items()}
        parts[number] = _reduce(job, requests[number], [answers[row] for row in mine], own)
    kept = {} if after is kept else {name: rows.as_rows(value, len(clients)) for name, value in after.items()}
    return Found(parts, kept)


def read_kept(job: Job, clients: Sequence[int]) -> Tree:
    """The private state of a block's clients, as rows."""
    trees = [job.kept.read(client) for client in clients]
    return {name: torch.stack([tree[name] for tree in trees]) for name in trees[0]}


def write_kept(stores: Sequence[Kept], clients: Sequence[int], after: Tree) -> None:
    for i, client in enumerate(clients if after else ()):
        stores[i].write(client, {name: value[i] for name, value in after.items()})


def _question(request: Request) -> tuple[str, Info, object]:
    """What is asked, but for who is asked and by which model: (work, info, shapes of `down`)."""
    exchange = request.exchange
    shapes = tuple((name, value.shape, value.dtype) for name, value in sorted(exchange.down.items()))
    return exchange.work, request.info._replace(cohort=()), shapes


def _reduce(job: Job, request: Request, answers: Sequence[Answer], upload: Tree) -> PartialReply:
    """Some clients' part in an exchange; their uploads are rows."""
    reduction, work = Reduction(job, request), job.algorithm.works[request.exchange.work]
    if work.codec is None:
        reduction.add_rows(answers, upload)
    else:
        for i, each in enumerate(answers):
            mine = {name: value[i] for name, value in upload.items()}
            reduction.add(seal(work, each._replace(upload=mine), request.exchange.down, request.info))
    return reduction.part()


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
