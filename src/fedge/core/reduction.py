"""Reduction of the answers to one exchange into its reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from fedge.core import message
from fedge.core.algorithm import Costs, Late, Rejected, Reply, Work
from fedge.core.answer import Answer, Request, find_infinite
from fedge.core.effort import Effort
from fedge.core.errors import StreamError, TrainingError
from fedge.core.gate import Gate
from fedge.core.layout import Tree
from fedge.core.reduce import Mean, Partial
from fedge.core.server_side import ServerSide
from fedge.core.slots import Slot


class Bad(NamedTuple):
    """A rejected answer: its cost and the reason."""

    answer: Answer  # without its upload
    bytes_up: int
    reason: str


class PartialReply(NamedTuple):
    """The answers of some clients to an exchange, reduced as far as possible without the others."""

    answers: list[Answer]  # without their uploads
    bytes_up: list[int]  # 0: the client stayed silent
    communicated: bool
    mean: Partial | None  # of the uploads; None: uploads are held one by one
    uploads: list[Tree]  # the held uploads
    directions: Tensor | None  # sum of the updates' directions, if requested
    num_directions: int
    bad: list[Bad]


class Reduction:
    """Checks and reduces the answers to one exchange.

    A mean is updated with each answer in the order given. Other reducers need all uploads at once, and if answers
    may be late, it is not yet known which will count: in both cases uploads are held until the reply and then reduced
    in client order.
    """

    def __init__(self, server: ServerSide, request: Request) -> None:
        self._server, self.request = server, request
        self._exchange, self._info = request.exchange, request.info
        self._work = server.algorithm.works[self._exchange.work]
        self._gate = Gate(server, request)
        self._reducer = self._exchange.reduce(server.algorithm.slots)
        streams = isinstance(self._reducer, Mean) and self._exchange.admit is None
        self._mean = self._reducer if isinstance(self._reducer, Mean) and streams else None
        self._answers: list[Answer] = []
        self._bytes_up: list[int] = []
        self._uploads: list[Tree] = []
        self._communicated = False
        self._directions: Tensor | None = None
        self._num_directions = 0
        self._bad: list[Bad] = []

    @property
    def holds(self) -> bool:
        """Whether uploads are held one by one until the reply."""
        return self._mean is None

    def receive(self, client: int, data: message.Buffer) -> bool:
        """Check and count a client's answer given as bytes; return whether it is accepted."""
        answer, reason = self._read(client, data)
        return self._reject(answer, len(data), reason) if reason else self.add(answer)

    def examine(self, client: int, data: message.Buffer) -> str | None:
        """Return the reason for rejecting a client's answer given as bytes; None if it would be accepted.

        Counts nothing. May be called from another thread before `receive`.
        """
        answer, reason = self._read(client, data)
        return reason or self._decode(answer)[1]

    def add(self, answer: Answer) -> bool:
        """Decode, check and count one answer; return whether it is accepted."""
        coded = answer.upload
        upload, reason = self._decode(answer)
        if reason:
            return self._reject(answer, _bytes_up([answer], coded)[0], reason)
        self._count([answer], coded, upload)
        if self._mean is None:
            self._uploads.append(upload)
        else:
            self._mean.add(upload, answer.samples)
            self._compare(upload)
        return True

    def _read(self, client: int, data: message.Buffer) -> tuple[Answer, str | None]:
        """Return the answer in a client's bytes, and the reason to reject it before its upload is decoded, or None."""
        try:
            given = Answer.read(*message.unpack(data, message.WorkAnswer))
        except StreamError as error:
            return Answer(client, 0, Effort(), {}), f"its answer cannot be read: {error}"
        foreign = f"it claims to be client {given.client}" if given.client != client else None
        return given._replace(client=client), foreign

    def _decode(self, answer: Answer) -> tuple[Tree, str | None]:
        """Return the decoded upload of an answer, and the reason to reject it, or None."""
        codec, coded = self._work.codec, answer.upload
        try:
            upload = codec.decode(coded, self._exchange.down) if codec and not answer.problem else coded
        except StreamError as error:
            return coded, f"its upload cannot be decoded: {error}"
        return upload, self._gate.problem(answer, upload)

    def add_rows(self, answers: Sequence[Answer], rows: Tree) -> None:
        """Check and count the answers of a block, whose unencoded uploads are rows."""
        bad = self._gate.problems_of_rows(answers, rows)
        if any(bad):
            coded = {name: value[0] for name, value in rows.items()}
            for answer, reason, num_bytes in zip(answers, bad, _bytes_up(answers, coded), strict=True):
                if reason:
                    self._reject(answer, num_bytes, reason)
            good = [i for i, reason in enumerate(bad) if not reason]
            answers, rows = [answers[i] for i in good], {name: value[good] for name, value in rows.items()}
            if not answers:
                return
        if self._mean is None:
            self._uploads += _divide(rows, len(answers))
        else:
            self._mean.add_rows(rows, [answer.samples for answer in answers])
        if not self._gate.looks_at_rows:
            self._check_finite(answers, rows)
        if self._mean is not None and self._server.compare_updates:
            for upload in _divide(rows, len(answers)):
                self._compare(upload)
        self._count(answers, {name: value[0] for name, value in rows.items()}, rows)

    def part(self) -> PartialReply:
        """Return everything counted so far, for another reduction to merge."""
        return PartialReply(
            self._answers,
            self._bytes_up,
            self._communicated,
            None if self._mean is None else self._mean.partial,
            self._uploads,
            self._directions,
            self._num_directions,
            self._bad,
        )

    def merge(self, part: PartialReply) -> None:
        """Add everything that another reduction has counted after what was counted here."""
        self._answers += part.answers
        self._bytes_up += part.bytes_up
        self._communicated |= part.communicated
        self._bad += part.bad
        if self._mean is not None and part.mean is not None:
            self._mean.merge(part.mean)
        self._uploads += part.uploads
        if part.directions is not None:
            self._directions = part.directions if self._directions is None else self._directions + part.directions
            self._num_directions += part.num_directions

    def reply(self) -> Reply:
        """Return the reply. Call once, after the last answer."""
        in_time, late = self._admit()
        for i in in_time if self.holds else ():
            self._reducer.add(self._uploads[i], self._answers[i].samples)
            self._compare(self._uploads[i])
        answers = [self._answers[i] for i in in_time]
        ids = tuple(answer.client for answer in answers)
        return Reply(
            value=self._reducer.value(),
            ids=ids,
            samples=np.array([answer.samples for answer in answers], np.int64),
            missing=tuple(sorted(set(self._exchange.cohort) - set(ids))),
            costs=self._costs(answers, [self._bytes_up[i] for i in in_time]),
            losses=np.array([answer.effort.loss for answer in answers], np.float64),
            communicated=self._communicated,
            cosine_distance=self._cosine_distance(),
            late=self._late(late),
            rejected=self._rejected(),
        )

    def _admit(self) -> tuple[list[int], list[int]]:
        """Return the positions of answers in time and of late answers, both in client order.

        `admit` also receives rejected answers, because their uploads took airtime.
        """
        order = sorted(range(len(self._answers)), key=lambda i: self._answers[i].client)
        admit = self._exchange.admit
        if admit is None or not (order or self._bad):
            return order, []
        known = [(self._answers[i], self._bytes_up[i], i) for i in order]
        known += [(bad.answer, bad.bytes_up, -1) for bad in self._bad]
        known.sort(key=lambda each: each[0].client)
        answers = [answer for answer, _, _ in known]
        admitted = admit(tuple(each.client for each in answers), self._costs(answers, [size for _, size, _ in known]))
        found = [(i, bool(ok)) for (_, _, i), ok in zip(known, admitted, strict=True) if i >= 0]
        return [i for i, ok in found if ok], [i for i, ok in found if not ok]

    def _late(self, which: Sequence[int]) -> Late | None:
        if not which:
            return None
        answers = [self._answers[i] for i in which]
        return Late(
            tuple(answer.client for answer in answers), self._costs(answers, [self._bytes_up[i] for i in which])
        )

    def _rejected(self) -> Rejected | None:
        if not self._bad:
            return None
        bad = sorted(self._bad, key=lambda each: each.answer.client)
        costs = self._costs([each.answer for each in bad], [each.bytes_up for each in bad])
        return Rejected(tuple(each.answer.client for each in bad), costs, tuple(each.reason for each in bad))

    def _costs(self, answers: Sequence[Answer], bytes_up: Sequence[int]) -> Costs:
        size_down = message.size(self.request.meta(), self.request.coded)
        bytes_down = [size_down if size_up else 0 for size_up in bytes_up]
        return costs_of(self._server, self._work, [answer.effort for answer in answers], bytes_down, bytes_up)

    def _reject(self, answer: Answer, bytes_up: int, reason: str) -> bool:
        """Reject an answer, or stop the run if the limits require it."""
        if self._server.limits.on_bad == "stop":
            raise TrainingError(f"round {self._info.round}, client {answer.client}: {reason}{_advice(answer, reason)}")
        # The claimed effort is not trustworthy, and may not even fit into an integer of 64 bits.
        self._bad.append(Bad(answer._replace(upload={}, effort=self._gate.believable(answer)), bytes_up, reason))
        return False

    def _check_finite(self, answers: Sequence[Answer], rows: Tree) -> None:
        """Stop the run if a value is not finite. Checking the mean, if there is one, is enough and far cheaper."""
        losses = [answer.effort.loss for answer in answers if answer.effort.batches]
        tree = rows if self._mean is None else self._mean.partial.means
        if np.isfinite(losses).all() and all(np.isfinite(value.numpy()).all() for value in tree.values()):
            return
        for answer, upload in zip(answers, _divide(rows, len(answers)), strict=True):
            if what := find_infinite(answer.effort, upload):
                self._reject(answer, 0, f"{what} is not finite")

    def _count(self, answers: Sequence[Answer], coded: Tree, upload: Tree) -> None:
        """Count answers encoded like `coded`; `upload` is the upload of one client, or has one row per client."""
        slots = self._server.algorithm.slots
        self._communicated |= any(slots[name].kind == "params" for name in upload)
        silent = find_silent(slots, upload, len(answers))
        self._bytes_up += [0 if i in silent else size for i, size in enumerate(_bytes_up(answers, coded))]
        self._answers += [answer._replace(upload={}) for answer in answers]

    def _compare(self, upload: Tree) -> None:
        """Add the direction of an update, if requested: the change in its first vector of parameters."""
        if not self._server.compare_updates:
            return
        slots = self._server.algorithm.slots
        name = next((n for n in upload if slots[n].kind == "params" and not slots[n].moment), None)
        if name is None:
            return
        anchor = slots[name].anchor
        change = (upload[name] if anchor is None else upload[name] - self._exchange.down[anchor]).double()
        if (length := change.norm()) > 0:  # an empty update has no direction
            direction = change / length
            self._directions = direction if self._directions is None else self._directions + direction
            self._num_directions += 1

    def _cosine_distance(self) -> float | None:
        """Return the mean of 1 - u.v over all pairs of n directions, from the length of their sum."""
        n = self._num_directions
        if self._directions is None or n < 2:
            return None
        return float(1 - (self._directions.square().sum() - n) / (n * (n - 1)))


