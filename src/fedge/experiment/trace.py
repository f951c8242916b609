"""Traces of what happens inside a round, on request: step by step and layer by layer.

A client's work is pure, and its randomness depends only on its purpose. The work of a client can therefore be replayed
before the round and measured without any effect on the engine or the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd
from torch.utils.hooks import RemovableHandle

from fedge.client.client_side import ClientSide
from fedge.client.evaluate import score
from fedge.client.network import Network
from fedge.client.perform import LocalStep, perform
from fedge.config import TraceOptions
from fedge.core.algorithm import Info
from fedge.core.answer import send
from fedge.core.drive import first_exchange
from fedge.core.layout import Layout, Tree
from fedge.core.question import means
from fedge.data.clients import Samples

Line = dict[str, Any]
Group = Literal["all", "clean", "noisy"]

_CHANNELS_FIRST = (_ConvNd, _NormBase, nn.GroupNorm)
_WHOLE = "model"  # the name of a layer that is the model itself


class Replay(NamedTuple):
    """A replay of a client's work in a round."""

    client: int
    group: Group
    steps: list[Line]
    start: Tensor  # its weights before training
    model: Tree  # after it


class Tracer:
    """Traces rounds as configured."""

    def __init__(self, options: TraceOptions, side: ClientSide) -> None:
        self._options, self._side = options, side

    @cached_property
    def _pooled_test(self) -> Samples:
        return self._side.data.pooled_test()

    def replay(self, state: Tree, info: Info) -> list[Replay]:
        """Replay the work of the traced clients before the round is run; empty if the round is not traced."""
        if info.round % self._options.every:
            return []
        noisy = set(self._side.data.noisy.tolist())
        # Ordered by group, so that an even spread includes both.
        cohort = sorted((c for c in info.cohort if self._side.data.sizes[c]), key=lambda c: (c in noisy, c))
        groups: dict[int, Group] = {c: ("noisy" if c in noisy else "clean") if noisy else "all" for c in cohort}
        replays = (self._replay(state, info, c, groups[c]) for c in spread(cohort, self._options.clients))
        return [found for found in replays if found is not None]

    def lines(self, state: Tree, info: Info, replays: Sequence[Replay]) -> Iterator[Line]:
        """Yield all lines of a round, after it was run and resulted in `state`."""
        for replay in replays:
            yield from replay.steps
        shared = self._side.algorithm.model(state, self._side.network.variables)
        for replay in replays:
            if measured := self._aggregation(shared, info, replay):
                yield {**_heading("aggregation", info, replay.client, replay.group), **measured}
        if self._options.cosine_distance and len(replays) > 1:
            layout = self._side.algorithm.travels or self._side.network.layout
            changes = (replay.model["x"] - replay.start for replay in replays)
            updates = [self._side.network.layout.take(change, layout, "params") for change in changes]
            layers = {name: cosine_distance([u[part] for u in updates]) for name, part in layer_slices(layout).items()}
            whole = cosine_distance(updates)
            yield {"kind": "updates", "round": info.round, "cosine_distance": whole, "layers": layers}

    def _replay(self, state: Tree, info: Info, client: int, group: Group) -> Replay | None:
        """Replay one client; None if the round starts with something other than training."""
        exchange = first_exchange(self._side.algorithm, state, info._replace(cohort=(client,)))
        work = self._side.algorithm.works[exchange.work]
        if not work.trains:
            return None
        watch = _Watch(self._side, self._sets(client, info), self._options.gradients)
        down = send(exchange, info, work).exchange.down
        perform(self._side, work, client, down, self._side.kept.read(client), info, observe=watch)
        heading = _heading("step", info, client, group)
        return Replay(client, group, [{**heading, **step} for step in watch.steps], watch.start, watch.model)

    def _sets(self, client: int, info: Info) -> dict[str, Samples]:
        """Return the samples on which accuracy is measured, by field name; empty for regression."""
        if self._side.network.task == "values":
            return {}
        sets = {}
        if self._options.user_accuracy:
            sets["user_accuracy"] = self._side.data.test(client, info.round)
        if self._options.train_accuracy:
            sets["train_accuracy"] = self._side.data.train(client, info.round)
        if self._options.accuracy:
            sets["accuracy"] = self._pooled_test
        return {name: samples for name, samples in sets.items() if len(samples)}

    def _aggregation(self, shared: Tree, info: Info, replay: Replay) -> Line:
        """Measure how a client's model after the round differs from the one that it reached by local training."""
        personal, kept = self._side.algorithm.personal, self._side.kept.read(replay.client)
        model = personal(shared, kept) if personal else shared
        measured = _accuracies(self._side.network, model, self._sets(replay.client, info))
        test = self._side.network.cast(self._side.data.test(replay.client, info.round))
        if self._options.activations and len(test):
            before, after = (activations(self._side.network, variables, test.x) for variables in (replay.model, model))
            measured["activations"] = {name: moments.change(after[name]) for name, moments in before.items()}
        return measured


