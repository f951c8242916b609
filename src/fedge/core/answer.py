"""The contents of an exchange: a request to a cohort, and each client's answer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from fedge.core.algorithm import Exchange, Info, Work
from fedge.core.effort import Effort
from fedge.core.errors import TrainingError
from fedge.core.keys import generator, shared_generator
from fedge.core.layout import Tree
from fedge.core.message import WorkAnswer, WorkRequest
from fedge.core.placement import settle

_PART = 1 << 18  # number of values that fit in the cache


class Request(NamedTuple):
    """A request to a cohort. `exchange.down` is what clients decode; `coded` is its encoded form, which travels."""

    exchange: Exchange
    info: Info
    coded: Tree

    def meta(self) -> WorkRequest:
        """Return the metadata that travels with `coded`."""
        return WorkRequest(self.exchange.work, **self.info.told())


class Answer(NamedTuple):
    """One client's answer to one exchange. After `seal`, the upload is in its encoded form."""

    client: int
    samples: int
    effort: Effort
    upload: Tree
    problem: str = ""  # why the client has no valid upload; empty: it has one

    def meta(self) -> WorkAnswer:
        """Return the metadata that travels with the upload."""
        return WorkAnswer(self.client, self.samples, *self.effort, self.problem)

    @staticmethod
    def read(meta: WorkAnswer, upload: Tree) -> Answer:
        """Return the answer made of received metadata and upload."""
        effort = Effort(meta.steps, meta.batches, meta.grad_samples, meta.loss)
        return Answer(meta.client, meta.samples, effort, upload, meta.problem)


def send(exchange: Exchange, info: Info, work: Work) -> Request:
    """Return the request for an exchange, encoded for its cohort; raises TrainingError if a value is not finite."""
    codec = work.down_codec
    if codec is None:
        exchange = exchange._replace(down=settle(exchange.down))
        return Request(exchange, info, exchange.down)
    for name, value in exchange.down.items():
        if not _is_finite(value):
            raise TrainingError(
                f"round {info.round}: {name!r} of the server is not finite. "
                "Training has diverged: lower algorithm.learning_rate"
            )
    coded = codec.encode(exchange.down, {}, generator(info.seed, f"codec/{exchange.work}/down", round=info.round))
    return Request(exchange._replace(down=settle(codec.decode(coded, {}))), info, coded)


def seal(work: Work, name: str, answer: Answer, down: Tree, info: Info) -> Answer:
    """Return an answer with its upload encoded by the work's codec.

    If the upload is not finite or cannot be encoded, the answer carries the problem in its place.
    """
    if work.codec is None:
        return answer
    if found := find_infinite(answer.effort, answer.upload):
        return answer._replace(upload={}, problem=f"{found} is not finite")
    rng = shared_generator(info.seed, f"codec/{name}/up", answer.client, info.round)
    try:
        return answer._replace(upload=work.codec.encode(answer.upload, down, rng))
    except TrainingError as error:
        return answer._replace(upload={}, problem=str(error))


def find_infinite(effort: Effort, upload: Tree) -> str | None:
    """Return which part of an answer is not finite, the loss or one of its vectors; None if everything is finite."""
    if effort.batches and not np.isfinite(effort.loss):
        return "the loss"
    return next((f"the upload {name!r}" for name, value in upload.items() if not _is_finite(value)), None)


def _is_finite(value: Tensor) -> bool:
    """Check a tensor in parts: numpy is far faster than torch on a fresh buffer, but returns one byte per value."""
    flat = value.numpy().reshape(-1)
    return all(np.isfinite(flat[start : start + _PART]).all() for start in range(0, len(flat), _PART))