def costs_of(
    server: ServerSide, work: Work, efforts: Sequence[Effort], bytes_down: Sequence[int], bytes_up: Sequence[int]
) -> Costs:
    """Return what an exchange with these efforts of clients costs each of them."""
    steps = np.array([effort.steps for effort in efforts], np.int64)
    grad_samples = np.array([effort.grad_samples for effort in efforts], np.int64)
    return Costs(
        bytes_down=np.array(bytes_down, np.int64),
        bytes_up=np.array(bytes_up, np.int64),
        steps=steps,
        batches=np.array([effort.batches for effort in efforts], np.int64),
        flops=grad_samples * server.flops_per_sample + steps * work.flops_per_param * server.layout.num_params,
        samples=grad_samples,
    )


def find_silent(slots: Mapping[str, Slot], upload: Tree, num_clients: int) -> set[int]:
    """Return the positions of clients that stayed silent: they upload 0 in a slot that declares `speaks`."""
    flags = [value for name, value in upload.items() if slots[name].speaks]
    return {i for flag in flags for i, row in enumerate(flag.reshape(num_clients, -1)) if not row.any()}


def _bytes_up(answers: Sequence[Answer], coded: Tree) -> list[int]:
    return message.sizes([answer.meta() for answer in answers], coded)


def _divide(rows: Tree, num_rows: int) -> list[Tree]:
    return [{name: value[i] for name, value in rows.items()} for i in range(num_rows)]


def _advice(answer: Answer, reason: str) -> str:
    """Return advice about an answer that stops a run."""
    if reason.endswith("is not finite"):
        return (
            f" (loss of the first step: {answer.effort.loss:g}). "
            "Training has diverged or the client's data is bad: lower algorithm.learning_rate or check the data"
        )
    return '. To continue without such answers, set reduce.on_bad = "reject"'
