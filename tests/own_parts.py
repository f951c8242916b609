"""A user's file with a part of every kind, and an experiment that names them all."""

from pathlib import Path
from typing import Any

MINE = '''
from __future__ import annotations

import numpy as np
import torch
from torch import nn

from fedge.algorithm import *
from fedge.core.codecs.quantise import QuantiserStage
from fedge.data.divided_dataset import Divided
from fedge.data.partition import Partitioner, Split
from fedge.data.whole import SamplePool, Whole
from fedge.edge.selection import Uniform
from fedge.metrics import Metric
from fedge.models.model import Model
from fedge.schedules.rule import Rule

from mine_helper import momentum


class FedAvgM(TrainingOptions):
    """FedAvg with server momentum."""

    beta: Annotated[float, Meta(ge=0, lt=1, description="share of the previous change")] = 0.9

    def build(self, layout: Layout) -> Algorithm:
        inner = FedAvg(weighting=self.weighting).build(layout)

        def init(variables: Tree) -> Tree:
            return {**variables, "v": torch.zeros_like(variables["x"])}

        def round(state: Tree, info: Info):
            reply = yield Exchange("train", {"x": state["x"], "stats": state["stats"]}, info.cohort)
            v = momentum(self.beta, state["v"], state["x"] - reply.value["y"])
            return {"x": state["x"] - v, "v": v, "stats": reply.value["stats"]}

        return inner._replace(slots={**inner.slots, "v": Slot("params")}, init=init, round=round)


class Net(Model):
    """One hidden layer."""

    width: Annotated[int, Meta(ge=1, description="units of the hidden layer")] = 4

    def network(self, shape, num_outputs):
        first = nn.Linear(int(np.prod(shape)), self.width)
        return nn.Sequential(nn.Flatten(), first, nn.Linear(self.width, num_outputs))


def build(shape, num_outputs, width=3):
    return Net(width=width).network(shape, num_outputs)


class Blobs(Divided):
    """Two clouds of points."""

    size: Annotated[int, Meta(ge=8, description="number of samples")] = 40

    def whole(self, train=True):
        rng = np.random.default_rng(0)
        y = torch.arange(self.size) % 2
        x = torch.from_numpy(rng.normal(size=(self.size, 3)).astype(np.float32)) + y[:, None]
        return Whole(SamplePool(x, y), SamplePool(x, y), num_outputs=2)


def load(size=40):
    pools = Blobs(size=size).whole()
    return pools.train.x, pools.train.y, pools.test.x, pools.test.y


class Dealt(Partitioner):
    """Client i gets samples i, i + n, ..."""

    offset: Annotated[int, Meta(ge=0, description="offset of the first sample")] = 0

    def split(self, train, test, num_clients, rng):
        def deal(labels):
            owner = (np.arange(len(labels.y)) + self.offset) % num_clients
            return [np.flatnonzero(owner == client) for client in range(num_clients)]

        return Split(deal(train), deal(test))


class Last(Uniform):
    """The last clients."""

    def select(self, able, number, seed, round, cell):
        return able[-number:]


class Halved(Rule):
    """Half of the value after a given round."""

    after: Annotated[int, Meta(ge=1, description="last round with the full value")] = 1

    def value(self, quantity, amounts, moment, state):
        return amounts.of(quantity) * (0.5 if moment.round > self.after else 1)


class Sign(QuantiserStage):
    """The sign of each value, and one magnitude for all."""

    scale: Annotated[float, Meta(gt=0, description="factor of the magnitude")] = 1.0
    bits, num_bounds = 1, 1

    def encode(self, values, rng):
        size = np.abs(values).mean() if len(values) else 0
        return np.packbits(values > 0), np.array([self.scale * size], np.float32)

    def decode(self, codes, bounds, count):
        return np.where(np.unpackbits(codes)[:count], bounds[0], -bounds[0])


class Error(Metric):
    """The share of wrong answers."""

    better, low, high = "lower", 0.0, 1.0
    per_sample = (0.0, 1.0)
    weight: Annotated[float, Meta(gt=0, le=1, description="weight of a wrong answer")] = 1.0

    def count(self, outputs, targets):
        wrong = (outputs.argmax(-1) != targets).double() * self.weight
        return {"wrong": wrong.sum().reshape(1), "all": wrong.new_tensor([len(targets)])}

    def value(self, sums):
        return float(sums["wrong"] / sums["all"])


def half_error(weight=0.5):
    return Error(weight=weight)


not_a_part = 3


class Plain:
    pass
'''

HELPER = """
def momentum(beta, v, change):
    return beta * v + change
"""

SETTINGS: dict[str, dict[str, Any]] = {
    "algorithm": {"algorithm": {"name": "mine.py:FedAvgM", "beta": 0.5}},
    "model": {"model": {"name": "mine.py:Net", "width": 5}},
    "model function": {"model": {"name": "mine.py:build", "options": {"width": 5}}},
    "data": {"data": {"name": "mine.py:Blobs", "size": 60, "clients": 4}},
    "data function": {"data": {"name": "mine.py:load", "options": {"size": 60}, "clients": 4}},
    "partition": {"data": {"name": "digits", "clients": 4, "partition": {"name": "mine.py:Dealt", "offset": 1}}},
    "selection": {"selection": {"name": "mine.py:Last", "count": 2}},
    "schedule": {"schedule": {"learning_rate": {"name": "mine.py:Halved", "after": 2}}},
    "schedule in a product": {
        "schedule": {"learning_rate": {"name": "product", "rules": ["mine.py:Halved", {"name": "exp", "decay": 0.9}]}}
    },
    "metric": {"evaluate": {"metrics": ["f1", {"name": "mine.py:Error", "weight": 0.5}]}},
    "metric function": {"evaluate": {"metrics": [{"name": "mine.py:half_error", "options": {"weight": 0.25}}]}},
    "codec": {"codec": {"up": ["sparsify(0.5)", "mine.py:Sign(2.0)"], "down": ["mine.py:Sign(scale = 0.5)"]}},
}
"""Settings that name each kind of part, relative to the folder of the file."""

BASE: dict[str, Any] = {
    "name": "own",
    "rounds": 2,
    "data": {"name": "digits", "clients": 4},
    "model": "logistic",
    "algorithm": {"name": "fedavg", "local_steps": 1},
    "engine": {"name": "loop"},
}


def write_own(folder: Path) -> Path:
    """Write the file and its imports; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mine_helper.py").write_text(HELPER)
    (folder / "mine.py").write_text(MINE)
    return folder / "mine.py"
