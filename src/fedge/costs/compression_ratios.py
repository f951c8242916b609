"""How much smaller sparse uploads of a model are, before anything is trained."""

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
    """What sparse uploads of a model come to if the fraction `sparsity` of each matrix is dropped."""

    sparsity: float
    bits_per_place: float  # of Golomb's code
    fedavg: float  # how many times smaller an upload of FedAvg is
    ce_fedavg: float  # and of CE-FedAvg, beside a dense one with both moments


def ratios(layout: Layout) -> Iterator[Ratio]:
    """For any model (the thesis, figure 3.2)."""
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
