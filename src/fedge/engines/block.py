"""Blocks of clients as rows `[C, P]`, through batched kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from fedge.core.algorithm import ALL, Batch, Context, Exchange, Info, Reply, Work
from fedge.core.layout import Tree
from fedge.data.clients import Samples
from fedge.data.feed import Steps
from fedge.engines.job import Answer, Effort, Job, Reduction, check_stats, seal
from fedge.engines.kernels.assemble import Kernels

_BLOCK_BYTES = 8 << 20  # of weights in a block: more falls out of the cache
_MOST_ROWS = 64


class Block:
    """Runs an exchange in blocks of clients that share a batch schedule."""

    def __init__(self, job: Job, kernels: Kernels) -> None:
        self._job, self._kernels = job, kernels
        row = job.network.layout.num_params * job.network.variables["x"].element_size()
        self.num_rows = max(1, min(_MOST_ROWS, _BLOCK_BYTES // row))

    def run(self, exchanges: Sequence[Exchange], infos: Sequence[Info]) -> list[Reply]:
        return [self._run(exchange, info) for exchange, info in zip(exchanges, infos, strict=True)]

    def _run(self, exchange: Exchange, info: Info) -> Reply:
        request = self._job.send(exchange, info)
        reduction = Reduction(self._job, request)
        work = self._job.algorithm.works[exchange.work]
        cohort = self._job.present(exchange)
        waiting: dict[int, Answer] = {}
        turn = iter(cohort)
        following = next(turn, None)
        for clients, steps in self._blocks(work, cohort, info):
            for answer in self._answers(work, clients, steps, request.exchange.down, info):
                waiting[answer.client] = answer
            while following in waiting:  # reduce in client order, whatever the blocks
                reduction.add(waiting.pop(following))
                following = next(turn, None)
        return reduction.reply()

    def _blocks(self, work: Work, cohort: list[int], info: Info) -> Iterator[tuple[list[int], list[Steps]]]:
        """Clients with the same number and sizes of batches, a few at a time."""
        alike: dict[tuple[int, ...], list[tuple[int, Steps]]] = {}
        for client in cohort:
            steps = self._job.steps(work, client, info)
            group = alike.setdefault(tuple(len(batch) for batches in steps for batch in batches), [])
            group.append((client, steps))
            if len(group) == self.num_rows:
                yield [c for c, _ in group], [s for _, s in group]
                group.clear()
        for group in alike.values():
            if group:
                yield [c for c, _ in group], [s for _, s in group]

    def _answers(self, work: Work, clients: list[int], steps: list[Steps], down: Tree, info: Info) -> Iterator[Answer]:
        job = self._job
        before = [job.kept.read(client) for client in clients]
        kept = {name: torch.stack([tree[name] for tree in before]) for name in before[0]}
        upload, after, efforts = self._perform(work, clients, steps, down, kept, info)
        upload = {name: _rows(value, len(clients)) for name, value in upload.items()}
        sizes = job.sizes(clients, info.round)
        for i, client in enumerate(clients):
            if after is not kept:
                job.kept.write(client, {name: _rows(value, len(clients))[i] for name, value in after.items()})
            mine = {name: rows[i] for name, rows in upload.items()}
            yield seal(work, Answer(client, int(sizes[i]), efforts[i], mine), down, info)

    def _perform(
        self, work: Work, clients: list[int], steps: list[Steps], down: Tree, kept: Tree, info: Info
    ) -> tuple[Tree, Tree, list[Effort]]:
        """The client half on a block: (upload, kept, what it took of each)."""
        job, dtype = self._job, self._job.network.dtype
        num_steps = len(steps[0])
        gradients = _Gradients(job, self._kernels, work, clients, info.round)
        column = torch.ones(len(clients), 1, dtype=dtype)
        context = Context(
            client=torch.tensor(clients).unsqueeze(1),
            round=info.round,
            rate=info.rate,
            num_clients=info.num_clients,
            step=0,
            num_samples=torch.tensor(gradients.sizes, dtype=dtype).unsqueeze(1),
            num_steps=column * 0,
            layout=job.network.layout,
            grad_at=gradients,
        )
        local = work.init(down, kept, context)
        if work.trains:
            check_stats(local, job.network, "init")
            # The engine's own copies: from here on y may be stepped in place.
            local = {
                **local,
                "y": _rows(local["y"], len(clients)).clone(),
                "stats": _rows(local["stats"], len(clients)),
            }
            gradients.stats = local["stats"]
        buffer = torch.empty_like(local["y"]) if work.affine and not work.gradient else None
        for number in range(num_steps):
            context = context._replace(step=number)
            batches = [np.stack([plan[number][i] for plan in steps]) for i in range(work.batches_per_step)]
            if work.gradient:
                gradient = work.gradient(local, batches, context)
            else:
                gradient = gradients(local["y"], batches[0], buffer)
            local = {**local, "stats": gradients.stats}
            if work.affine:
                decay, drift, scale = work.affine(local, context)
                if isinstance(decay, Tensor) or decay != 1.0:
                    local["y"].mul_(decay)
                if drift is not None:
                    local["y"].add_(drift)
                if isinstance(scale, Tensor):
                    local["y"].sub_(gradient.mul_(scale) if buffer is not None else gradient * scale)
                else:
                    local["y"].add_(gradient, alpha=-scale)
            elif work.step:
                local = work.step({**local, "raw": gradient}, gradient, context)
        upload, after = work.final(down, local, kept, context._replace(num_steps=column * num_steps))
        if work.trains:
            check_stats({**upload, **after}, job.network, "final")
        return upload, after, gradients.efforts(num_steps)


class _Gradients:
    """`grad_at` for a block of clients."""

    def __init__(self, job: Job, kernels: Kernels, work: Work, clients: list[int], round: int) -> None:
        self._job, self._kernels, self._penalty = job, kernels, work.penalty
        self._clients, self._round = clients, round
        self._samples: list[Samples] = []
        self.sizes = job.sizes(clients, round)
        self._starts = np.concatenate([[0], np.cumsum(self.sizes)])[:-1, None]
        self._all = Samples(torch.empty(0), torch.empty(0))
        self.stats = job.network.variables["stats"].expand(len(clients), -1)
        self._batches = np.zeros(len(clients), np.int64)
        self._grad_samples = np.zeros(len(clients), np.int64)
        self._losses: Tensor | None = None

    def __call__(self, x: Tensor, batch: Batch, out: Tensor | None = None) -> Tensor:
        if not self._samples:
            self._samples = [self._job.samples(client, self._round) for client in self._clients]
            self._all = Samples(*(torch.cat([sample[i] for sample in self._samples]) for i in (0, 1)))
        x = _rows(x, len(self._clients))
        gradient = torch.empty_like(x) if out is None else out
        losses = self._over_all(x, gradient) if batch is ALL else self._over_batch(x, batch, gradient)
        if self._losses is None:
            self._losses = losses
        return gradient

    def efforts(self, num_steps: int) -> list[Effort]:
        losses = [float("nan")] * len(self._clients) if self._losses is None else self._losses.tolist()
        counted = zip(self._batches.tolist(), self._grad_samples.tolist(), losses, strict=True)
        return [Effort(num_steps, batches, grad_samples, loss) for batches, grad_samples, loss in counted]

    def _over_batch(self, x: Tensor, batch: np.ndarray, out: Tensor) -> Tensor:
        self._count([batch.shape[1]] * len(self._clients))
        places = torch.from_numpy((batch + self._starts).reshape(-1))
        part = Samples(*(side.index_select(0, places).view(*batch.shape, *side.shape[1:]) for side in self._all))
        losses, self.stats = self._kernels.gradient(x, self.stats, part, out, self._penalty)
        return losses

    def _over_all(self, x: Tensor, out: Tensor) -> Tensor:
        """Clients have different numbers of samples: one at a time."""
        self._count([len(samples) for samples in self._samples])
        losses = []
        for i, samples in enumerate(self._samples):
            row, one = slice(i, i + 1), Samples(samples.x.unsqueeze(0), samples.y.unsqueeze(0))
            losses.append(self._kernels.gradient(x[row], self.stats[row], one, out[row], self._penalty)[0])
        return torch.cat(losses)

    def _count(self, num_samples: list[int]) -> None:
        self._grad_samples += num_samples
        self._batches += [
            self._job.num_batches(n, size) for n, size in zip(num_samples, self.sizes.tolist(), strict=True)
        ]


def _rows(value: Tensor, num_rows: int) -> Tensor:
    """A vector that all clients of the block share, as one row each."""
    return value.expand(num_rows, -1) if value.dim() == 1 else value
