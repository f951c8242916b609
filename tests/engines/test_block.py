"""Blocks of clients as rows: what the contract suite does not cover."""

import gc

import pytest
import torch

from federation import Federation, dense, mixed, normed
from fedge.algorithms.fedavg import FedAvg
from fedge.algorithms.scaffold import Scaffold
from fedge.core.algorithm import Algorithm, Context, Exchange
from fedge.core.layout import Layout, Tree
from fedge.core.reduce import Collect
from fedge.engines.block import Block

SIZES = (5, 9, 12, 5, 1, 7)  # in steps, all but the client with one sample share a batch schedule; in epochs, few do


@pytest.mark.parametrize("num_rows", [1, 2, 4, 64])
@pytest.mark.parametrize("amount", [{"steps": 3}, {"epochs": 2}], ids=["steps", "epochs"])
def test_clients_of_different_sizes(num_rows: int, amount: dict[str, int]) -> None:
    """Their gradients over ALL samples have different shapes, even if their batches have the same."""
    build = Scaffold(option="I").build
    loop = Federation(build, mixed(SIZES), "loop", make=normed, **amount)
    block = Federation(build, mixed(SIZES), "block", make=normed, **amount)
    assert isinstance(block.engine, Block)
    block.engine.num_rows = num_rows
    for _ in range(2):
        expected, found = loop.round().replies[0], block.round().replies[0]
        assert found.ids == expected.ids
        for name in ("steps", "batches", "flops", "bytes_down", "bytes_up"):
            assert getattr(found.costs, name).tolist() == getattr(expected.costs, name).tolist(), name
        assert found.losses == pytest.approx(expected.losses, abs=1e-12)
    for key, value in loop.everything().items():
        torch.testing.assert_close(block.everything()[key], value, rtol=0, atol=1e-12, msg=key)


def test_uploads_come_in_client_order_whatever_the_blocks() -> None:
    """Two schedules alternate, so that blocks end out of order."""
    federation = Federation(FedAvg().build, mixed((6, 3, 6, 3, 6, 2)), "block", make=dense)
    seen = []

    class Noting(Collect):
        def add(self, upload: Tree, samples: float) -> None:
            seen.append(int(samples))
            super().add(upload, samples)

    info = federation.info._replace(round=1)
    federation.engine.run([Exchange("train", federation.state, info.cohort, Noting)], [info])
    assert seen == [6, 3, 6, 3, 6, 2]


def test_the_weights_of_a_block_are_freed_with_it() -> None:
    federation = Federation(FedAvg().build, mixed(SIZES), "block", make=dense)

    def count_rows() -> int:
        gc.collect()
        shapes = [value.shape for value in gc.get_objects() if type(value) is torch.Tensor]
        return sum(len(shape) == 2 and shape[1] == federation.clients.network.layout.num_params for shape in shapes)

    before = count_rows()
    federation.round()
    assert count_rows() == before


def test_the_context_has_one_row_for_each_client() -> None:
    contexts: list[Context] = []

    def build(layout: Layout) -> Algorithm:
        algorithm = FedAvg().build(layout)
        work = algorithm.works["train"]

        def final(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
            if ctx.client.dim() == 2:  # not the rehearsal, which has one client
                contexts.append(ctx)
            return work.final(down, local, kept, ctx)

        return algorithm._replace(works={"train": work._replace(final=final)})

    Federation(build, mixed((5, 9, 12)), "block", make=dense, steps=3).round()
    block, rest = contexts
    assert block.client.tolist() == [[0], [1]]
    assert block.num_samples.tolist() == [[5], [9]]
    assert block.num_steps.tolist() == [[3], [3]]
    assert (rest.client.tolist(), rest.num_samples.tolist()) == ([[2]], [[12]])
    assert (block.round, block.num_clients, block.step) == (1, 3, 2)
