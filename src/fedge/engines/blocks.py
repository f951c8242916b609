"""Run exchanges in blocks of clients, as rows `[C, P]`: divide clients into blocks and merge their results."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import torch

from fedge.client.client_side import ClientSide
from fedge.client.private_state import HeldState
from fedge.core.algorithm import Exchange, Info, Reply, Work
from fedge.core.answer import Answer, Request, seal
from fedge.core.effort import num_steps
from fedge.core.layout import Tree
from fedge.core.reduction import PartialReply, Reduction
from fedge.core.server_side import ServerSide
from fedge.engines import block_work
from fedge.engines.both_sides import BothSides
from fedge.engines.kernels.assemble import Batched


class Size(Protocol):
    """Limits on blocks."""

    num_rows: int  # maximum number of clients in a block
    masks: bool  # whether clients of a block may have batches of different sizes


Content = tuple[Mapping[str, Any], Tree]
"""Input or output of a task: plain values (numbers, strings, lists and dicts of them) and tensors."""


class Workers(Size, Protocol):
    """Something that performs tasks: this process, or worker processes."""

    def map(self, kind: str, shared: Tree, items: Iterable[Content]) -> Generator[Content, None, None]:
        """Yield the results of tasks in order; `shared` is the same for all tasks."""


class Rows(NamedTuple):
    """The clients of a block. They may belong to different exchanges with the same work."""

    clients: list[int]
    asked: list[int]  # index of each client's exchange


class Found(NamedTuple):
    """The result of a block."""

    parts: dict[int, PartialReply]  # its part in each exchange
    kept: Tree  # private state of its clients as rows; empty if unchanged


Find = Callable[[Sequence[Reduction], Sequence[Rows]], Generator[Found, None, None]]
"""Runs the blocks of several exchanges and yields the result of each, in order."""


def run_in_blocks(
    sides: BothSides, size: Size, exchanges: Sequence[Exchange], infos: Sequence[Info], find: Find
) -> list[Reply]:
    """Run exchanges in blocks. Parts are merged in the order of the blocks, whichever finishes first."""
    replies, server, clients = [], sides.server, sides.clients
    for requests in disjoint([server.send(exchange, info) for exchange, info in zip(exchanges, infos, strict=True)]):
        reductions = [Reduction(server, request) for request in requests]
        held = [HeldState(clients.kept, at_once=request.exchange.admit is None) for request in requests]
        blocks = divide_requests(sides, requests, size)
        with closing(find(reductions, blocks)) as results:
            for block, found in zip(blocks, results, strict=True):
                for number, part in found.parts.items():
                    reductions[number].merge(part)
                _write_kept(held, block, found)
        for reduction, states in zip(reductions, held, strict=True):
            replies.append(reduction.reply())
            states.settle(replies[-1].ids)
    return replies


def disjoint(requests: Sequence[Request]) -> Iterator[list[Request]]:
    """Group requests with disjoint cohorts, so that a client's private state from one is there for the next."""
    group: list[Request] = []
    seen: set[int] = set()
    for request in requests:
        if not seen.isdisjoint(request.exchange.cohort):
            yield group
            group, seen = [], set()
        group.append(request)
        seen.update(request.exchange.cohort)
    yield group


def divide_requests(sides: BothSides, requests: Sequence[Request], size: Size) -> list[Rows]:
    """Divide the cohorts of exchanges into blocks. Exchanges with the same work share blocks, as cells are small."""
    groups: dict[tuple[str, Info, object], dict[int, int]] = {}  # the exchange of each client
    for number, request in enumerate(requests):
        asked = groups.setdefault(_question(request), {})
        asked.update(dict.fromkeys(sides.server.present(request.exchange), number))
    return [
        Rows(ids, [asked[client] for client in ids])
        for (work, info, _), asked in groups.items()
        for ids in divide(sides.clients, sides.clients.algorithm.works[work], list(asked), info, size)
    ]


