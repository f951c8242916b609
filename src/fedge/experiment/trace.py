"""What happens inside a round, on request: step by step and layer by layer.

A client's work is pure, and its randomness hangs on nothing but what it is for. So what a client is about to do can be
done beforehand, looked at, and forgotten: no engine knows of it, and nothing of the run changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd
from torch.utils.hooks import RemovableHandle

from fedge.client.network import Network
from fedge.config import TraceOptions
from fedge.core.algorithm import Info
from fedge.core.drive import first_exchange
from fedge.core.layout import Layout, Tree
from fedge.data.clients import Samples
from fedge.engines.evaluate import score
from fedge.engines.job import Job
from fedge.engines.loop import LocalStep, perform

Line = dict[str, Any]
Group = Literal["all", "clean", "noisy"]

_CHANNELS_FIRST = (_ConvNd, _NormBase, nn.GroupNorm)
_WHOLE = "model"  # the name of a layer that is the model itself


class Replay(NamedTuple):
    """What a client is about to do in a round."""

    client: int
    group: Group
    steps: list[Line]
    start: Tensor  # its weights before training
    model: Tree  # after it


class Tracer:
    """Looks at what happens inside rounds, as the options ask."""

    def __init__(self, options: TraceOptions) -> None:
        self._options = options

    def replay(self, job: Job, state: Tree, info: Info) -> list[Replay]:
        """What the traced clients are about to do, before the round is run; none if the round is not traced."""
        if info.round % self._options.every:
            return []
        noisy = set(job.clients.noisy.tolist())
        # Ordered by group, so that an even spread has some of both.
        cohort = sorted((c for c in info.cohort if job.clients.sizes[c]), key=lambda c: (c in noisy, c))
        groups: dict[int, Group] = {c: ("noisy" if c in noisy else "clean") if noisy else "all" for c in cohort}
        replays = (self._replay(job, state, info, c, groups[c]) for c in spread(cohort, self._options.clients))
        return [found for found in replays if found is not None]

    def lines(self, job: Job, state: Tree, info: Info, replays: Sequence[Replay]) -> Iterator[Line]:
        """All that was seen in a round, now that it was run and has led to `state`."""
        for replay in replays:
            yield from replay.steps
        shared = job.algorithm.model(state, job.network.variables)
        for replay in replays:
            if measured := self._aggregation(job, shared, info, replay):
                yield {**_heading("aggregation", info, replay.client, replay.group), **measured}
        if self._options.cosine_distance and len(replays) > 1:
            layout = job.algorithm.travels or job.network.layout
            changes = (replay.model["x"] - replay.start for replay in replays)
            updates = [job.network.layout.take(change, layout, "params") for change in changes]
            layers = {name: cosine_distance([u[part] for u in updates]) for name, part in layer_slices(layout).items()}
            whole = cosine_distance(updates)
            yield {"kind": "updates", "round": info.round, "cosine_distance": whole, "layers": layers}

    def _replay(self, job: Job, state: Tree, info: Info, client: int, group: Group) -> Replay | None:
        """None if the round starts with something other than training."""
        exchange = first_exchange(job.algorithm, state, info._replace(cohort=(client,)))
        work = job.algorithm.works[exchange.work]
        if not work.trains:
            return None
        watch = _Watch(job, self._sets(job, client, info), self._options.gradients)
        down = job.send(exchange, info).exchange.down
        perform(job, work, client, down, job.kept.read(client), info, observe=watch)
        heading = _heading("step", info, client, group)
        return Replay(client, group, [{**heading, **step} for step in watch.steps], watch.start, watch.model)

    def _sets(self, job: Job, client: int, info: Info) -> dict[str, Samples]:
        """What a model's accuracy is measured on, by the name of the field; of values there is none."""
        if job.network.task == "values":
            return {}
        sets = {}
        if self._options.user_accuracy:
            sets["user_accuracy"] = job.clients.test(client, info.round)
        if self._options.train_accuracy:
            sets["train_accuracy"] = job.clients.train(client, info.round)
        if self._options.accuracy:
            sets["accuracy"] = job.clients.pooled_test()
        return {name: samples for name, samples in sets.items() if len(samples)}

    def _aggregation(self, job: Job, shared: Tree, info: Info, replay: Replay) -> Line:
        """How the model that a client has after the round differs from the one that it had reached by itself."""
        personal, kept = job.algorithm.personal, job.kept.read(replay.client)
        model = personal(shared, kept) if personal else shared
        measured = _accuracies(job, model, self._sets(job, replay.client, info))
        test = job.network.cast(job.clients.test(replay.client, info.round))
        if self._options.activations and len(test):
            before, after = (activations(job.network, variables, test.x) for variables in (replay.model, model))
            measured["activations"] = {name: moments.change(after[name]) for name, moments in before.items()}
        return measured


class _Watch:
    """An observer that notes what a client's model is like after every step, if there is something to note."""

    def __init__(self, job: Job, sets: Mapping[str, Samples], gradients: bool) -> None:
        self._job, self._sets = job, sets
        self._layers = layer_slices(job.network.layout) if gradients else {}
        self.steps: list[Line] = []
        self.start = job.network.variables["x"]
        self.model = job.network.variables

    def __call__(self, step: LocalStep) -> None:
        self.model = {"x": step.local["y"], "stats": step.local["stats"]}
        if step.number == 0:
            self.start = step.local["y"]
        measured = _accuracies(self._job, self.model, self._sets)
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
        """Count outputs `[n, neurons]`."""
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
        """How far they are moved, mean over neurons; and the variance before, which says how much that is."""
        return {
            "mean_change": float((after.mean - self.mean).abs().mean()),
            "variance_change": float((after.variance - self.variance).abs().mean()),
            "variance": float(self.variance.mean()),
        }


def activations(network: Network, variables: Tree, x: Tensor) -> dict[str, Moments]:
    """What every layer with parameters puts out for inputs, in evaluation mode, before any nonlinearity after it."""
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
    """Where each layer lies in a vector of parameters: the tensors of a layer are neighbours."""
    found: dict[str, slice] = {}
    for entry in layout.params:
        name = entry.name.rpartition(".")[0] or _WHOLE
        found[name] = slice(found[name].start if name in found else entry.start, entry.stop)
    return found


def cosine_distance(updates: Sequence[Tensor]) -> float:
    """The mean of 1 - cosine over all pairs, from the length of the sum of their directions; a zero has cosine 0."""
    n, total, own = len(updates), torch.zeros_like(updates[0], dtype=torch.float64), 0.0
    for update in updates:
        direction = nn.functional.normalize(update.double(), dim=0, eps=torch.finfo(torch.float64).tiny)
        total += direction
        own += float(direction.square().sum())
    return 1 - (float(total.square().sum()) - own) / (n * (n - 1))


def spread(cohort: Sequence[int], count: int) -> list[int]:
    """So many of them at even distances, the first and the last among them."""
    last, gaps = len(cohort) - 1, max(1, count - 1)
    return list(cohort) if count > last else [cohort[i * last // gaps] for i in range(count)]


def _accuracies(job: Job, model: Tree, sets: Mapping[str, Samples]) -> Line:
    return {name: score(job, model, samples)["accuracy"] for name, samples in sets.items()}


def _length(vector: Tensor) -> float:
    return float(vector.double().norm())


def _heading(kind: str, info: Info, client: int, group: Group) -> Line:
    return {"kind": kind, "round": info.round, "client": client, "group": group}
