"""The `block` engine: blocks of clients as rows `[C, P]`, one block after another in this process."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence

from fedge.core.algorithm import Exchange, Info, Reply
from fedge.core.layout import Tree
from fedge.core.question import Question, Sums
from fedge.core.reduction import Reduction
from fedge.engines import tasks
from fedge.engines.blocks import Content, Found, Rows, answer, read_kept, run_in_blocks
from fedge.engines.both_sides import BothSides
from fedge.engines.evaluate import evaluate_clients, evaluate_test
from fedge.engines.kernels.assemble import Batched


class Block:
    """Runs exchanges in blocks of at most `num_rows` clients."""

    def __init__(self, sides: BothSides, batched: Batched, num_rows: int) -> None:
        self._sides, self._batched, self.num_rows = sides, batched, num_rows
        self.masks = batched.masks

    def run(self, exchanges: Sequence[Exchange], infos: Sequence[Info]) -> list[Reply]:
        return run_in_blocks(self._sides, self, exchanges, infos, self._find)

    def evaluate(self, question: Question, info: Info) -> dict[int, Sums]:
        return evaluate_clients(self._sides, self, question, info)

    def test(self, variables: Tree) -> Sums:
        return evaluate_test(self._sides, self, variables)

    def map(self, kind: str, shared: Tree, items: Iterable[Content]) -> Generator[Content, None, None]:
        """Perform tasks in this process, one after another."""
        return (tasks.perform(kind, self._sides, self._batched, shared, meta, tensors) for meta, tensors in items)

    def _find(self, reductions: Sequence[Reduction], blocks: Sequence[Rows]) -> Generator[Found, None, None]:
        requests = {number: reduction.request for number, reduction in enumerate(reductions)}
        for block in blocks:
            kept = read_kept(self._sides.clients, block.clients)
            yield answer(self._sides, self._batched, requests, block, kept)
