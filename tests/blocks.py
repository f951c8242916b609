"""Blocks of unrelated clients, and the result of autograd for each of them."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from fedge.client.network import Network
from fedge.core.algorithm import Affine, Penalty, moved
from fedge.core.registered import Task
from fedge.data.clients import Samples
from fedge.engines.kernels.assemble import Batched, Kernels, assemble
from fedge.engines.kernels.layer import Batch, Weights

SIZES = (4, 3, 1, 2)
"""Numbers of real samples among four: all, some, and one, a special case for BatchNorm."""
NUM_CLIENTS, EXACT = len(SIZES), {"rtol": 1e-9, "atol": 1e-11}


def normal(*shape: int, seed: int = 5) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def network_of(make: Callable[[], nn.Module], task: Task = "classes") -> Network:
    return Network(make, 1, task, torch.float64)


def kernels_of(network: Network) -> Kernels:
    kernels = assemble(network, Samples(torch.empty(0), torch.empty(0)))  # kernels need no probe
    assert isinstance(kernels, Kernels), kernels
    return kernels


def models_of(network: Network) -> tuple[Tensor, Tensor]:
    """Return the weights and statistics of the clients."""
    x = network.variables["x"] + 0.3 * normal(NUM_CLIENTS, network.layout.num_params)
    return x, network.variables["stats"] + 0.3 * normal(NUM_CLIENTS, network.layout.num_stats).abs()


def batch_of(
    network: Network,
    shape: tuple[int, ...],
    size: int = 4,
    sizes: Sequence[int] | None = None,
    num_words: int | None = None,
    num_outputs: int = 3,
) -> Batch:
    """Return a batch; with sizes, the rows after each client's samples are padding, far from real values."""
    x, values = normal(NUM_CLIENTS, size, *shape, seed=6), normal(NUM_CLIENTS, size, num_outputs, seed=7)
    if num_words is not None:
        x = (x.abs() * 1000).long() % num_words
    targets = {"classes": values.argmax(-1), "labels": (values > 0).to(torch.float64), "values": values}
    generators = [torch.Generator().manual_seed(seed) for seed in range(NUM_CLIENTS)]
    if sizes is None:
        return Batch(Samples(x, targets[network.task]), None, generators)
    counts = torch.tensor(sizes).unsqueeze(1)
    real = torch.arange(size) < counts
    if num_words is None:
        x[~real] *= 100
    return Batch(Samples(x, targets[network.task]), real.to(torch.float64) / counts, generators)


def samples_of(batch: Batch, client: int) -> Samples:
    """Return the client's samples without the padding."""
    real = slice(None) if batch.shares is None else batch.shares[client] > 0
    return Samples(batch.samples.x[client, real], batch.samples.y[client, real])


def check_gradients(
    network: Network, model: Batched, batch: Batch, penalty: Penalty | None = None, num_batches: int = 1
) -> None:
    """Check losses, gradients and statistics against autograd; each of several batches draws new random numbers."""
    x, stats = models_of(network)
    given = x.clone(), stats.clone()
    found = []
    for _ in range(num_batches):
        out = torch.full_like(x, float("nan"))  # all of it must be written
        found.append((*model.gradient(x, stats, batch, out, penalty), out))
    assert torch.equal(x, given[0])
    assert torch.equal(stats, given[1])
    for i in range(NUM_CLIENTS):
        with torch.random.fork_rng():
            torch.manual_seed(i)
            for losses, after, out in found:
                loss, gradient, stats_after = network.gradient(x[i], stats[i], samples_of(batch, i), penalty)
                torch.testing.assert_close(losses[i], loss, **EXACT)
                torch.testing.assert_close(out[i], gradient, **EXACT)
                torch.testing.assert_close(after[i], stats_after, **EXACT)


def affine_steps(num_params: int) -> dict[str, Affine]:
    rows, vector = normal(NUM_CLIENTS, num_params, seed=8).abs(), normal(num_params, seed=9).abs()
    column = rows[:, :1]
    return {
        "plain": (1.0, None, 0.1),
        "numbers": (0.9, None, 0.1),
        "drift": (0.9, rows, 0.1),
        "shared drift": (1.0, vector, 0.1),
        "columns": (column, None, 2 * column),
        "column of decay": (column, rows, 0.1),
        "vectors": (vector, vector, 2 * vector),
        "rows": (rows, vector, 2 * rows),
    }


def check_steps(network: Network, model: Batched, make_batch: Callable[[], Batch]) -> None:
    """Check that a step equals the gradient followed by the move."""
    for name, affine in affine_steps(network.layout.num_params).items():
        x, stats = models_of(network)
        gradient = torch.empty_like(x)
        losses, after = model.gradient(x, stats, make_batch(), gradient)
        y = x.clone()
        found = model.step(Weights(y, network.layout.views(y)), stats, make_batch(), affine)
        torch.testing.assert_close(
            y, moved(x, gradient, affine), **EXACT, msg=lambda text, name=name: f"{name}: {text}"
        )
        assert torch.equal(found[0], losses)
        assert torch.equal(found[1], after)


def check_outputs(network: Network, model: Batched, inputs: Tensor) -> None:
    x, stats = models_of(network)
    found = model.outputs(x, stats, inputs)
    expected = [network.outputs({"x": x[i], "stats": stats[i]}, inputs[i]) for i in range(NUM_CLIENTS)]
    torch.testing.assert_close(found, torch.stack(expected), **EXACT)
