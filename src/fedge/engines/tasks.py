"""The tasks of workers, by name: plain values and tensors in, plain values and tensors out.

All engines with workers share these tasks, whatever the transport. A worker has both sides and the kernels, but not the
clients' private state, which only the parent reads and writes and which is sent with the task.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import Any, NoReturn

import msgspec
import torch

from fedge.core import errors
from fedge.core.algorithm import Exchange, Info, Reply
from fedge.core.answer import Answer, Request
from fedge.core.errors import FedgeError
from fedge.core.layout import Tree, nest, pick
from fedge.core.message import WorkAnswer
from fedge.core.placement import dtype_name
from fedge.core.reduce import Collect, Mean, Partial
from fedge.core.reduction import Bad, PartialReply, Reduction
from fedge.engines import evaluate
from fedge.engines.blocks import Content, Found, Rows, Workers, answer, read_kept, run_in_blocks
from fedge.engines.both_sides import BothSides
from fedge.engines.kernels.assemble import Batched

Meta = Mapping[str, Any]
"""Plain values: numbers, strings, and lists and dicts of them."""

Task = Callable[[BothSides, Batched, Tree, Meta, Tree], Content]
"""(sides, batched, tree shared by all tasks of a call, meta, tensors) -> content."""

_NUM_NAMED = 8


def perform(kind: str, sides: BothSides, batched: Batched, shared: Tree, meta: Meta, tensors: Tree) -> Content:
    """Perform a task in a worker."""
    sides = sides._replace(clients=sides.clients._replace(kept=_NoPrivateState()))
    return TASKS[kind](sides, batched, shared, meta, tensors)


def run(sides: BothSides, workers: Workers, exchanges: Sequence[Exchange], infos: Sequence[Info]) -> list[Reply]:
    """Run exchanges with their blocks as tasks."""

    def find(reductions: Sequence[Reduction], blocks: Sequence[Rows]) -> Generator[Found, None, None]:
        shared = share([reduction.request.exchange.down for reduction in reductions])
        items = ((ask(reductions, block), read_kept(sides.clients, block.clients)) for block in blocks)
        with closing(workers.map("answer", shared, items)) as results:
            for meta, tensors in results:
                yield read_found(meta, tensors)

    return run_in_blocks(sides, workers, exchanges, infos, find)


def describe(kind: str, meta: Meta) -> str:
    """Return a description of a task for error messages."""
    if not (clients := meta.get("clients")):
        return f"the task {kind!r}"
    rest = len(clients) - _NUM_NAMED
    return "clients " + ", ".join(map(str, clients[:_NUM_NAMED])) + (f" and {rest} more" if rest > 0 else "")


def share(downs: Sequence[Tree]) -> Tree:
    """Return the tree that all "answer" tasks of several exchanges share."""
    return {name: value for i, down in enumerate(downs) for name, value in nest(str(i), down).items()}


def ask(reductions: Sequence[Reduction], block: Rows) -> Meta:
    """Return the meta of an "answer" task: the block, and the exchanges by their index in the shared tree.

    The task's tensors are the private state of the block's clients. Exchanges in `holding` return uploads unreduced,
    because the parent collects them.
    """
    told = msgspec.structs.asdict(reductions[block.asked[0]].request.meta())  # the same for all exchanges of the block
    holding = [number for number in sorted(set(block.asked)) if reductions[number].holds]
    return {"request": told, "holding": holding, **block._asdict()}


def _answer(sides: BothSides, batched: Batched, shared: Tree, meta: Meta, tensors: Tree) -> Content:
    told, block = dict(meta["request"]), Rows(meta["clients"], meta["asked"])
    work, info = told.pop("work"), Info(**told)
    requests = {}
    for number in set(block.asked):
        reduce = Collect if number in meta["holding"] else Mean
        requests[number] = Request(Exchange(work, pick(str(number), shared), (), reduce), info, {})
    return write_found(answer(sides, batched, requests, block, tensors))


def write_found(found: Found) -> Content:
    """Return the result of a block in serialisable form."""
    parts = {str(number): write_part(part) for number, part in found.parts.items()}
    tensors = nest("kept", found.kept)
    for number, (_, held) in parts.items():
        tensors |= nest(number, held)
    return {"parts": {number: plain for number, (plain, _) in parts.items()}}, tensors


def read_found(meta: Meta, tensors: Tree) -> Found:
    """Return the result of an "answer" task from its serialisable form."""
    parts = {int(number): read_part(plain, pick(number, tensors)) for number, plain in meta["parts"].items()}
    return Found(parts, pick("kept", tensors))


def write_part(part: PartialReply) -> Content:
    """Return a partial reply in serialisable form."""
    mean = part.mean
    meta = {
        "answers": [_write_one(each) for each in part.answers],
        "bytes_up": part.bytes_up,
        "communicated": part.communicated,
        "mean": mean
        and {
            "dtypes": {name: dtype_name(dtype) for name, dtype in mean.dtypes.items()},
            "samples": mean.samples,
            "num_uploads": mean.num_uploads,
        },
        "num_uploads": len(part.uploads),
        "num_directions": part.num_directions,
        "bad": [[_write_one(bad.answer), bad.bytes_up, bad.reason] for bad in part.bad],
    }
    names = part.uploads[0] if part.uploads else ()
    tensors = nest("means", mean.means) if mean else {}
    tensors |= nest("uploads", {name: torch.stack([upload[name] for upload in part.uploads]) for name in names})
    return meta, tensors if part.directions is None else tensors | {"directions": part.directions}


def read_part(meta: Meta, tensors: Tree) -> PartialReply:
    """Return a partial reply from its serialisable form. Means are views of the tensors; the rest is copied."""
    uploads = {name: rows.clone() for name, rows in pick("uploads", tensors).items()}
    return PartialReply(
        [_read_one(each) for each in meta["answers"]],
        meta["bytes_up"],
        meta["communicated"],
        meta["mean"] and _read_mean(meta["mean"], pick("means", tensors)),
        [{name: rows[i] for name, rows in uploads.items()} for i in range(meta["num_uploads"])],
        tensors["directions"].clone() if "directions" in tensors else None,
        meta["num_directions"],
        [Bad(_read_one(answer), num_bytes, reason) for answer, num_bytes, reason in meta["bad"]],
    )


def _write_one(answer: Answer) -> Meta:
    return msgspec.structs.asdict(answer.meta())


def _read_one(meta: Meta) -> Answer:
    return Answer.read(WorkAnswer(**meta), {})


def _read_mean(meta: Meta, means: Tree) -> Partial:
    dtypes = {name: getattr(torch, dtype) for name, dtype in meta["dtypes"].items()}
    return Partial(means, dtypes, meta["samples"], meta["num_uploads"])


_ERRORS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (MemoryError, *vars(errors).values())
    if isinstance(kind, type) and issubclass(kind, (MemoryError, FedgeError))
}
"""Errors of a worker that the parent raises again by name."""


class Failure(msgspec.Struct, array_like=True, tag=True):
    """An error in a worker, with the name of its class if the parent knows it."""

    name: str | None
    text: str

    @staticmethod
    def of(error: BaseException) -> Failure:
        """Describe an error: its message if the user can act on it, else the full traceback."""
        name = next((kind.__name__ for kind in type(error).__mro__ if _ERRORS.get(kind.__name__) is kind), None)
        if isinstance(error, FedgeError):
            return Failure(name, str(error))
        return Failure(name, "in a worker process:\n" + "".join(traceback.format_exception(error)))

    def error(self) -> Exception:
        return RuntimeError(self.text) if self.name is None else _ERRORS[self.name](self.text)


class _NoPrivateState:
    """Replaces the store of private state in workers, whose copy would be silently out of date."""

    def read(self, client: int) -> NoReturn:
        raise RuntimeError(
            f"a worker cannot read the private state of client {client}: pass it with the task's tensors"
        )

    def write(self, client: int, tree: Tree) -> NoReturn:
        raise RuntimeError(
            f"a worker cannot write the private state of client {client}: return it among the task's tensors"
        )


TASKS: dict[str, Task] = {
    "answer": _answer,
    "central": evaluate.measure_central,
    "common": evaluate.measure_common,
    "own": evaluate.measure_own,
}
"""All tasks by name."""