def divide(clients: ClientSide, work: Work, ids: Sequence[int], info: Info, size: Size) -> list[list[int]]:
    """Divide clients into blocks, most steps first. Without masks, all clients of a block have equal batch sizes."""
    shapes = {client: _shape(clients, work, client, info) for client in ids}
    groups: dict[object, list[int]] = {}
    for client in sorted(shapes, key=lambda client: tuple(-part for part in shapes[client])):
        groups.setdefault(None if size.masks else shapes[client], []).append(client)
    blocks = []
    for group in groups.values():
        num_blocks = -(-len(group) // size.num_rows)
        ends = [-(-len(group) * i // num_blocks) for i in range(num_blocks + 1)]
        blocks += [group[start:end] for start, end in pairwise(ends)]
    return blocks


def answer(sides: BothSides, batched: Batched, requests: Mapping[int, Request], block: Rows, kept: Tree) -> Found:
    """Run a block and return its part in each exchange and its clients' private state."""
    clients, first = sides.clients, requests[block.asked[0]]
    work, down, info = first.exchange.work, first.exchange.down, first.info
    ids, numbers = block.clients, list(dict.fromkeys(block.asked))
    if len(numbers) > 1:
        down = {name: torch.stack([requests[number].exchange.down[name] for number in block.asked]) for name in down}
    performed = block_work.perform(clients, batched, clients.algorithm.works[work], ids, down, kept, info)
    upload, after, efforts = performed
    upload = {name: block_work.as_rows(value, len(ids)) for name, value in upload.items()}
    sizes = clients.sizes(ids, info.round).tolist()
    answers = [Answer(client, size, effort, {}) for client, size, effort in zip(ids, sizes, efforts, strict=True)]
    parts = {}
    for number in numbers:
        mine = [row for row, asked in enumerate(block.asked) if asked == number]
        span = slice(mine[0], mine[-1] + 1)
        # Usually the rows are contiguous and need not be copied.
        which = span if span.stop - span.start == len(mine) else mine
        own = {name: value[which] for name, value in upload.items()}
        parts[number] = _reduce(sides.server, requests[number], [answers[row] for row in mine], own)
    kept = {} if after is kept else {name: block_work.as_rows(value, len(ids)) for name, value in after.items()}
    return Found(parts, kept)


def read_kept(clients: ClientSide, ids: Sequence[int]) -> Tree:
    """Return the private state of a block's clients, as rows."""
    trees = [clients.kept.read(client) for client in ids]
    return {name: torch.stack([tree[name] for tree in trees]) for name in trees[0]}


def _write_kept(held: Sequence[HeldState], block: Rows, found: Found) -> None:
    """Write the private state of clients whose answers were not rejected."""
    rejected = {bad.answer.client for part in found.parts.values() for bad in part.bad}
    for i, (client, number) in enumerate(zip(block.clients, block.asked, strict=True)):
        if found.kept and client not in rejected:
            held[number].write(client, {name: value[i] for name, value in found.kept.items()})


def _question(request: Request) -> tuple[str, Info, object]:
    """Return what identifies a request apart from clients and model: (work, info, shapes of `down`)."""
    exchange = request.exchange
    shapes = tuple((name, value.shape, value.dtype) for name, value in sorted(exchange.down.items()))
    return exchange.work, request.info._replace(cohort=()), shapes


def _reduce(server: ServerSide, request: Request, answers: Sequence[Answer], upload: Tree) -> PartialReply:
    """Reduce the answers of some clients, whose uploads are rows, to their part in an exchange."""
    reduction, name, down = Reduction(server, request), request.exchange.work, request.exchange.down
    work = server.algorithm.works[name]
    if work.codec is None:
        reduction.add_rows(answers, upload)
    else:
        for i, each in enumerate(answers):
            mine = {key: value[i] for key, value in upload.items()}
            reduction.add(seal(work, name, each._replace(upload=mine), down, request.info))
    return reduction.part()


def _shape(clients: ClientSide, work: Work, client: int, info: Info) -> tuple[int, ...]:
    """Return the steps and batch sizes of a client; clients with equal results have equal batch sizes."""
    if not work.trains:
        return 0, 0
    size = clients.data.num_samples(client, info.round)
    batch = min(clients.batch_size, size)
    steps = num_steps(work, info, size, clients.batch_size, clients.network.has_norm)
    counts_steps = info.num_steps is not None or work.num_steps is not None
    return (steps, batch) if counts_steps else (steps, batch, size)
