"""Small federations for tests: those of fedge.testing, and every algorithm with every wrapper."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedge.algorithms import ALGORITHMS
from fedge.algorithms.ce_fedavg import CeFedAvg
from fedge.algorithms.clustered import clustered
from fedge.algorithms.compose import trained
from fedge.algorithms.compressed import compressed
from fedge.algorithms.dynavg import DynAvg
from fedge.algorithms.dynavg_loss import DynAvgLoss
from fedge.algorithms.dynavg_svd import DynAvgSvd
from fedge.algorithms.fedavg import FedAvg
from fedge.algorithms.fedgbo import FedGbo
from fedge.algorithms.fedopt import FedOpt
from fedge.algorithms.fedsgd import FedSgd
from fedge.algorithms.local import maxent, momentum, pull
from fedge.algorithms.mfl import Mfl
from fedge.algorithms.mimelite import Mimelite, MimeXlite
from fedge.algorithms.mtfl import mtfl
from fedge.algorithms.per_fedavg import PerFedAvg
from fedge.algorithms.periodic import Periodic
from fedge.algorithms.pfedme import PFedMe
from fedge.algorithms.reduced import reduced
from fedge.algorithms.scaffold import Scaffold
from fedge.core.algorithm import Build, Costs, Exchange, Info, Reply
from fedge.core.codecs.chain import CodecOptions
from fedge.core.drive import Engine, Outcome, drive
from fedge.core.layout import Tree
from fedge.core.reduce import Krum, Median, TrimmedMean
from fedge.core.schema import tag
from fedge.data.clients import Samples
from fedge.testing.federation import (
    ENGINES as ENGINES,
)
from fedge.testing.federation import (
    Federation as Federation,
)
from fedge.testing.federation import (
    Handmade as Handmade,
)
from fedge.testing.federation import (
    batched_of as batched_of,
)
from fedge.testing.federation import (
    dense as dense,
)
from fedge.testing.federation import (
    make_engine as make_engine,
)
from fedge.testing.federation import (
    make_sides as make_sides,
)
from fedge.testing.federation import (
    mixed as mixed,
)
from fedge.testing.federation import (
    normed as normed,
)
from fedge.testing.federation import (
    points as points,
)
from fedge.testing.federation import (
    slope as slope,
)

CODINGS = {
    "sparse": {"up": ["error_feedback", "sparsify(0.6)", "uniq", "golomb"], "moments": ["expq"]},
    "full": {"up": ["qsgd(8)"], "down": ["fp16"]},
}
"""Compression of uploads and downloads, with every kind of stage."""


class Pair(nn.Module):
    """Two independent weights w, both 1: the gradient of each is w - b."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.own = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x * self.shared, x * self.own], -1)


def pairs(*targets: float) -> Handmade:
    """Return one client per b, which is the target of both weights."""
    one = torch.ones(1, 1)
    return Handmade([Samples(one, torch.tensor([[float(b)] * 2])) for b in targets], 2, "values")


