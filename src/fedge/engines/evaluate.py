"""Evaluation in engines with blocks: clients in groups, and a test set in pieces.

Each measure has two halves: one divides the work and combines the results, the other is a task for a worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedge.client.evaluate import PIECE, has_data, measured_on, metrics_of, reached, score_piece, sums
from fedge.core.algorithm import Info
from fedge.core.errors import ConfigError
from fedge.core.layout import Tree
from fedge.core.question import Question, Sums, add_up, is_vector
from fedge.data.clients import Samples
from fedge.engines import block_work
from fedge.engines.blocks import Content, Workers, divide, read_kept
from fedge.engines.both_sides import BothSides
from fedge.engines.kernels.assemble import Batched

_CLIENTS = 32  # clients per task, if one model is evaluated for all

Meta = Mapping[str, Any]


def needed(test: Samples | None) -> Samples:
    """Return the server's test set. Raises ConfigError if it has none."""
    if test is None or not len(test):
        raise ConfigError('evaluate.at: the server has no test set; set evaluate.at = "clients"')
    return test


def evaluate_test(sides: BothSides, workers: Workers, variables: Tree) -> Sums:
    """Return the sums over the server's test set."""
    starts = range(0, len(needed(sides.test)), PIECE)
    found = workers.map("central", variables, (({"start": start}, {}) for start in starts))
    return add_up({**meta, **vectors} for meta, vectors in found)


def evaluate_clients(sides: BothSides, workers: Workers, question: Question, info: Info) -> dict[int, Sums]:
    """Return each client's answer to a question; clients without data for it are omitted."""
    clients, told = sides.clients, {**question.told(), **info.told()}
    if question.measure in ("test", "train", "validation"):
        items: Iterator[Content] = (({"clients": part, **told}, {}) for part in _parts(question.clients, _CLIENTS))
        return _by_client(workers.map("common", question.down, items))
    work = clients.algorithm.adapt if question.measure == "user" else clients.algorithm.works[question.work or ""]
    able = [client for client in question.clients if work and has_data(clients, client)]
    others = [client for client in question.clients if client not in set(able)]
    blocks = [(block, True) for block in divide(clients, work, able, info, workers)] if work else []
    blocks += [(block, False) for block in _parts(others, workers.num_rows)]
    items = (({"clients": block, "works": works, **told}, read_kept(clients, block)) for block, works in blocks)
    return _by_client(workers.map("own", question.down, items))


def measure_central(sides: BothSides, batched: Batched, shared: Tree, meta: Meta, tensors: Tree) -> Content:
    """Perform a task of `evaluate_test`: one piece of the test set."""
    found = score_piece(sides.clients.network, shared, needed(sides.test), meta["start"], sides.clients.metrics)
    numbers = {name: value for name, value in found.items() if not is_vector(name)}
    return numbers, {name: value for name, value in found.items() if is_vector(name)}


def measure_common(sides: BothSides, batched: Batched, shared: Tree, meta: Meta, tensors: Tree) -> Content:
    """Perform a task of `evaluate_clients` with one model for all: one pass over the data of some clients."""
    clients, network, round = sides.clients, sides.clients.network, meta["round"]
    looked = ((client, measured_on(clients.data, meta["measure"], client, round)) for client in meta["clients"])
    sets = {client: samples for client, samples in looked if len(samples)}
    if not sets:
        return _columns({})
    together = network.cast(Samples(*(torch.cat(side) for side in zip(*sets.values(), strict=True))))
    lengths = [len(samples) for samples in sets.values()]
    parts = zip(*(torch.split(side, lengths) for side in (network.outputs(shared, together.x), *together)), strict=True)
    metrics = metrics_of(clients, meta["measure"])
    found = [sums(network, outputs, Samples(x, y), metrics) for outputs, x, y in parts]
    return _columns(dict(zip(sets, found, strict=True)))


def measure_own(sides: BothSides, batched: Batched, shared: Tree, meta: Meta, tensors: Tree) -> Content:
    """Perform a task of `evaluate_clients` with a model per client: a block of clients."""
    clients, algorithm = sides.clients, sides.clients.algorithm
    ids, info = meta["clients"], Info(**{name: meta[name] for name in Info._fields if name != "cohort"})
    if meta["measure"] == "trained":
        work = reached(algorithm.works[meta["work"]])
        variables = block_work.perform(clients, batched, work, ids, shared, tensors, info, "trained")[0]
    else:
        variables = algorithm.personal(shared, tensors) if algorithm.personal else shared
        if meta["works"] and algorithm.adapt:
            variables = block_work.perform(clients, batched, algorithm.adapt, ids, variables, {}, info, "adapt")[0]
    tests = [clients.network.cast(clients.data.test(client, info.round)) for client in ids]
    outputs = _outputs(batched, clients.network.place(variables), [test.x for test in tests])
    each = zip(ids, outputs, tests, strict=True)
    return _columns({client: sums(clients.network, out, test) for client, out, test in each if len(test)})


def _outputs(batched: Batched, variables: Tree, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return each client's outputs for its inputs. Inputs are padded, which has no effect in evaluation mode."""
    x, stats = (block_work.as_rows(variables[name], len(inputs)) for name in ("x", "stats"))
    longest = max(len(each) for each in inputs)
    padded = inputs[0].new_zeros(len(inputs), longest, *inputs[0].shape[1:])
    for row, each in zip(padded, inputs, strict=True):
        row[: len(each)] = each
    width = max(1, PIECE // len(inputs))
    parts = [batched.outputs(x, stats, part) for part in torch.split(padded, width, 1)]
    together = torch.cat(parts, 1) if parts else padded
    return [row[: len(each)] for row, each in zip(together, inputs, strict=True)]


def _columns(found: Mapping[int, Sums]) -> Content:
    """Return the sums of some clients in serialisable form: scalars as columns, vectors as rows."""
    names = next(iter(found.values()), {})
    columns = {name: [each[name] for each in found.values()] for name in names}
    numbers = {name: column for name, column in columns.items() if not is_vector(name)}
    rows = {name: torch.stack(column) for name, column in columns.items() if is_vector(name)}
    return {"clients": list(found), "sums": numbers}, rows


def _by_client(results: Iterable[Content]) -> dict[int, Sums]:
    found: dict[int, Sums] = {}
    for meta, rows in results:
        vectors = {name: row.clone() for name, row in rows.items()}  # the next results overwrite this memory
        for i, client in enumerate(meta["clients"]):
            found[client] = {name: values[i] for name, values in (*meta["sums"].items(), *vectors.items())}
    return dict(sorted(found.items()))


def _parts(clients: Sequence[int], size: int) -> list[list[int]]:
    return [list(clients[start : start + size]) for start in range(0, len(clients), size)]
