"""What workers can be asked to do, by name: plain values and tensors in, plain values and tensors out.

How these travel is not said here: every engine with workers has the same tasks. A worker has a job and its kernels, but
not the clients' private state, which is read and written in one place only and travels with the task.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NoReturn

import msgspec
import torch
from torch import Tensor

from fedge.core import errors
from fedge.core.algorithm import Exchange, Info, Reply
from fedge.core.errors import FedgeError
from fedge.core.layout import Tree, nest, pick
from fedge.core.reduce import Collect, Mean, Partial
from fedge.engines import evaluate
from fedge.engines.block import Content, Workers, answer, divide_request, read_kept, write_kept
from fedge.engines.job import Job, Request
from fedge.engines.kernels.assemble import Batched
from fedge.engines.reduction import Answer, Effort, Part, Reduction

Meta = Mapping[str, Any]
"""Plain values: numbers, texts, and lists and dicts of them."""

Task = Callable[[Job, Batched | None, Tree, Meta, Tree], Content]
"""(job, batched, what all tasks of one call share, meta, tensors) -> content."""

_NUM_NAMED = 8


def perform(kind: str, job: Job, batched: Batched | None, shared: Tree, meta: Meta, tensors: Tree) -> Content:
    """Do what is asked of a worker."""
    return TASKS[kind](job._replace(kept=_Elsewhere()), batched, shared, meta, tensors)


class Here:
    """Does tasks in this process, one after another; without `batched`, one client at a time."""

    def __init__(self, job: Job, batched: Batched | None, num_rows: int) -> None:
        self._job, self._batched, self.num_rows = job, batched, num_rows
        self.masks = batched is None or batched.masks

    def map(self, kind: str, shared: Tree, items: Iterable[Content]) -> Generator[Content, None, None]:
        return (perform(kind, self._job, self._batched, shared, meta, tensors) for meta, tensors in items)


def run(job: Job, workers: Workers, exchanges: Sequence[Exchange], infos: Sequence[Info]) -> list[Reply]:
    """Exchanges as an engine runs them, with the blocks of all of them as tasks."""
    requests = [job.send(exchange, info) for exchange, info in zip(exchanges, infos, strict=True)]
    reductions = [Reduction(job, request) for request in requests]
    for group in _disjoint(requests):
        _run_together(job, workers, [requests[i] for i in group], [reductions[i] for i in group])
    return [reduction.reply() for reduction in reductions]


def _run_together(job: Job, workers: Workers, requests: Sequence[Request], reductions: Sequence[Reduction]) -> None:
    """All blocks of these requests; their parts are merged in order, whichever was done first."""
    averages = [isinstance(request.exchange.reduce(job.algorithm.slots), Mean) for request in requests]
    blocks = [(i, clients) for i, request in enumerate(requests) for clients in divide_request(job, request, workers)]
    items = ((ask(requests[i], i, averages[i], clients), read_kept(job, clients)) for i, clients in blocks)
    shared = share([request.exchange.down for request in requests])
    with closing(workers.map("answer", shared, items)) as results:
        for (i, clients), (meta, tensors) in zip(blocks, results, strict=True):
            part, kept = read_answer(meta, tensors)
            reductions[i].merge(part)
            write_kept(job, clients, kept)


def _disjoint(requests: Sequence[Request]) -> Iterator[list[int]]:
    """Requests, by number, that can be worked on at once: what a client keeps of one is there for the next."""
    group: list[int] = []
    seen: set[int] = set()
    for i, request in enumerate(requests):
        if not seen.isdisjoint(request.exchange.cohort):
            yield group
            group, seen = [], set()
        group.append(i)
        seen.update(request.exchange.cohort)
    yield group


def describe(kind: str, meta: Meta) -> str:
    """A task, for a person who has to find out what is wrong with it."""
    if not (clients := meta.get("clients")):
        return f"the task {kind!r}"
    rest = len(clients) - _NUM_NAMED
    return "clients " + ", ".join(map(str, clients[:_NUM_NAMED])) + (f" and {rest} more" if rest > 0 else "")


def share(downs: Sequence[Tree]) -> Tree:
    """What the tasks "answer" to several exchanges share."""
    return {name: value for i, down in enumerate(downs) for name, value in nest(str(i), down).items()}


def ask(request: Request, which: int, averages: bool, clients: Sequence[int]) -> Meta:
    """The task "answer": a block's part in the exchange whose `down` is the shared one with this number.

    Its tensors are the private state of the block's clients. A reducer other than the mean needs all uploads at once,
    so that the worker hands them on as they are.
    """
    return {"request": request.meta(), "which": which, "averages": averages, "clients": list(clients)}


def largest(job: Job, num_rows: int) -> tuple[Tree, Tree, Tree]:
    """(`down` of an exchange, what goes into a task "answer", what comes out): in shape the most they can be."""
    network, slots = job.network, job.algorithm.slots
    down = {name: _shape(network.dtype, network.layout.size(slot.kind)) for name, slot in slots.items()}
    means = {name: _shape(torch.float64, len(value)) for name, value in down.items()}
    uploads = {name: _shape(value.dtype, num_rows, len(value)) for name, value in down.items()}
    part = max(nest("means", means), nest("uploads", uploads), key=lambda tree: sum(v.nbytes for v in tree.values()))
    template = job.algorithm.keep(network.variables)
    kept = {name: _shape(value.dtype, num_rows, *value.shape) for name, value in template.items()}
    directions = {"directions": _shape(torch.float64, network.layout.num_params)} if job.compare_updates else {}
    return down, kept, part | directions | nest("kept", kept)


def _answer(job: Job, batched: Batched | None, shared: Tree, meta: Meta, tensors: Tree) -> Content:
    assert batched is not None, "only an engine with blocks asks for them"
    told = dict(meta["request"])
    exchange = Exchange(
        told.pop("work"), pick(str(meta["which"]), shared), meta["clients"], Mean if meta["averages"] else Collect
    )
    part, kept = answer(job, batched, Request(exchange, Info(**told), {}), meta["clients"], tensors)
    plain, found = write_part(part)
    return plain, found | nest("kept", kept)


def read_answer(meta: Meta, tensors: Tree) -> tuple[Part, Tree]:
    """What the task "answer" found: the block's part, and what its clients keep, as rows."""
    return read_part(meta, tensors), pick("kept", tensors)


