"""Evaluate models on the data of one client or of a server, as sums over samples."""

from __future__ import annotations

from math import isfinite

import torch
from torch import Tensor

from fedge.client.client_side import ClientSide
from fedge.client.network import Network
from fedge.client.perform import perform
from fedge.core.algorithm import Context, Info, Work
from fedge.core.layout import Tree
from fedge.core.metric_set import NO_METRICS, MetricSet
from fedge.core.question import WITH_METRICS, Measure, Question, Sums, add_up
from fedge.data.clients import Clients, Samples

RECALL_AT = 5
"""For multi-label data, a label counts as found if it is among this many most likely ones."""

PIECE = 1024  # samples evaluated in one forward pass


def measure(side: ClientSide, client: int, question: Question, info: Info) -> Sums | None:
    """Return a client's answer to a question; None if it has no data for it."""
    samples = measured_on(side.data, question.measure, client, info.round)
    if not len(samples):
        return None
    return score(side.network, _model(side, client, question, info), samples, metrics_of(side, question.measure))


def metrics_of(side: ClientSide, measure: Measure) -> MetricSet:
    """Return the metrics of a measure in addition to accuracy and loss."""
    return side.metrics if measure in WITH_METRICS else NO_METRICS


def measured_on(data: Clients, measure: Measure, client: int, round: int) -> Samples:
    """Return the samples of a client on which a measure is evaluated."""
    if measure == "train":
        return data.train(client, round)
    return data.validation(client, round) if measure == "validation" else data.test(client, round)


def has_data(side: ClientSide, client: int) -> bool:
    """Return whether the client has at least one training sample."""
    return bool(side.data.sizes[client])


def _model(side: ClientSide, client: int, question: Question, info: Info) -> Tree:
    """Return the variables of the model that a question is about."""
    algorithm, down = side.algorithm, question.down
    if question.measure == "trained":
        assert question.work is not None
        work = reached(algorithm.works[question.work])
        return perform(side, work, client, down, side.kept.read(client), info, "trained")[0]
    if question.measure == "user":
        if algorithm.personal:
            down = algorithm.personal(down, side.kept.read(client))
        if algorithm.adapt and has_data(side, client):
            down = perform(side, algorithm.adapt, client, down, {}, info, "adapt")[0]
    return down


def reached(work: Work) -> Work:
    """Return the work changed to upload the locally trained model."""

    def final(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
        return {"x": local["y"], "stats": local["stats"]}, kept

    return work._replace(final=final)


def score(network: Network, variables: Tree, samples: Samples, metrics: MetricSet = NO_METRICS) -> Sums:
    """Return the sums over all samples, evaluated in pieces of `PIECE`."""
    starts = range(0, len(samples), PIECE)
    return add_up(score_piece(network, variables, samples, start, metrics) for start in starts)


def score_piece(
    network: Network, variables: Tree, samples: Samples, start: int, metrics: MetricSet = NO_METRICS
) -> Sums:
    """Return the sums over the samples of one piece."""
    piece = network.cast(Samples(*(side[start : start + PIECE] for side in samples)))
    return sums(network, network.outputs(variables, piece.x), piece, metrics)


def sums(network: Network, outputs: Tensor, samples: Samples, metrics: MetricSet = NO_METRICS) -> Sums:
    """Return the sample count, the summed loss and the number of correct samples (none for regression).

    If the loss is not finite, the sums of all metrics are NaN and the metrics are not called.
    """
    found: Sums = {"count": float(len(samples)), "loss": float(network.loss(outputs, samples.y)) * len(samples)}
    if network.task != "values":
        found["correct"] = float(_scores(network, outputs, samples).sum())
    return found | (metrics.count(outputs, samples.y) if isfinite(found["loss"]) else metrics.undefined())


def _scores(network: Network, outputs: Tensor, samples: Samples) -> Tensor:
    """Score each sample from 0 to 1: correctness for a class, recall at 5 for labels (0 if it has none)."""
    if network.task == "classes":
        return (outputs.argmax(-1) == samples.y).to(torch.float64)
    found = samples.y.gather(-1, outputs.topk(min(RECALL_AT, outputs.shape[-1]), -1).indices).sum(-1)
    return found.to(torch.float64) / samples.y.sum(-1).clamp(min=1)
