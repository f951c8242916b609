"""Mills (2023), figure 3.2: in a model of one large matrix, the overhead per tensor is negligible."""

import pytest
import torch
from torch import nn

from fedge.core.layout import Layout
from fedge.costs.compression_ratios import ratios


def test_ratios_of_a_large_matrix() -> None:
    with torch.device("meta"):
        layout = Layout.of(nn.Linear(4000, 1000, bias=False))
    found = {ratio.sparsity: ratio for ratio in ratios(layout)}
    # the published values, without the overhead of each tensor
    for sparsity, bits, fedavg, ce_fedavg in (
        (0.6, 2.5, 7.619, 9.057),
        (0.9, 4.7558, 25.087, 33.385),
        (0.95, 5.7861, 46.424, 64.460),
    ):
        assert found[sparsity].bits_per_place == pytest.approx(bits, abs=1e-4)
        assert found[sparsity].fedavg == pytest.approx(fedavg, rel=1e-3)
        assert found[sparsity].ce_fedavg == pytest.approx(ce_fedavg, rel=1e-3)


def test_biases_lower_the_ratio() -> None:
    """They are sent dense, in 8 bits."""
    with torch.device("meta"):
        few, many = (Layout.of(nn.Linear(100, 10, bias=bias)) for bias in (False, True))
    for without, having in zip(ratios(few), ratios(many), strict=True):
        assert having.fedavg < without.fedavg