def write_part(part: Part) -> Content:
    """A part, ready to travel."""
    mean = part.mean
    meta = {
        "answers": [each.meta() for each in part.answers],
        "bytes_up": part.bytes_up,
        "communicated": part.communicated,
        "mean": mean
        and {
            "dtypes": {name: str(dtype).removeprefix("torch.") for name, dtype in mean.dtypes.items()},
            "samples": mean.samples,
            "num_uploads": mean.num_uploads,
        },
        "num_uploads": len(part.uploads),
        "num_directions": part.num_directions,
    }
    names = part.uploads[0] if part.uploads else ()
    tensors = nest("means", mean.means) if mean else {}
    tensors |= nest("uploads", {name: torch.stack([upload[name] for upload in part.uploads]) for name in names})
    return meta, tensors if part.directions is None else tensors | {"directions": part.directions}


def read_part(meta: Meta, tensors: Tree) -> Part:
    """The part that travelled. The means lie in the tensors' memory, all else is a copy."""
    uploads = {name: rows.clone() for name, rows in pick("uploads", tensors).items()}
    return Part(
        [_read_one(each) for each in meta["answers"]],
        meta["bytes_up"],
        meta["communicated"],
        meta["mean"] and _read_mean(meta["mean"], pick("means", tensors)),
        [{name: rows[i] for name, rows in uploads.items()} for i in range(meta["num_uploads"])],
        tensors["directions"].clone() if "directions" in tensors else None,
        meta["num_directions"],
    )


def _read_one(meta: Meta) -> Answer:
    effort = {name: meta[name] for name in Effort._fields}
    return Answer(meta["client"], meta["samples"], Effort(**effort), {})


def _read_mean(meta: Meta, means: Tree) -> Partial:
    dtypes = {name: getattr(torch, dtype) for name, dtype in meta["dtypes"].items()}
    return Partial(means, dtypes, meta["samples"], meta["num_uploads"])


def _shape(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


_ERRORS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (MemoryError, *vars(errors).values())
    if isinstance(kind, type) and issubclass(kind, (MemoryError, FedgeError))
}
"""Errors that mean the same in the parent as in a worker."""


class Failure(msgspec.Struct, array_like=True, tag=True):
    """Why it found nothing: an error, by the name of its class if that is a known one."""

    name: str | None
    text: str

    @staticmethod
    def of(error: BaseException) -> Failure:
        """Of an error that people can act on its message, of any other all that is known."""
        name = next((kind.__name__ for kind in type(error).__mro__ if _ERRORS.get(kind.__name__) is kind), None)
        if isinstance(error, FedgeError):
            return Failure(name, str(error))
        return Failure(name, "in a worker process:\n" + "".join(traceback.format_exception(error)))

    def error(self) -> Exception:
        return RuntimeError(self.text) if self.name is None else _ERRORS[self.name](self.text)


class _Elsewhere:
    """In place of the store of private state: a worker's copy would be out of date, and say nothing of it."""

    def read(self, client: int) -> NoReturn:
        raise RuntimeError(f"a worker cannot read what client {client} keeps: hand it over with the task's tensors")

    def write(self, client: int, tree: Tree) -> NoReturn:
        raise RuntimeError(f"a worker cannot write what client {client} keeps: return it among the task's tensors")


TASKS: dict[str, Task] = {
    "answer": _answer,
    "central": evaluate.measure_central,
    "training": evaluate.measure_training,
    "users": evaluate.measure_users,
    "personal": evaluate.measure_personal,
    "trained": evaluate.measure_trained,
}
"""What there is to ask, by name."""
