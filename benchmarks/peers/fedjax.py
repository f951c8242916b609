"""FedJAX: its federated averaging, compiled, with one device per core (pmap) or one for all (jit)."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from itertools import count, islice

import haiku as hk
import numpy as np

from benchmarks.candidate import Rounds, UnavailableError, serve
from benchmarks.workloads import RATE, WORKLOADS, Workload


def prepare(workload: Workload, backend: str) -> Rounds:
    if backend == "pmap":  # must be set before JAX starts
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={os.cpu_count()}"
    import fedjax
    import jax
    from fedjax.core.for_each_client import set_for_each_client_backend

    set_for_each_client_backend(backend)
    network = hk.transform(_network(workload))
    x, y = _samples(workload, 0)
    model = fedjax.create_model_from_haiku(
        network,
        {"x": x[:1], "y": y[:1]},
        lambda batch, output: fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], output),
    )
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        fedjax.model_grad(model),
        fedjax.optimizers.sgd(RATE),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=workload.batch, num_steps=workload.steps, num_epochs=None),
    )
    state, numbers = algorithm.init(model.init(jax.random.PRNGKey(1))), count(1)

    def rounds(num_rounds: int) -> None:
        nonlocal state
        for number in islice(numbers, num_rounds):
            clients = workload.clients(number)
            keys = jax.random.split(jax.random.PRNGKey(number), len(clients))
            cohort = [
                (client, fedjax.ClientDataset(dict(zip("xy", _samples(workload, client), strict=True))), key)
                for client, key in zip(clients, keys, strict=True)
            ]
            state, _ = algorithm.apply(state, cohort)
        jax.block_until_ready(state.params)

    return rounds


def _samples(workload: Workload, client: int) -> tuple[np.ndarray, np.ndarray]:
    """Return samples; images are channels-last, which JAX prefers on a CPU."""
    x, y = workload.samples(client)
    return (x.transpose(0, 2, 3, 1) if x.ndim == 4 else x), y


def _network(workload: Workload) -> Callable[[dict[str, np.ndarray]], object]:
    import jax

    def conv(channels: int, kernel: int) -> list[Callable[..., object]]:
        return [hk.Conv2D(channels, kernel, padding="VALID"), jax.nn.relu, hk.MaxPool((2, 2, 1), (2, 2, 1), "VALID")]

    def dense(*widths: int) -> list[Callable[..., object]]:
        hidden = [layer for width in widths for layer in (hk.Linear(width), jax.nn.relu)]
        return [hk.Flatten(), *hidden, hk.Linear(workload.num_classes)]

    def read(x: np.ndarray) -> object:
        embedded = hk.Embed(79, 8)(x.T)
        core = hk.DeepRNN([hk.GRU(128), hk.GRU(128)])
        states, _ = hk.dynamic_unroll(core, embedded, core.initial_state(x.shape[0]))
        return hk.Linear(79)(states[-1])

    layers: dict[str, Callable[[], list[Callable[..., object]]]] = {
        "mnist_2nn": lambda: dense(200, 200),
        "femnist_cnn": lambda: [*conv(32, 3), *conv(64, 3), *dense(512)],
        "shakespeare_gru": lambda: [read],
        "bag_of_words": lambda: dense(),
        "hfl_cnn": lambda: [*conv(10, 5), *conv(30, 5), *dense(100)],
    }
    if workload.model not in layers:
        raise UnavailableError("FedJAX's models have no state, which BatchNorm needs")
    return lambda batch: hk.Sequential(layers[workload.model]())(batch["x"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--backend", choices=("jit", "pmap"), default="jit")
    options = parser.parse_args()
    serve(lambda: prepare(WORKLOADS[options.workload], options.backend), ["fedjax", "jax", "jaxlib", "numpy"])
