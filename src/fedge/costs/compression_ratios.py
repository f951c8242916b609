"""Compression ratios of sparse uploads of a model, before training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fedge.core.codecs.chain import Chain, expected_bits
from fedge.core.codecs.golomb import bits_per_index
from fedge.core.codecs.quantise import ExpQ, UniQ
from fedge.core.layout import Layout

_DENSE_BITS = 32
_NUM_MOMENTS = 2
SPARSITIES = tuple(percent / 100 for percent in range(5, 100))


class Ratio(NamedTuple):
    """Compression ratios of sparse uploads if the fraction `sparsity` of each matrix is dropped."""

    sparsity: float
    bits_per_place: float  # bits per index of the Golomb code
    fedavg: float  # compression ratio of FedAvg
    ce_fedavg: float  # compression ratio of CE-FedAvg, relative to a dense upload with both moments


def ratios(layout: Layout) -> Iterator[Ratio]:
    """Yield the compression ratios of any model by sparsity, as in Mills (2023), figure 3.2."""
    dense = _DENSE_BITS * layout.num_params
    for sparsity in SPARSITIES:
        chain, moments = Chain(sparsity, UniQ(), golomb=True), Chain(quantiser=ExpQ())
        whole = (1 + _NUM_MOMENTS) * dense
        yield Ratio(
            sparsity,
            bits_per_index(sparsity),
            dense / expected_bits(chain, layout),
            whole / expected_bits(chain, layout, moments, _NUM_MOMENTS),
        )
