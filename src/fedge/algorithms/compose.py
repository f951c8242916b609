"""Composition of an algorithm and its wrappers from a configuration, from the inside out."""

from __future__ import annotations

from fedge.algorithms.adapted import fine_tuned
from fedge.algorithms.cluster_division import Cluster
from fedge.algorithms.clustered import clustered
from fedge.algorithms.compressed import compressed
from fedge.algorithms.local import maxent, momentum, pull
from fedge.algorithms.mtfl import mtfl
from fedge.algorithms.options import TrainingOptions
from fedge.algorithms.private import Personal
from fedge.algorithms.reduced import ReduceOptions, reduced
from fedge.core.algorithm import Build
from fedge.core.codecs.chain import CodecOptions

WRAPPER_VERSIONS = {
    "momentum": 1,
    "weight_decay": 1,
    "prox": 1,
    "maxent": 1,
    "personal": 1,
    "codec": 1,
    "cluster": 2,
    "fine_tune_steps": 1,
}
"""Version of each wrapper that runs on clients, by its option: increased when the same options give other results."""


def wrapper_versions(
    options: TrainingOptions,
    personal: Personal | None,
    codec: CodecOptions | None,
    cluster: Cluster | None,
    fine_tune_steps: int,
) -> dict[str, int]:
    """Return the versions of the wrappers that `compose` puts around an algorithm, without the server's reducer."""
    given = {"personal": personal, "codec": codec, "cluster": cluster, "fine_tune_steps": fine_tune_steps}
    used = {name: getattr(options, name) for name in WRAPPER_VERSIONS.keys() - given.keys()} | given
    return {name: version for name, version in WRAPPER_VERSIONS.items() if used[name]}


def trained(options: TrainingOptions) -> Build:
    """Return the algorithm with its local training options; momentum includes the terms of weight decay and prox."""
    build: Build = options.build
    if options.momentum:
        build = momentum(build, options.momentum)
    if options.weight_decay:
        build = pull(build, options.weight_decay, to_start=False)
    if options.prox:
        build = pull(build, options.prox, to_start=True)
    return maxent(build, options.maxent) if options.maxent else build


def compose(
    options: TrainingOptions,
    reduce: ReduceOptions,
    personal: Personal | None = None,
    codec: CodecOptions | None = None,
    cluster: Cluster | None = None,
    fine_tune_steps: int = 0,
) -> Build:
    """Return the complete algorithm with all wrappers."""
    build = trained(options)
    if personal:
        build = mtfl(build, personal.private)
    if codec:
        build = compressed(build, *codec.chains)
    build = reduced(build, reduce.reducer())
    if cluster:
        build = clustered(build, cluster.count, cluster.round)
    return fine_tuned(build, fine_tune_steps) if fine_tune_steps else build
