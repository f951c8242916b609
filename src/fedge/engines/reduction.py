"""What every engine makes of clients' answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from fedge.client.private_state import Pending
from fedge.core import message
from fedge.core.algorithm import Costs, Info, Kept, Late, Reply, Work
from fedge.core.errors import TrainingError
from fedge.core.keys import generator
from fedge.core.layout import Tree
from fedge.core.reduce import Mean, Partial
from fedge.engines.job import Job, Request


class Effort(NamedTuple):
    """What a client's work took, counted by the engine."""

    steps: int = 0
    batches: int = 0  # minibatch gradients
    grad_samples: int = 0  # samples passed through a gradient
    loss: float = float("nan")  # of the first gradient, if there was one


class Answer(NamedTuple):
    """One client's answer to one exchange; sealed, its upload is encoded as it travels."""

    client: int
    samples: int
    effort: Effort
    upload: Tree

    def meta(self) -> message.WorkAnswer:
        """The plain values that travel beside the upload."""
        return message.WorkAnswer(self.client, self.samples, *self.effort)


class PartialReply(NamedTuple):
    """Some clients' answers to an exchange, reduced as far as that goes without the others'."""

    answers: list[Answer]  # without their uploads
    bytes_up: list[int]
    communicated: bool
    mean: Partial | None  # of the uploads; None: they are held
    uploads: list[Tree]  # one by one, if they are
    directions: Tensor | None  # the sum of the updates' directions, if it is asked for
    num_directions: int


