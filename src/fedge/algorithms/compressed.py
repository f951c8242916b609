"""Compression of uploads and downloads as a wrapper around any algorithm."""

from __future__ import annotations

import torch
from torch import Tensor

from fedge.core.algorithm import Algorithm, Build, Context, Work
from fedge.core.codecs.chain import Chain
from fedge.core.codecs.codec import RESIDUAL, ChainCodec
from fedge.core.errors import ConfigError
from fedge.core.layout import Layout, Tree, nest, pick
from fedge.core.slots import Slot


def compressed(inner: Build, up: Chain | None, moments: Chain | None, down: Chain | None) -> Build:
    """Return the algorithm with uploads compressed by the chains `up` and `moments`, and downloads by `down`."""
    if (moments and not moments.is_full) or (down and not down.is_full):
        raise ConfigError("codec: moments and down accept only a quantiser; sparsify and error_feedback are for up")

    def build(layout: Layout) -> Algorithm:
        algorithm = inner(layout)
        travels, slots = algorithm.travels or layout, algorithm.slots
        works = dict(algorithm.works)
        if down:
            whole = {name: slot._replace(anchor=None, moment=False) for name, slot in slots.items()}
            codec = ChainCodec(travels, whole, down)
            works = {name: work._replace(down_codec=codec) for name, work in works.items()}
        if up or moments:
            if any(work.codec for work in works.values()):
                raise ConfigError("codec: the algorithm compresses its uploads itself; drop codec.up and .moments")
            if up and up.sparsity is not None and any(slot.whole for slot in slots.values()):
                raise ConfigError("codec.up: sparsify drops changes, but this algorithm uploads whole models; drop it")
            codec = ChainCodec(travels, slots, up, moments)
            works = {name: work._replace(codec=codec) for name, work in works.items()}
            if up and up.error_feedback:
                return with_feedback(algorithm._replace(works=works), codec)
        return algorithm._replace(works=works)

    return build


def with_feedback(algorithm: Algorithm, codec: ChainCodec) -> Algorithm:
    """Return the algorithm with error feedback (Karimireddy et al. 2019, algorithm 2).

    Clients keep what a stream dropped and add it to their next change. The upload carries the residual to the codec,
    which adds it after MTFL may have cut both to the shared part.
    """

    def keep(variables: Tree) -> Tree:
        own = {name for name in algorithm.init(variables) if algorithm.slots[name].anchor != name}  # server state
        names = [name for name in codec.leads(algorithm.slots) if name not in own]
        zero = torch.zeros(codec.layout.num_params)
        return {**algorithm.keep(variables), **nest(RESIDUAL, dict.fromkeys(names, zero))}

    def wrap(work: Work) -> Work:
        def final(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
            upload, after = work.final(down, local, kept, ctx)
            before = pick(RESIDUAL, kept)
            sent = {name: before[name] for name in codec.leads(upload)}
            left = {name: lost(codec.change(name, upload[name], down, sent[name])) for name in sent}
            return {**upload, **nest(RESIDUAL, sent)}, {**after, **nest(RESIDUAL, {**before, **left})}

        return work._replace(final=final)

    def lost(change: Tensor) -> Tensor:
        rows = [codec.lost(row) for row in change.reshape(-1, codec.layout.num_params)]
        return torch.stack(rows).view(change.shape)

    return algorithm._replace(
        slots={**algorithm.slots, **{f"{RESIDUAL}.{name}": Slot("params") for name in codec.leads(algorithm.slots)}},
        keep=keep,
        works={name: wrap(work) for name, work in algorithm.works.items()},
    )
