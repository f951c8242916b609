"""The gate: accepts or rejects each answer on its own, after checking every number in it.

A client may be broken or hostile, so the server uses no part of an answer before checking it against what it knows:
the names, dtypes and shapes that the algorithm's work produces, the samples that the client registered, and the work
that was requested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isfinite, isnan

import torch

from fedge.core import message
from fedge.core.answer import Answer, Request, find_infinite
from fedge.core.codecs.codec import RESIDUAL
from fedge.core.effort import Effort, most_effort
from fedge.core.errors import StreamError
from fedge.core.layout import Tree
from fedge.core.metric_set import NO_METRICS, MetricSet
from fedge.core.placement import dtype_name
from fedge.core.question import WITH_METRICS, Measure, Sums, is_vector, read_sums
from fedge.core.registered import RegisteredClients
from fedge.core.server_side import ServerSide

_LONGEST_REPORT = 200  # characters of a problem that a client reports
_MOST_LOSS = torch.finfo(torch.float32).max  # per sample, so that the sum over many clients is finite
_COUNTS = ("steps", "batches", "grad_samples")
_SUMS = {"classes": {"count", "loss", "correct"}, "labels": {"count", "loss", "correct"}, "values": {"count", "loss"}}


class Gate:
    """Checks the answers to one request. Reasons are phrased to follow "client 3: "."""

    def __init__(self, server: ServerSide, request: Request) -> None:
        self._server, self._down, self._info = server, request.exchange.down, request.info
        self._work = server.algorithm.works[request.exchange.work]
        self._rehearsed = server.rehearse(request.exchange, request.info)
        self._forms = {
            name: (value.dtype, value.shape)
            for name, value in self._rehearsed.upload.items()
            if not name.startswith(f"{RESIDUAL}.")  # the codec removes residuals
        }
        self._most: dict[int, Effort] = {}  # by the size of a client
        self.looks_at_rows = server.limits.on_bad == "reject" or server.limits.max_norm is not None
        """Whether the uploads of a block are checked one by one before they are reduced."""

    def problem(self, answer: Answer, upload: Tree) -> str | None:
        """Return the reason for rejecting an answer with this decoded upload; None if it is accepted."""
        return (
            self._problem_of_claims(answer)
            or self._problem_of_forms(upload)
            or _not_finite(answer.effort, upload)
            or self._problem_of_norms(upload)
        )

    def problems_of_rows(self, answers: Sequence[Answer], rows: Tree) -> list[str | None]:
        """Like `problem`, for the clients of a block, whose uploads are rows."""
        if problem := self._problem_of_forms(rows, leading=1):
            return [problem] * len(answers)
        found = [self._problem_of_claims(answer) for answer in answers]
        if not self.looks_at_rows:
            return found
        for i, answer in enumerate(answers):
            upload = {name: value[i] for name, value in rows.items()}
            found[i] = found[i] or _not_finite(answer.effort, upload) or self._problem_of_norms(upload)
        return found

    def believable(self, answer: Answer) -> Effort:
        """Return the claimed effort of an answer, limited to the requested work."""
        most = self._most_effort(answer.client)
        counts = {name: min(max(0, getattr(answer.effort, name)), getattr(most, name)) for name in _COUNTS}
        return answer.effort._replace(**counts)

    def _problem_of_claims(self, answer: Answer) -> str | None:
        """Return what is wrong with a client's claims about its samples and effort; None if they are plausible."""
        if answer.problem:
            return f"it reports that {answer.problem[:_LONGEST_REPORT]}"
        registered = int(self._server.clients.sizes[answer.client])
        if not 0 < answer.samples <= registered:
            return f"it claims {answer.samples} samples, expected 1 to {registered}, the number it registered"
        most = self._most_effort(answer.client)
        for name in _COUNTS:
            claimed, allowed = getattr(answer.effort, name), getattr(most, name)
            if not 0 <= claimed <= allowed:
                return f"it claims {claimed} {name}, expected at most {allowed}"
        loss = answer.effort.loss
        if not answer.effort.batches and not isnan(loss):
            return f"it claims the loss {loss:g} without a gradient"
        if _MOST_LOSS < abs(loss) < inf:
            return f"it claims the loss {loss:g}, expected at most {_MOST_LOSS:g}"
        return None

    def _problem_of_forms(self, upload: Tree, leading: int = 0) -> str | None:
        """Return how names, dtypes or shapes (after `leading` dimensions) differ from what the work produces."""
        if upload.keys() != self._forms.keys():
            return f"its upload has {_names(upload)}, expected {_names(self._forms)}"
        for name, (dtype, shape) in self._forms.items():
            found = upload[name].shape[leading:]
            if upload[name].dtype != dtype or found != shape:
                got = _form(upload[name].dtype, found)
                return f"the upload {name!r} is {got}, expected {_form(dtype, shape)}"
        return None

    def _problem_of_norms(self, upload: Tree) -> str | None:
        most, slots = self._server.limits.max_norm, self._server.algorithm.slots
        if most is None:
            return None
        for name, value in upload.items():
            if slots[name].kind == "scalar":
                continue
            anchor = slots[name].anchor
            change = value if anchor is None else value.double() - self._down[anchor]
            norm = float(torch.linalg.vector_norm(change, dtype=torch.float64))
            if not norm <= most:
                return f"the change of {name!r} has the norm {norm:.6g}, expected at most reduce.max_norm = {most:g}"
        return None

    def _most_effort(self, client: int) -> Effort:
        server, size = self._server, int(self._server.clients.sizes[client])
        if size not in self._most:
            self._most[size] = most_effort(
                self._work, self._rehearsed.gradients, self._info, size, server.batch_size, server.drop_single
            )
        return self._most[size]


