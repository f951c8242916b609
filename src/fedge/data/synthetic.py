"""Clients whose samples are generated on request, reproducibly, for any number of clients."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import torch
from msgspec import Meta

from fedge.core.keys import generator
from fedge.core.registered import Task
from fedge.core.schema import Options
from fedge.data.apportionment import MAX_ALPHA, MIN_ALPHA, draw_proportions
from fedge.data.clients import Samples, ServerPart
from fedge.data.data_plan import DataPlan, travelling_settings
from fedge.data.validation import ValidationShare, check_held_out, choose_held_out, count_held_out

MAX_POOLED = 100

Amount = Annotated[float, Meta(ge=0, le=1e6)]


class Synthetic(Options, tag="synthetic"):
    """Generated clients with a given heterogeneity."""

    kind: Annotated[
        Literal["mixture", "quadratic"],
        Meta(
            description="mixture: classify samples of Gaussian clusters. "
            "quadratic: linear regression; each client has its own optimum and curvature."
        ),
    ] = "mixture"
    clients: Annotated[int, Meta(ge=1, le=10_000_000, description="Number of clients.")] = 100
    features: Annotated[int, Meta(ge=1, le=100_000, description="Features of an input.")] = 20
    samples: Annotated[int, Meta(ge=1, le=10_000_000, description="Training samples of each client.")] = 100
    test_samples: Annotated[int, Meta(ge=1, le=10_000_000, description="Test samples of each client.")] = 20
    heterogeneity: Annotated[
        Amount, Meta(description="Typical distance of a client's cluster means or optimum from the common ones.")
    ] = 1.0
    classes: Annotated[int, Meta(ge=2, le=10_000, description="mixture: number of classes.")] = 10
    separation: Annotated[
        Amount,
        Meta(description="mixture: typical norm of a class mean; the standard deviation of samples is 1 per feature."),
    ] = 4.0
    alpha: Annotated[
        float, Meta(ge=MIN_ALPHA, le=MAX_ALPHA, description="mixture: Dirichlet concentration of a client's classes.")
    ] = 1.0
    curvature: Annotated[
        float, Meta(ge=1, le=1e6, description="quadratic: curvatures lie between 1/curvature and curvature.")
    ] = 4.0
    deviation: Annotated[Amount, Meta(description="quadratic: standard deviation of the noise on the targets.")] = 0.1
    validation: ValidationShare = None

    def build(self, seed: int) -> GeneratedClients:
        return GeneratedClients(self, seed)

    def server_part(self, seed: int) -> ServerPart:
        """Return the server's part of the data set; no training sample is drawn."""
        clients = self.build(seed)
        plan = DataPlan(
            shape=clients.shape,
            num_outputs=clients.num_outputs,
            task=clients.task,
            seed=seed,
            settings=travelling_settings(self),
            validation=self.validation,
        )
        return ServerPart(plan, clients.pooled_test(), self.clients)


class GeneratedClients:
    """Clients that store no samples: train and test sets are drawn from the client's distribution on request.

    They are the same in every round.
    """

    def __init__(self, options: Synthetic, seed: int) -> None:
        self.shape: tuple[int, ...] = (options.features,)
        self.task: Task = "values" if options.kind == "quadratic" else "classes"
        self.num_outputs = 1 if self.task == "values" else options.classes
        num_held_out = 0
        if options.validation is not None:
            num_held_out = count_held_out(options.samples, options.validation)
            check_held_out([num_held_out])
        self.sizes = np.broadcast_to(np.int64(options.samples - num_held_out), options.clients)
        self.noisy = np.empty(0, int)
        self._options, self._seed = options, seed
        self._source = _Quadratic(options, seed) if self.task == "values" else _Mixture(options, seed)

    def num_samples(self, client: int, round: int) -> int:
        return int(self.sizes[client])

    def train(self, client: int, round: int) -> Samples:
        return self._drawn(client, held_out=False)

    def validation(self, client: int, round: int) -> Samples:
        return self._drawn(client, held_out=True)

    def test(self, client: int, round: int) -> Samples:
        rng = generator(self._seed, "synthetic test", client)
        return self._source.draw(client, self._options.test_samples, rng)

    def _drawn(self, client: int, held_out: bool) -> Samples:
        """Return the training samples that a client holds out, or the others."""
        options = self._options
        drawn = self._source.draw(client, options.samples, generator(self._seed, "synthetic train", client))
        if options.validation is None:
            return Samples(*(side[:0] for side in drawn)) if held_out else drawn
        chosen = torch.from_numpy(choose_held_out(options.samples, options.validation, self._seed, client))
        return Samples(*(side[chosen == held_out] for side in drawn))

    def pooled_test(self) -> Samples:
        """Return the test sets of at most 100 evenly spaced clients."""
        count = min(len(self.sizes), MAX_POOLED)
        parts = [self.test(i * len(self.sizes) // count, round=1) for i in range(count)]
        return Samples(torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts]))


class _Mixture:
    """x = class mean + client shift + standard normal noise; class proportions differ by client."""

    def __init__(self, options: Synthetic, seed: int) -> None:
        self._options, self._seed = options, seed
        means = generator(seed, "synthetic").standard_normal((options.classes, options.features))
        self._means = means * options.separation / np.sqrt(options.features)

    def draw(self, client: int, count: int, rng: np.random.Generator) -> Samples:
        options, own = self._options, generator(self._seed, "synthetic client", client)
        proportions = draw_proportions(options.alpha, options.classes, own)
        shift = own.standard_normal(options.features) * options.heterogeneity / np.sqrt(options.features)
        y = rng.choice(options.classes, count, p=proportions)
        x = self._means[y] + shift + rng.standard_normal((count, options.features))
        return Samples(torch.from_numpy(x).float(), torch.from_numpy(y))


class _Quadratic:
    """y = x.w + noise with E[x x'] = diag(h): squared error is a quadratic with optimum w and curvatures h.

    Each client has its own w, around a common one, and its own log-uniform h.
    """

    def __init__(self, options: Synthetic, seed: int) -> None:
        self._options, self._seed = options, seed
        self._optimum = generator(seed, "synthetic").standard_normal(options.features) / np.sqrt(options.features)

    def draw(self, client: int, count: int, rng: np.random.Generator) -> Samples:
        options, own = self._options, generator(self._seed, "synthetic client", client)
        offset = own.standard_normal(options.features) * options.heterogeneity / np.sqrt(options.features)
        curvatures = options.curvature ** own.uniform(-1, 1, options.features)
        x = rng.standard_normal((count, options.features)) * np.sqrt(curvatures)
        y = x @ (self._optimum + offset) + options.deviation * rng.standard_normal(count)
        return Samples(torch.from_numpy(x).float(), torch.from_numpy(y).float()[:, None])
