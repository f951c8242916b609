"""Several exchanges in one call, as with cells: blocks span them, and results do not depend on it."""

import pytest
import torch

from federation import BUILDS, Federation, batched_of, dense, mixed
from fedge.algorithms.fedavg import FedAvg
from fedge.core.algorithm import Algorithm, Context
from fedge.core.drive import Engine, drive
from fedge.core.layout import Layout, Tree
from fedge.engines.block import Block
from fedge.engines.pool import Pool

SIZES = (6, 9, 9, 1, 5, 7, 3)
COHORTS = (0, 4), (1, 2, 5), (3, 6)
NUM_ROWS = 4
# Compressed uploads need not agree between loop and block; clustering also asks clients of other cells.
CELLULAR = [name for name in BUILDS if not any(part in name for part in ("ce_fedavg", "codec", "clustered"))]
SAMPLE = "fedavg", "scaffold", "mtfl(fedavg_adam, bn)", "dynavg(0.02)", "krum(fedavg)", "codec(scaffold, sparse)"


def play(federation: Federation, engine: Engine) -> Tree:
    """Run two rounds of cells that start from different states; return all resulting state."""
    rng = torch.Generator().manual_seed(1)

    def near(value: torch.Tensor) -> torch.Tensor:
        noise = 0.01 * torch.rand(value.shape, generator=rng, dtype=torch.float64)
        return value + noise.to(value.dtype)  # counts stay unchanged

    states = [{name: near(value) for name, value in federation.state.items()} for _ in COHORTS]
    for round in (1, 2):
        infos = [federation.info._replace(round=round, cohort=cohort) for cohort in COHORTS]
        states = [outcome.state for outcome in drive(engine, federation.clients.algorithm, states, infos)]
    left = {f"cell {i}: {name}": value for i, state in enumerate(states) for name, value in state.items()}
    return left | {name: value for name, value in federation.everything().items() if "/" in name}


def in_blocks(name: str) -> Federation:
    return Federation(BUILDS[name], mixed(SIZES), "block", epochs=1)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.full) if "(" in n else n for n in CELLULAR])
def test_blocks_that_span_cells_agree_with_loop(name: str) -> None:
    """By epochs, so that the rows of a cell are not adjacent."""
    loop, block = Federation(BUILDS[name], mixed(SIZES), epochs=1), in_blocks(name)
    expected = play(loop, loop.engine)
    found = play(block, Block(block.sides, batched_of(block.sides), NUM_ROWS))
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-9, atol=1e-12, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize("num_workers", [1, 2])
@pytest.mark.parametrize("name", SAMPLE)
def test_workers_are_bit_equal_to_block(name: str, num_workers: int) -> None:
    block, pooled = in_blocks(name), in_blocks(name)
    expected = play(block, Block(block.sides, batched_of(block.sides), NUM_ROWS))
    with Pool(pooled.sides, batched_of(pooled.sides), NUM_ROWS, num_workers) as pool:
        found = play(pooled, pool)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert torch.equal(found[key], value), key


def test_a_block_is_filled_from_several_cells() -> None:
    """Seven clients in blocks of at most four: the first has cell 0 and half of cell 1, each with its own `down`."""
    seen: list[tuple[list[list[int]], list[int]]] = []

    def build(layout: Layout) -> Algorithm:
        algorithm = FedAvg().build(layout)
        work = algorithm.works["train"]

        def init(down: Tree, kept: Tree, ctx: Context) -> Tree:
            if ctx.client.dim() == 2:  # not the rehearsal, which has one client
                seen.append((ctx.client.tolist(), list(down["x"].shape)))
            return work.init(down, kept, ctx)

        return algorithm._replace(works={"train": work._replace(init=init)})

    federation = Federation(build, mixed((8,) * 7), "block", make=dense, steps=1)
    engine = Block(federation.sides, batched_of(federation.sides), NUM_ROWS)
    size = federation.clients.network.layout.num_params
    infos = [federation.info._replace(round=1, cohort=cohort) for cohort in COHORTS]
    drive(engine, federation.clients.algorithm, [federation.state] * 3, infos)
    assert seen == [([[0], [4], [1], [2]], [4, size]), ([[5], [3], [6]], [3, size])]
    seen.clear()
    drive(engine, federation.clients.algorithm, [federation.state] * 2, [infos[0], infos[1]._replace(rate=0.5)])
    assert seen == [
        ([[0], [4]], [size]),
        ([[1], [2], [5]], [size]),
    ]  # with different requests, they are not trained together