class Reduction:
    """Answers to one exchange become its reply.

    A mean runs over the answers in the order in which they are given. Other reducers need all of them at once, and
    where some may be late, nobody knows whose will count: then uploads are held until the reply, and reduced in client
    order. What may be late is not kept before that either.
    """

    def __init__(self, job: Job, request: Request) -> None:
        self._job, self.request = job, request
        self._exchange, self._info = request.exchange, request.info
        self._work = job.algorithm.works[self._exchange.work]
        admit, reducer = self._exchange.admit, self._exchange.reduce(job.algorithm.slots)
        self._reducer = reducer
        self._mean = reducer if isinstance(reducer, Mean) and admit is None else None  # if it is streamed
        self.kept: Kept = job.kept if admit is None else Pending(job.kept)
        self._answers: list[Answer] = []
        self._bytes_up: list[int] = []
        self._uploads: list[Tree] = []
        self._communicated = False
        self._directions: Tensor | None = None
        self._num_directions = 0

    @property
    def holds(self) -> bool:
        """Uploads are wanted one by one."""
        return self._mean is None

    def add(self, answer: Answer) -> None:
        """Decode, check and count one answer."""
        codec = self._work.codec
        upload = codec.decode(answer.upload, self._exchange.down) if codec else answer.upload
        check_finite(answer, upload, self._info)
        self._count([answer], answer.upload, upload)
        if self._mean is None:
            self._uploads.append(upload)
        else:
            self._mean.add(upload, answer.samples)
            self._compare(upload)

    def add_rows(self, answers: Sequence[Answer], rows: Tree) -> None:
        """Check and count the answers of a block, which are not encoded; their uploads are rows."""
        if self._mean is None:
            self._uploads += _divide(rows, len(answers))
        else:
            self._mean.add_rows(rows, [answer.samples for answer in answers])
        # What is not finite in an upload is not in the mean either, which is far less to look through.
        tree = rows if self._mean is None else self._mean.partial.means
        losses = [answer.effort.loss for answer in answers if answer.effort.batches]
        if not (np.isfinite(losses).all() and all(np.isfinite(value.numpy()).all() for value in tree.values())):
            for answer, upload in zip(answers, _divide(rows, len(answers)), strict=True):
                check_finite(answer, upload, self._info)
        if self._mean is not None and self._job.compare_updates:
            for upload in _divide(rows, len(answers)):
                self._compare(upload)
        self._count(answers, {name: value[0] for name, value in rows.items()}, rows)

    def part(self) -> PartialReply:
        """What was counted so far, for another reduction to merge."""
        return PartialReply(
            self._answers,
            self._bytes_up,
            self._communicated,
            None if self._mean is None else self._mean.partial,
            self._uploads,
            self._directions,
            self._num_directions,
        )

    def merge(self, part: PartialReply) -> None:
        """Count what another reduction has counted, after what was counted here."""
        self._answers += part.answers
        self._bytes_up += part.bytes_up
        self._communicated |= part.communicated
        if self._mean is not None and part.mean is not None:
            self._mean.merge(part.mean)
        self._uploads += part.uploads
        if part.directions is not None:
            self._directions = part.directions if self._directions is None else self._directions + part.directions
            self._num_directions += part.num_directions

    def reply(self) -> Reply:
        """To be asked for once, when all answers are there."""
        order = sorted(range(len(self._answers)), key=lambda i: self._answers[i].client)
        in_time, late = self._admit(order)
        for i in in_time if self.holds else ():
            self._reducer.add(self._uploads[i], self._answers[i].samples)
            self._compare(self._uploads[i])
        answers, ids = [self._answers[i] for i in in_time], self._ids(in_time)
        if isinstance(self.kept, Pending):
            self.kept.release(ids)
        return Reply(
            value=self._reducer.value(),
            ids=ids,
            samples=np.array([answer.samples for answer in answers], np.int64),
            missing=tuple(sorted(set(self._exchange.cohort) - set(ids))),
            costs=self._costs(in_time),
            losses=np.array([answer.effort.loss for answer in answers], np.float64),
            communicated=self._communicated,
            cosine_distance=self._cosine_distance(),
            late=Late(self._ids(late), self._costs(late)) if late else None,
        )

    def _admit(self, order: list[int]) -> tuple[list[int], list[int]]:
        """Those in time, and those too late."""
        admit = self._exchange.admit
        if admit is None or not order:
            return order, []
        found = list(zip(order, admit(self._ids(order), self._costs(order)), strict=True))
        return [i for i, admitted in found if admitted], [i for i, admitted in found if not admitted]

    def _ids(self, which: Sequence[int]) -> tuple[int, ...]:
        return tuple(self._answers[i].client for i in which)

    def _costs(self, which: Sequence[int]) -> Costs:
        job, efforts = self._job, [self._answers[i].effort for i in which]
        steps = np.array([effort.steps for effort in efforts], np.int64)
        grad_samples = np.array([effort.grad_samples for effort in efforts], np.int64)
        return Costs(
            bytes_down=np.full(len(which), message.size(self.request.meta(), self.request.coded), np.int64),
            bytes_up=np.array([self._bytes_up[i] for i in which], np.int64),
            steps=steps,
            batches=np.array([effort.batches for effort in efforts], np.int64),
            flops=grad_samples * job.flops_per_sample
            + steps * self._work.flops_per_param * job.network.layout.num_params,
            samples=grad_samples,
        )

    def _count(self, answers: Sequence[Answer], coded: Tree, names: Iterable[str]) -> None:
        """Count answers whose uploads have these vectors, and travel as trees like this one."""
        self._communicated |= any(self._job.algorithm.slots[name].kind == "params" for name in names)
        self._bytes_up += message.sizes([answer.meta() for answer in answers], coded)
        self._answers += [answer._replace(upload={}) for answer in answers]

    def _compare(self, upload: Tree) -> None:
        """Count the direction of an update, if asked to: the change of the model in its first vector of parameters."""
        if not self._job.compare_updates:
            return
        slots = self._job.algorithm.slots
        name = next((n for n in upload if slots[n].kind == "params" and not slots[n].moment), None)
        if name is None:
            return
        anchor = slots[name].anchor
        change = (upload[name] if anchor is None else upload[name] - self._exchange.down[anchor]).double()
        if (length := change.norm()) > 0:  # no update has no direction
            direction = change / length
            self._directions = direction if self._directions is None else self._directions + direction
            self._num_directions += 1

    def _cosine_distance(self) -> float | None:
        """Of n directions u the mean of 1 - u.v over all pairs, from the length of their sum."""
        n = self._num_directions
        if self._directions is None or n < 2:
            return None
        return float(1 - (self._directions.square().sum() - n) / (n * (n - 1)))


def _divide(rows: Tree, num_rows: int) -> list[Tree]:
    return [{name: value[i] for name, value in rows.items()} for i in range(num_rows)]


def seal(work: Work, answer: Answer, down: Tree, info: Info) -> Answer:
    """An answer as it travels. What is not finite is refused before a codec makes something else of it."""
    if work.codec is None:
        return answer
    check_finite(answer, answer.upload, info)
    rng = generator(info.seed, "codec", answer.client, info.round)
    return answer._replace(upload=work.codec.encode(answer.upload, down, rng))


def check_finite(answer: Answer, upload: Tree, info: Info) -> None:
    """A TrainingError that names round and client if the loss or a value is not finite."""
    found = ["the loss"] if not np.isfinite(answer.effort.loss) and answer.effort.batches else []
    # numpy's check is far faster than torch's on a fresh buffer
    found += [f"the upload {name!r}" for name, value in upload.items() if not np.isfinite(value.numpy()).all()]
    if found:
        raise TrainingError(
            f"round {info.round}, client {answer.client}: {found[0]} is not finite "
            f"(loss of the first step: {answer.effort.loss:g}). "
            "Training has diverged or the client's data is bad: lower algorithm.learning_rate or check the data"
        )