def read_evaluation(client: int, data: bytes) -> Sums | str | None:
    """Return the sums in a client's bytes, or the reason for rejecting them; None if it has no such data."""
    try:
        meta, tree = message.unpack(data, message.EvaluationAnswer)
        sums = read_sums(tree)
    except StreamError as error:
        return f"its answer cannot be read: {error}"
    return sums if meta.client == client else f"it claims to be client {meta.client}"


def problem_of_sums(
    clients: RegisteredClients, client: int, measure: Measure, sums: Sums, metrics: MetricSet = NO_METRICS
) -> str | None:
    """Return the reason for rejecting a client's evaluation answer; None if it is accepted."""
    metrics = metrics if measure in WITH_METRICS else NO_METRICS
    expected = _SUMS[clients.task] | metrics.lengths.keys()
    if sums.keys() != expected:
        return f"its sums are {_names(sums)}, expected {_names(expected)}"
    numbers = {name: value for name, value in sums.items() if not is_vector(name)}
    told = ", ".join(f"{name} {value:g}" for name, value in sorted(numbers.items()))
    if not all(map(isfinite, numbers.values())):
        return f"its sums are not finite: {told}"
    registered = {"train": clients.sizes, "validation": clients.validation_sizes}
    sizes = registered.get(measure, clients.test_sizes)
    most = inf if sizes is None else float(sizes[client])
    count, correct = sums["count"], sums.get("correct", 0.0)
    if not (count.is_integer() and 1 <= count <= most):
        return f"its sums are impossible: {told}; expected a count from 1 to {most:g}"
    if not (0 <= correct <= count and 0 <= sums["loss"] <= count * _MOST_LOSS):
        return f"its sums are impossible: {told}; expected 0 <= correct <= count and a loss that is not negative"
    return metrics.problem(sums, count)


def _not_finite(effort: Effort, upload: Tree) -> str | None:
    found = find_infinite(effort, upload)
    return None if found is None else f"{found} is not finite"


def _names(names: Mapping[str, object] | set[str]) -> str:
    return ", ".join(sorted(repr(name[:64]) for name in names)[:16]) or "nothing"


def _form(dtype: torch.dtype, shape: Sequence[int]) -> str:
    return f"{dtype_name(dtype)}{list(shape)}"