class _Watch:
    """An observer that measures a client's model after every step."""

    def __init__(self, side: ClientSide, sets: Mapping[str, Samples], gradients: bool) -> None:
        self._network, self._sets = side.network, sets
        self._layers = layer_slices(side.network.layout) if gradients else {}
        self.steps: list[Line] = []
        self.start = side.network.variables["x"]
        self.model = side.network.variables

    def __call__(self, step: LocalStep) -> None:
        self.model = {"x": step.local["y"], "stats": step.local["stats"]}
        if step.number == 0:
            self.start = step.local["y"]
        measured = _accuracies(self._network, self.model, self._sets)
        if self._layers and step.gradient is not None:
            measured["loss"] = None if step.loss is None else float(step.loss)
            measured["gradient"] = {name: _length(step.gradient[part]) for name, part in self._layers.items()}
        if measured:
            self.steps.append({"step": step.number, **measured})


class Moments:
    """Mean and variance of each neuron or channel of a layer, over samples and positions."""

    def __init__(self) -> None:
        self._count, self._sum, self._squares = 0, Tensor(), Tensor()

    def add(self, rows: Tensor) -> None:
        """Add outputs `[n, neurons]`."""
        rows = rows.double()
        total, squares = rows.sum(0), rows.square().sum(0)
        self._sum, self._squares = (self._sum + total, self._squares + squares) if self._count else (total, squares)
        self._count += len(rows)

    @property
    def mean(self) -> Tensor:
        return self._sum / self._count

    @property
    def variance(self) -> Tensor:
        return (self._squares / self._count - self.mean.square()).clamp(min=0)

    def change(self, after: Moments) -> dict[str, float]:
        """Return the mean absolute changes over neurons, and the variance before, for scale."""
        return {
            "mean_change": float((after.mean - self.mean).abs().mean()),
            "variance_change": float((after.variance - self.variance).abs().mean()),
            "variance": float(self.variance.mean()),
        }


def activations(network: Network, variables: Tree, x: Tensor) -> dict[str, Moments]:
    """Return moments of the outputs of every layer with parameters, in evaluation mode, before any nonlinearity."""
    found: dict[str, Moments] = {}

    def listen(name: str, layer: nn.Module) -> RemovableHandle:
        def note(_: nn.Module, __: Any, output: Any) -> None:
            output = output[0] if isinstance(output, tuple) else output  # recurrent layers: (outputs, last state)
            rows = output.movedim(1, -1) if isinstance(layer, _CHANNELS_FIRST) else output
            found.setdefault(name or _WHOLE, Moments()).add(rows.reshape(-1, rows.shape[-1]))

        return layer.register_forward_hook(note)

    layers = [(name, part) for name, part in network.module.named_modules() if list(part.parameters(recurse=False))]
    hooks = [listen(name, layer) for name, layer in layers]
    try:
        network.outputs(variables, x)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def layer_slices(layout: Layout) -> dict[str, slice]:
    """Return the slice of each layer in a vector of parameters; the tensors of a layer are adjacent."""
    found: dict[str, slice] = {}
    for entry in layout.params:
        name = entry.name.rpartition(".")[0] or _WHOLE
        found[name] = slice(found[name].start if name in found else entry.start, entry.stop)
    return found


def cosine_distance(updates: Sequence[Tensor]) -> float:
    """Return the mean of 1 - cosine over all pairs, from the norm of the sum of directions; a zero has cosine 0."""
    n, total, own = len(updates), torch.zeros_like(updates[0], dtype=torch.float64), 0.0
    for update in updates:
        direction = nn.functional.normalize(update.double(), dim=0, eps=torch.finfo(torch.float64).tiny)
        total += direction
        own += float(direction.square().sum())
    return 1 - (float(total.square().sum()) - own) / (n * (n - 1))


def spread(cohort: Sequence[int], count: int) -> list[int]:
    """Return `count` members of the cohort at even distances, including the first and the last."""
    last, gaps = len(cohort) - 1, max(1, count - 1)
    return list(cohort) if count > last else [cohort[i * last // gaps] for i in range(count)]


def _accuracies(network: Network, model: Tree, sets: Mapping[str, Samples]) -> Line:
    return {name: means(score(network, model, samples))["accuracy"] for name, samples in sets.items()}


def _length(vector: Tensor) -> float:
    return float(vector.double().norm())


def _heading(kind: str, info: Info, client: int, group: Group) -> Line:
    return {"kind": kind, "round": info.round, "client": client, "group": group}