class Sign(nn.Module):
    """Predicts class 0 for inputs with the sign of its weight, which starts at 1."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.w * x, -self.w * x], -1)


def pair() -> nn.Module:
    """Return a model with two weights, both 1."""
    module = nn.Sequential(nn.Linear(2, 1, bias=False))
    nn.init.ones_(module[0].weight)
    return module


def crossed() -> Handmade:
    """Return two clients with inputs (2, 1) and (1, 2) and target 2: at weights (w, w) the error is 3w - 2."""
    two = torch.tensor([[2.0]])
    return Handmade([Samples(torch.tensor([x]), two) for x in ((2.0, 1.0), (1.0, 2.0))], 1, "values")


class Losing:
    """An engine in which some clients do not answer some works, chosen by name."""

    def __init__(self, engine: Engine, silent: Callable[[str, Info], Collection[int]]) -> None:
        self._engine, self._silent = engine, silent

    def run(self, exchanges: Sequence[Exchange], infos: Sequence[Info]) -> Sequence[Reply]:
        return self._engine.run([self._cut(*each) for each in zip(exchanges, infos, strict=True)], infos)

    def _cut(self, exchange: Exchange, info: Info) -> Exchange:
        silent = self._silent(exchange.work, info)
        return exchange._replace(cohort=[client for client in exchange.cohort if client not in silent])


def record_rounds(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[Outcome]:
    """Record the outcomes of all rounds that the module drives from now on."""
    outcomes: list[Outcome] = []

    def watched(*args: Any) -> list[Outcome]:
        found = drive(*args)
        outcomes.extend(found)
        return found

    monkeypatch.setattr(module, "drive", watched)
    return outcomes


class Scripted:
    """An engine without training, for a model of one weight: everything that the server receives is given.

    `talked` lists the clients of each round whose models were requested.
    """

    def __init__(self, loss: Callable[[int, int], float] = lambda round, client: 1.0, q: Sequence[int] = ()) -> None:
        self._loss, self._q = loss, q
        self.talked: defaultdict[int, list[int]] = defaultdict(list)

    def run(self, exchanges: Sequence[Exchange], infos: Sequence[Info]) -> list[Reply]:
        return [self._answer(exchange, info) for exchange, info in zip(exchanges, infos, strict=True)]

    def _answer(self, exchange: Exchange, info: Info) -> Reply:
        ids, work = tuple(sorted(exchange.cohort)), exchange.work
        value: Tree = {}
        if work == "pull":
            self.talked[info.round] += ids
            value = {"y": torch.ones(1), "stats": torch.zeros(0)}
        elif work == "measure":
            value = {"q": torch.tensor([[self._q[client]] for client in ids])}
        losses = [self._loss(info.round, client) if work == "train" else np.nan for client in ids]
        if work == "train":
            value = {"loss": torch.tensor(losses).unsqueeze(1)}
        costs = Costs.free(len(ids))
        return Reply(value, ids, np.ones(len(ids)), (), costs, np.array(losses), communicated=work == "pull")


def _plain() -> dict[str, Build]:
    """Return every algorithm, and variants with options that change the results."""
    found: dict[str, Build] = {tag(kind): trained(kind()) for kind in ALGORITHMS}
    found |= {
        "scaffold(I)": Scaffold(option="I").build,
        "per_fedavg(free)": PerFedAvg(hessian="free").build,
        "fedsgd(gradient_sum)": FedSgd(pseudo="gradient_sum").build,
        "periodic(2)": Periodic(period=2).build,
        "dynavg(0.02)": DynAvg(delta=0.02).build,
        "dynavg(adam)": DynAvg(delta=0.02, optimiser="adam").build,
        "dynavg_svd(document)": DynAvgSvd(epochs=3, rule="document").build,
        "dynavg_loss(document)": DynAvgLoss(epochs=3, rule="document").build,
        "pfedme(w)": PFedMe(start="w").build,
        "ce_fedavg(0.9)": CeFedAvg(sparsity=0.9).build,
    }
    for kind in (Mfl, FedGbo, Mimelite, MimeXlite):
        found |= {f"{tag(kind)}({name})": kind(optimiser=name).build for name in ("sgdm", "rmsprop")}
    found |= {f"fedopt({name})": FedOpt(optimiser=name).build for name in ("sgdm", "rmsprop", "adagrad", "yogi")}
    return found


def _locally(plain: dict[str, Build]) -> dict[str, Build]:
    """Return wrappers of local training around algorithms with each kind of step."""
    inner = {name: plain[name] for name in ("fedavg", "scaffold", "fedavg_adam", "fedgbo", "per_fedavg", "pfedme")}
    found = {f"prox({name})": pull(build, 0.5, to_start=True) for name, build in inner.items()}
    found |= {f"weight_decay({name})": pull(build, 0.5, to_start=False) for name, build in inner.items()}
    found |= {f"momentum({name})": momentum(build, 0.9) for name, build in inner.items()}
    found |= {f"maxent({name})": maxent(build, 0.5) for name, build in inner.items()}
    found["all(fedavg)"] = trained(FedAvg(momentum=0.5, weight_decay=0.1, prox=0.2, maxent=0.3))
    return found


def _builds() -> dict[str, Build]:
    plain = _plain()
    wrapped = {f"mtfl({name}, bn)": mtfl(plain[name], "bn") for name in SINGLE}
    wrapped |= {
        f"mtfl({name}, {private})": mtfl(plain[name], private)
        for name in ("fedavg", "fedsgd", "scaffold", "fedavg_adam", "mimelite", "fedgbo", "pfedme", "ce_fedavg")
        for private in ("bn_params", "bn_stats", ["1.*", "4.bias"])
    }
    robust = {
        f"{label}({name})": reduced(plain[name], reduce)
        for name in ("fedavg", "scaffold", "fedavg_adam")
        for label, reduce in (("median", Median), ("trimmed_mean", TrimmedMean), ("krum", Krum))
    }
    locally = _locally(plain)
    divisible = {name: (plain | wrapped)[name] for name in ("fedavg", "scaffold", "mtfl(fedavg_adam, bn)")}
    clusters = {  # SCAFFOLD's c is a sum over all clients, which can only be split in round 1
        f"clustered({name})": clustered(build, 2, when=1 if name == "scaffold" else 2)
        for name, build in divisible.items()
    }
    nested = {"mtfl(all(fedavg), bn)": mtfl(locally["all(fedavg)"], "bn")}
    coded = {
        f"codec({name}, {label})": compressed(build, *CodecOptions(**stages).chains)
        for name, build in ((n, (plain | wrapped)[n]) for n in ("fedavg", "scaffold", "mtfl(mfl, bn)"))
        for label, stages in CODINGS.items()
    }
    return plain | wrapped | robust | locally | clusters | nested | coded


SINGLE = [name for name in _plain() if not name.startswith(("periodic", "dynavg"))]
"""Algorithms with one exchange per round."""

PLAIN = tuple(_plain())
"""Algorithms without wrappers."""

BUILDS = _builds()
"""Every algorithm and every wrapper around it."""

SAMPLE = {*PLAIN, *{name.partition("(")[0]: name for name in reversed(BUILDS) if name not in PLAIN}.values()}
"""Every algorithm, and every wrapper around one of them."""


def sampled(names: Iterable[str] = BUILDS) -> list[Any]:
    """Return builds as parameters of a test; those outside the sample run only in the full tests."""
    return [pytest.param(name, marks=[] if name in SAMPLE else [pytest.mark.full]) for name in names]
