"""The client's side of a wire: bytes in, bytes out. Names and numbers cross it, never code.

The server may be broken or hostile, so a request is checked against the client's own algorithm, model and data before
it is processed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite
from typing import NamedTuple

from torch import Tensor

from fedge.client.answer import answer
from fedge.client.client_side import ClientSide
from fedge.client.evaluate import has_data, measure
from fedge.client.perform import Observer
from fedge.core import message
from fedge.core.algorithm import Info
from fedge.core.errors import StreamError
from fedge.core.layout import Kind, Layout, Tree
from fedge.core.message import EvaluationAnswer, EvaluationRequest, WorkAnswer, WorkRequest
from fedge.core.question import Question, write_sums

MAX_AMOUNT = 1_000_000
"""The largest number of steps or epochs in one request."""
_MAX_NUMBER = 1 << 32  # of a round, and of clients
_VARIABLES: dict[str, Kind] = {"x": "params", "stats": "stats"}


class Served(NamedTuple):
    """A client's encoded reply to a message, and the private state to store if the server accepts the reply."""

    data: bytes
    kept: Tree | None = None


class Response(NamedTuple):
    """A client's reply before encoding (meta and tree), and the private state to store if the server accepts it."""

    meta: WorkAnswer | EvaluationAnswer
    tree: Tree
    kept: Tree | None = None


REQUESTS = WorkRequest, EvaluationRequest
"""The types of messages that a server may send."""


def serve(side: ClientSide, client: int, request: bytes) -> Served:
    """Answer a request for work or evaluation. Raises StreamError if it is neither, or does not fit the client."""
    opened: tuple[WorkRequest | EvaluationRequest, Tree] = message.unpack(request, REQUESTS)
    response = respond(side, client, *opened)
    return Served(message.pack(response.meta, response.tree), response.kept)


def respond(
    side: ClientSide, client: int, meta: WorkRequest | EvaluationRequest, down: Tree, observe: Observer | None = None
) -> Response:
    """Answer a decoded request for work or evaluation. Raises StreamError if it does not fit the client.

    The observer is called at every local step; an exception that it raises ends the work.
    """
    info = Info(**{name: getattr(meta, name) for name in Info._fields if name != "cohort"})
    _check_info(info)
    if meta.work is not None:
        if meta.work not in side.algorithm.works:
            raise StreamError(f"expected one of the works {', '.join(side.algorithm.works)}, got {meta.work[:64]!r}")
        if (codec := side.algorithm.works[meta.work].down_codec) is not None:
            down = codec.decode(down, {})
    if isinstance(meta, EvaluationRequest):
        _check_question(side, client, meta, down)
        with _as_refusals():
            sums = measure(side, client, Question(meta.measure, down, (client,), meta.work), info)
        return Response(EvaluationAnswer(client), write_sums(sums))
    _check_work(side, client, down)
    with _as_refusals():
        given, kept = answer(side, client, meta.work, down, info, observe)
    return Response(given.meta(), given.upload, kept)


def _check_info(info: Info) -> None:
    """Raise a StreamError for numbers that no valid server sends."""
    amounts = [amount for amount in (info.num_steps, info.num_epochs) if amount is not None]
    if len(amounts) != 1 or not 1 <= amounts[0] <= MAX_AMOUNT:
        raise StreamError(
            f"expected num_steps or num_epochs from 1 to {MAX_AMOUNT}, got {info.num_steps} and {info.num_epochs}"
        )
    if not (0 <= info.round < _MAX_NUMBER and 1 <= info.num_clients < _MAX_NUMBER):
        raise StreamError(f"expected a round and a number of clients, got {info.round} and {info.num_clients}")
    if not (isfinite(info.rate) and isfinite(info.server_rate)):
        raise StreamError(f"expected finite learning rates, got {info.rate} and {info.server_rate}")


def _check_question(side: ClientSide, client: int, meta: EvaluationRequest, down: Tree) -> None:
    if meta.measure == "trained":
        if meta.work is None or not side.algorithm.works[meta.work].trains:
            raise StreamError(f"expected a work that trains a model, got {meta.work}")
        _check_work(side, client, down)
        return
    if not down.keys() >= _VARIABLES.keys():
        raise StreamError(f"expected the variables of a model, x and stats, got {', '.join(down)[:256]}")
    for name, value in down.items():
        group, _, own = name.rpartition(".")  # several models are sent as the rows of a group
        kind = _VARIABLES.get(own)
        rows = value[0] if group and value.dim() == 2 and len(value) else value
        _check_form(side, side.network.layout, name, rows, kind)


def _check_work(side: ClientSide, client: int, down: Tree) -> None:
    """Raise a StreamError if names, shapes or dtypes of a download differ from what the algorithm declares."""
    if not has_data(side, client):
        raise StreamError(f"client {client} has no training sample, so it cannot be asked for work")
    slots, layout = side.algorithm.slots, side.algorithm.travels or side.network.layout
    for name, value in down.items():
        _check_form(side, layout, name, value, slots[name].kind if name in slots else None)


def _check_form(side: ClientSide, layout: Layout, name: str, value: Tensor, kind: Kind | None) -> None:
    if kind is None:
        raise StreamError(f"{name[:64]!r} was sent, but this algorithm has no such vector")
    expected = (layout.size(kind),)
    if value.shape != expected or (kind != "scalar" and value.dtype != side.network.dtype):
        raise StreamError(
            f"expected {name!r} as {side.network.dtype} of shape {list(expected)}, "
            f"got {value.dtype} of shape {list(value.shape)}"
        )


@contextmanager
def _as_refusals() -> Iterator[None]:
    """Turn a failed lookup into a StreamError: the server did not send a vector that the algorithm needs."""
    try:
        yield
    except (KeyError, IndexError) as error:
        raise StreamError(
            f"the request lacks a vector that the algorithm needs ({error!r}); "
            "give server and client the same configuration"
        ) from error
