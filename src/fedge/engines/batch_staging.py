"""Gather the batches of a block of clients into contiguous memory, a few steps at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedge.client.client_side import ClientSide
from fedge.data.batch_feed import Steps
from fedge.data.clients import Samples
from fedge.engines.kernels.layer import Batch

_STAGE_BYTES = 4 << 20  # size of the samples gathered at a time


class Stage:
    """The batches of a block of clients, sorted by descending number of steps.

    Short batches are padded to the longest one of their step.
    """

    def __init__(
        self, side: ClientSide, clients: Sequence[int], round: int, steps: Sequence[Steps], batches_per_step: int
    ) -> None:
        self._side, self._clients, self._round = side, clients, round
        plans = [[batch for batches in plan for batch in batches] for plan in steps]
        self._per_step = batches_per_step
        self._lengths = np.zeros((len(clients), max(map(len, plans))), np.int64)
        for row, batches in zip(self._lengths, plans, strict=True):
            row[: len(batches)] = [len(batch) for batch in batches]
        width = int(self._lengths.max(initial=0))
        self._places = np.zeros((*self._lengths.shape, width), np.int64)  # padded with the first sample
        for rows, batches in zip(self._places, plans, strict=True):
            for row, batch in zip(rows, batches, strict=False):
                row[: len(batch)] = batch
        self._widths: dict[int, tuple[list[int], list[bool]]] = {}  # by the number of active clients
        self._first = self._end = 0  # range of the staged batches
        self._staged: list[Samples] = []

    @cached_property
    def samples(self) -> list[Samples]:
        """The samples of each client, built lazily because work that does not train needs none."""
        return [self._side.samples(client, self._round) for client in self._clients]

    @property
    def num_seen(self) -> int:
        """The largest number of samples that any client processes, counting repetitions."""
        return int(self._lengths.sum(1).max())

    def lengths(self, step: int, which: int, num_rows: int) -> np.ndarray:
        """Return the batch size of each of the first `num_rows` clients."""
        return self._lengths[:num_rows, step * self._per_step + which]

    def batch(self, step: int, which: int, num_rows: int) -> Batch:
        """Return one batch of each of the first `num_rows` clients."""
        number = step * self._per_step + which
        if not self._first <= number < self._end:
            self._load(number, num_rows)
        width, shares = self._shares(number, num_rows)
        staged = self._staged[number - self._first]
        if staged.y.shape[:2] != (num_rows, width):
            staged = Samples(*(side[:num_rows, :width] for side in staged))
        return Batch(staged, shares)

    def places(self, step: int, which: int, num_rows: int) -> tuple[Tensor, Tensor | None]:
        """Return the indices of that batch in the clients' samples, and the weight of each sample in its mean."""
        number = step * self._per_step + which
        width, shares = self._shares(number, num_rows)
        return torch.from_numpy(self._places[:num_rows, number, :width]).to(self._side.network.device), shares

    def _shares(self, number: int, num_rows: int) -> tuple[int, Tensor | None]:
        """Return the longest batch size, and the weight of each sample in its client's mean if sizes differ."""
        if num_rows not in self._widths:  # for all batches at once: there are many short ones
            lengths = self._lengths[:num_rows]
            longest = lengths.max(0)
            self._widths[num_rows] = longest.tolist(), (lengths == longest).all(0).tolist()
        widths, alike = self._widths[num_rows]
        width = widths[number]
        if alike[number]:
            return width, None
        lengths = self._lengths[:num_rows, number]
        real = np.arange(width) < lengths[:, None]
        network = self._side.network
        return width, torch.from_numpy(real / lengths[:, None]).to(network.device, network.dtype)

    def _load(self, first: int, num_rows: int) -> None:
        """Gather the next batches of the active clients, starting at batch `first`."""
        width = int(self._lengths[:num_rows, first:].max())
        sample = self.samples[0]
        bytes_each = sum(side[0].numel() * side.element_size() for side in sample) * num_rows * width
        count = min(max(1, _STAGE_BYTES // max(1, bytes_each)), self._lengths.shape[1] - first)
        places = np.ascontiguousarray(self._places[:num_rows, first : first + count, :width])
        x, y = (self._gather(side, places).unbind(1) for side in (0, 1))
        self._staged = [Samples(*both) for both in zip(x, y, strict=True)]
        self._first, self._end = first, first + count

    def _gather(self, side: int, places: np.ndarray) -> Tensor:
        num_rows, count, width = places.shape
        like = self.samples[0][side]
        staged = like.new_empty(num_rows, count * width, *like.shape[1:])
        chosen = torch.from_numpy(places.reshape(num_rows, -1)).to(like.device)
        for i in range(num_rows):
            torch.index_select(self.samples[i][side], 0, chosen[i], out=staged[i])
        return staged.view(num_rows, count, width, *like.shape[1:])
