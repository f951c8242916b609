"""Everything needed to write an algorithm: `from fedge.algorithm import ...`.

An algorithm is a class of options, derived from `TrainingOptions`, whose `build` returns an `Algorithm`.
docs/algorithm-in-80-lines.md shows how to write one; `fedge.testing` checks it in every engine.
"""

from typing import Annotated

from msgspec import Meta

from fedge.algorithms.fedavg import FedAvg, descend, global_model, keep_nothing, start
from fedge.algorithms.options import Adaptive, ClientAdaptive, TrainingOptions
from fedge.core.algorithm import Affine, Algorithm, Build, Context, Exchange, Info, Reply, Work
from fedge.core.keys import generator
from fedge.core.layout import Layout, Tree, nest, pick
from fedge.core.slots import Slot

__all__ = [
    "Adaptive",
    "Affine",
    "Algorithm",
    "Annotated",
    "Build",
    "ClientAdaptive",
    "Context",
    "Exchange",
    "FedAvg",
    "Info",
    "Layout",
    "Meta",
    "Reply",
    "Slot",
    "TrainingOptions",
    "Tree",
    "Work",
    "descend",
    "generator",
    "global_model",
    "keep_nothing",
    "nest",
    "pick",
    "start",
]
