"""CE-FedAvg: FedAvg-Adam with uploads that are sparsified and quantised to 8 bits."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from fedge.algorithms.compressed import compressed
from fedge.algorithms.mfl import FedAvgAdam
from fedge.core.algorithm import Algorithm
from fedge.core.codecs.chain import Chain
from fedge.core.codecs.quantise import ExpQ, UniQ
from fedge.core.layout import Layout


class CeFedAvg(FedAvgAdam, tag="ce_fedavg"):
    """CE-FedAvg (Mills 2023, algorithm 2): uploads the largest weight changes, and the moments at the same indices."""

    sparsity: Annotated[float, Meta(ge=0, lt=1, description="fraction of each matrix's changes that is NOT sent")] = 0.6

    def build(self, layout: Layout) -> Algorithm:
        up, moments = Chain(self.sparsity, UniQ(), golomb=True), Chain(quantiser=ExpQ())
        return compressed(super().build, up, moments, down=None)(layout)
