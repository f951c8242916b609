"""Small federations for tests: data by hand, every algorithm, every engine."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn

from fedge.algorithms import ALGORITHMS, mtfl, reduced
from fedge.algorithms.ce_fedavg import CeFedAvg
from fedge.algorithms.dynavg import DynAvg
from fedge.algorithms.fedsgd import FedSgd
from fedge.algorithms.per_fedavg import PerFedAvg
from fedge.algorithms.scaffold import Scaffold
from fedge.core.algorithm import Build, Engine, Info, Outcome, drive
from fedge.core.layout import Tree
from fedge.core.reduce import Median, TrimmedMean
from fedge.data.clients import Samples
from fedge.engines.block import Block
from fedge.engines.job import Job
from fedge.engines.kernels.assemble import Kernels, assemble
from fedge.engines.loop import Loop
from fedge.engines.network import Network
from fedge.engines.wire import Wire
from fedge.runs.kept import KeptStore

ENGINES = ("loop", "wire", "block")


class Handmade:
    """Clients whose samples are given."""

    def __init__(self, samples: Sequence[Samples], num_outputs: int, regression: bool = False) -> None:
        self._samples = list(samples)
        self.shape = tuple(samples[0].x.shape[1:])
        self.num_outputs, self.regression = num_outputs, regression
        self.sizes = np.array([len(part) for part in samples])

    def train(self, client: int) -> Samples:
        return self._samples[client]

    test = train

    def pooled_test(self) -> Samples:
        return Samples(*(torch.cat([part[i] for part in self._samples]) for i in (0, 1)))


def points(*targets: float) -> Handmade:
    """One client for each target b, with one sample: under `slope` its loss is (w - b)^2/2 and its gradient w - b."""
    one = torch.ones(1, 1)
    return Handmade([Samples(one, torch.tensor([[float(b)]])) for b in targets], 1, regression=True)


def mixed(sizes: Sequence[int] = (6, 9, 9, 1), classes: int = 3, features: int = 8) -> Handmade:
    """Clients of different sizes with random samples, one of them with a single one."""
    rng = np.random.default_rng(3)
    return Handmade(
        [
            Samples(
                torch.from_numpy(rng.standard_normal((n, features))).float(),
                torch.from_numpy(rng.integers(0, classes, n)),
            )
            for n in sizes
        ],
        classes,
    )


def slope() -> nn.Module:
    """One weight w, which starts at 1: the output is w * x."""
    module = nn.Sequential(nn.Linear(1, 1, bias=False))
    nn.init.ones_(module[0].weight)
    return module


def normed() -> nn.Module:
    """A small network with BatchNorm, all of whose layers have kernels.

    There is no bias before BatchNorm: its true gradient is 0, and Adam that starts at v = 0 would amplify the
    rounding noise, which differs from engine to engine, to steps of full size.
    """
    return nn.Sequential(nn.Flatten(), nn.Linear(8, 6, bias=False), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


def dense() -> nn.Module:
    """A small network without BatchNorm."""
    return nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))


def make_job(
    build: Build,
    clients: Handmade,
    make: Callable[[], nn.Module] = normed,
    batch_size: int = 4,
    dtype: torch.dtype = torch.float64,
) -> Job:
    network = Network(make, 1, clients.regression, dtype)
    algorithm = build(network.layout)
    return Job(algorithm, network, clients, KeptStore(algorithm.keep(network.variables), None), batch_size, 100)


def make_engine(name: str, job: Job, make_client_job: Callable[[], Job], num_rows: int = 2) -> Engine:
    if name == "loop":
        return Loop(job)
    if name == "wire":
        return Wire(job, make_client_job)
    kernels = assemble(job.network)
    assert isinstance(kernels, Kernels), kernels
    engine = Block(job, kernels)
    engine.num_rows = num_rows
    return engine


class Federation:
    """An algorithm on clients in an engine, round by round."""

    def __init__(
        self, build: Build, clients: Handmade, engine: str = "loop", rate: float = 0.1, **options: object
    ) -> None:
        steps, epochs = options.pop("steps", 3), options.pop("epochs", None)
        self.job = make_job(build, clients, **options)  # type: ignore[arg-type]
        self.engine = make_engine(engine, self.job, lambda: make_job(build, clients, **options))  # type: ignore[arg-type]
        self.state = self.job.algorithm.init(self.job.network.variables)
        self.info = Info(
            round=0,
            rate=rate,
            num_steps=None if epochs else steps,  # type: ignore[arg-type]
            num_epochs=epochs,  # type: ignore[arg-type]
            num_clients=len(clients.sizes),
            seed=7,
            cohort=tuple(range(len(clients.sizes))),
        )

    def round(self, cohort: Sequence[int] | None = None) -> Outcome:
        self.info = self.info._replace(round=self.info.round + 1)
        info = self.info if cohort is None else self.info._replace(cohort=tuple(cohort))
        (outcome,) = drive(self.engine, self.job.algorithm, [self.state], [info])
        self.state = outcome.state
        return outcome

    def rounds(self, number: int) -> "Federation":
        for _ in range(number):
            self.round()
        return self

    def everything(self) -> Tree:
        """Server state and all kept state, by name."""
        found = dict(self.state)
        for client in range(len(self.job.clients.sizes)):
            found |= {f"{client}/{name}": value for name, value in self.job.kept.read(client).items()}
        return found

    def weight(self) -> float:
        """The global model's only weight, for the federations made of `points` and `slope`."""
        return float(self.job.algorithm.model(self.state, self.job.network.variables)["x"])


def _builds() -> dict[str, Build]:
    plain: dict[str, Build] = {kind.__struct_config__.tag: kind().build for kind in ALGORITHMS}
    plain |= {
        "scaffold(I)": Scaffold(option="I").build,
        "per_fedavg(free)": PerFedAvg(hessian="free").build,
        "fedsgd(gradient_sum)": FedSgd(pseudo="gradient_sum", server_learning_rate=0.05).build,
        "dynavg(0.02)": DynAvg(delta=0.02).build,
        "ce_fedavg(0.9)": CeFedAvg(sparsity=0.9).build,
    }
    wrapped = {
        f"mtfl({name}, {private})": mtfl(build, private)
        for name, build in plain.items()
        if not name.startswith("dynavg")
        for private in ("bn", "bn_params", "bn_stats", ["1.*", "4.bias"])
    }
    robust = {
        f"{label}({name})": reduced(plain[name], reduce)
        for name in ("fedavg", "scaffold", "fedavg_adam")
        for label, reduce in (("median", Median), ("trimmed_mean", TrimmedMean))
    }
    return plain | wrapped | robust


BUILDS = _builds()
"""Every algorithm and every wrapper around it."""
