"""Federated learning for the network edge.

import fedge
experiment = fedge.Experiment(data="digits", clients=20, model="mnist_2nn", algorithm=fedge.FedAvg(learning_rate=0.1))
run = experiment.run(rounds=20)
run.rounds, run.summary, run.model
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from fedge.algorithms.ce_fedavg import CeFedAvg as CeFedAvg
    from fedge.algorithms.cluster_division import Cluster as Cluster
    from fedge.algorithms.dynavg import DynAvg as DynAvg
    from fedge.algorithms.dynavg_loss import DynAvgLoss as DynAvgLoss
    from fedge.algorithms.dynavg_svd import DynAvgSvd as DynAvgSvd
    from fedge.algorithms.fedavg import Dsgd as Dsgd
    from fedge.algorithms.fedavg import FedAvg as FedAvg
    from fedge.algorithms.fedavg import FedMax as FedMax
    from fedge.algorithms.fedavg import FedProx as FedProx
    from fedge.algorithms.fedgbo import FedGbo as FedGbo
    from fedge.algorithms.fedopt import FedAdam as FedAdam
    from fedge.algorithms.fedopt import FedAdamKDecay as FedAdamKDecay
    from fedge.algorithms.fedopt import FedOpt as FedOpt
    from fedge.algorithms.fedsgd import FedSgd as FedSgd
    from fedge.algorithms.independent import Independent as Independent
    from fedge.algorithms.mfl import FedAvgAdam as FedAvgAdam
    from fedge.algorithms.mfl import Mfl as Mfl
    from fedge.algorithms.mimelite import Mimelite as Mimelite
    from fedge.algorithms.mimelite import MimeXlite as MimeXlite
    from fedge.algorithms.per_fedavg import PerFedAvg as PerFedAvg
    from fedge.algorithms.periodic import Periodic as Periodic
    from fedge.algorithms.pfedme import PFedMe as PFedMe
    from fedge.algorithms.private import Personal as Personal
    from fedge.algorithms.reduced import ByKrum as ByKrum
    from fedge.algorithms.reduced import ByMean as ByMean
    from fedge.algorithms.reduced import ByMedian as ByMedian
    from fedge.algorithms.reduced import ByTrimmedMean as ByTrimmedMean
    from fedge.algorithms.scaffold import Scaffold as Scaffold
    from fedge.api.experiment import Experiment as Experiment
    from fedge.api.functions import resume as resume
    from fedge.api.functions import run as run
    from fedge.api.functions import sweep as sweep
    from fedge.api.run import Run as Run
    from fedge.api.run import Runs as Runs
    from fedge.api.run import find_runs as find_runs
    from fedge.api.run import plot as plot
    from fedge.api.stepping import Callback as Callback
    from fedge.api.stepping import Rounds as Rounds
    from fedge.api.stepping import Stop as Stop
    from fedge.config import BudgetOptions as BudgetOptions
    from fedge.config import CheckpointOptions as CheckpointOptions
    from fedge.config import Config as Config
    from fedge.config import EngineOptions as EngineOptions
    from fedge.config import EvaluateOptions as EvaluateOptions
    from fedge.config import TargetOptions as TargetOptions
    from fedge.config import TraceOptions as TraceOptions
    from fedge.core.codecs.chain import CodecOptions as CodecOptions
    from fedge.core.errors import ConfigError as ConfigError
    from fedge.core.errors import DataError as DataError
    from fedge.core.errors import FedgeError as FedgeError
    from fedge.core.errors import ModelError as ModelError
    from fedge.core.errors import RunError as RunError
    from fedge.core.errors import TrainingError as TrainingError
    from fedge.core.progress import Progress as Progress
    from fedge.core.track_options import TrackMlflow as TrackMlflow
    from fedge.core.track_options import TrackTensorBoard as TrackTensorBoard
    from fedge.core.track_options import TrackWandb as TrackWandb
    from fedge.data.augment import Augment as Augment
    from fedge.data.cifar import Cifar10 as Cifar10
    from fedge.data.cifar import Cifar100 as Cifar100
    from fedge.data.digits import Digits as Digits
    from fedge.data.divided_dataset import Noise as Noise
    from fedge.data.drift import Arriving as Arriving
    from fedge.data.drift import FeatureShift as FeatureShift
    from fedge.data.drift import LabelShift as LabelShift
    from fedge.data.femnist import Femnist as Femnist
    from fedge.data.huggingface import HuggingFace as HuggingFace
    from fedge.data.images import Images as Images
    from fedge.data.in_memory import Arrays as Arrays
    from fedge.data.in_memory import ClientSets, FrameTable
    from fedge.data.mnist import FashionMnist as FashionMnist
    from fedge.data.mnist import Mnist as Mnist
    from fedge.data.normalise import Scaling as Scaling
    from fedge.data.partition import Classes as Classes
    from fedge.data.partition import Dirichlet as Dirichlet
    from fedge.data.partition import Iid as Iid
    from fedge.data.partition import Natural as Natural
    from fedge.data.partition import Pachinko as Pachinko
    from fedge.data.partition import Shards as Shards
    from fedge.data.partition import Sorted as Sorted
    from fedge.data.partition import Spatial as Spatial
    from fedge.data.partition import Unbalanced as Unbalanced
    from fedge.data.sent140 import Sent140 as Sent140
    from fedge.data.shakespeare import Shakespeare as Shakespeare
    from fedge.data.stackoverflow import StackOverflow as StackOverflow
    from fedge.data.synthetic import Synthetic as Synthetic
    from fedge.edge.cells import CellClock as CellClock
    from fedge.edge.clock import FixedClock as FixedClock
    from fedge.edge.selection import FedCS as FedCS
    from fedge.edge.selection import Uniform as Uniform
    from fedge.models.convolutional import Cifar100Cnn as Cifar100Cnn
    from fedge.models.convolutional import CifarCnn as CifarCnn
    from fedge.models.convolutional import DynavgCnn as DynavgCnn
    from fedge.models.convolutional import FemnistCnn as FemnistCnn
    from fedge.models.convolutional import HflCnn as HflCnn
    from fedge.models.convolutional import MnistCnn as MnistCnn
    from fedge.models.convolutional import MtflCnn as MtflCnn
    from fedge.models.dense import BagOfWords as BagOfWords
    from fedge.models.dense import FemnistDnn as FemnistDnn
    from fedge.models.dense import Linear as Linear
    from fedge.models.dense import Logistic as Logistic
    from fedge.models.dense import Mnist2nn as Mnist2nn
    from fedge.models.dense import Mtfl2nn as Mtfl2nn
    from fedge.models.dense import Nn as Nn
    from fedge.models.mobilenet import MobilenetV2 as MobilenetV2
    from fedge.models.recurrent import ShakespeareGru as ShakespeareGru
    from fedge.report.frames import load as load
    from fedge.schedules.derived import Hyperbolic as Hyperbolic
    from fedge.schedules.derived import Optimal as Optimal
    from fedge.schedules.measured import ErrorRule as ErrorRule
    from fedge.schedules.measured import StepRule as StepRule
    from fedge.schedules.plan import SchedulePlan as SchedulePlan
    from fedge.schedules.product import Product as Product
    from fedge.schedules.timed import BatchScaled as BatchScaled
    from fedge.schedules.timed import Exp as Exp
    from fedge.schedules.timed import Fixed as Fixed
    from fedge.schedules.timed import PostLocal as PostLocal
    from fedge.schedules.timed import RoundsRule as RoundsRule
    from fedge.schedules.timed import Warmup as Warmup

    Clients, Table = ClientSets, FrameTable

_HOMES = {
    "algorithms.ce_fedavg": "CeFedAvg",
    "algorithms.cluster_division": "Cluster",
    "algorithms.dynavg": "DynAvg",
    "algorithms.dynavg_loss": "DynAvgLoss",
    "algorithms.dynavg_svd": "DynAvgSvd",
    "algorithms.fedavg": "Dsgd FedAvg FedMax FedProx",
    "algorithms.fedgbo": "FedGbo",
    "algorithms.fedopt": "FedAdam FedAdamKDecay FedOpt",
    "algorithms.fedsgd": "FedSgd",
    "algorithms.independent": "Independent",
    "algorithms.mfl": "FedAvgAdam Mfl",
    "algorithms.mimelite": "MimeXlite Mimelite",
    "algorithms.per_fedavg": "PerFedAvg",
    "algorithms.periodic": "Periodic",
    "algorithms.pfedme": "PFedMe",
    "algorithms.private": "Personal",
    "algorithms.reduced": "ByKrum ByMean ByMedian ByTrimmedMean",
    "algorithms.scaffold": "Scaffold",
    "api.experiment": "Experiment",
    "api.functions": "resume run sweep",
    "api.run": "Run Runs find_runs plot",
    "api.stepping": "Callback Rounds Stop",
    "config": "BudgetOptions CheckpointOptions Config EngineOptions EvaluateOptions TargetOptions TraceOptions",
    "core.codecs.chain": "CodecOptions",
    "core.errors": "ConfigError DataError FedgeError ModelError RunError TrainingError",
    "core.progress": "Progress",
    "core.track_options": "TrackMlflow TrackTensorBoard TrackWandb",
    "data.augment": "Augment",
    "data.cifar": "Cifar10 Cifar100",
    "data.digits": "Digits",
    "data.divided_dataset": "Noise",
    "data.drift": "Arriving FeatureShift LabelShift",
    "data.femnist": "Femnist",
    "data.huggingface": "HuggingFace",
    "data.images": "Images",
    "data.in_memory": "Arrays",
    "data.mnist": "FashionMnist Mnist",
    "data.normalise": "Scaling",
    "data.partition": "Classes Dirichlet Iid Natural Pachinko Shards Sorted Spatial Unbalanced",
    "data.sent140": "Sent140",
    "data.shakespeare": "Shakespeare",
    "data.stackoverflow": "StackOverflow",
    "data.synthetic": "Synthetic",
    "edge.cells": "CellClock",
    "edge.clock": "FixedClock",
    "edge.selection": "FedCS Uniform",
    "models.convolutional": "Cifar100Cnn CifarCnn DynavgCnn FemnistCnn HflCnn MnistCnn MtflCnn",
    "models.dense": "BagOfWords FemnistDnn Linear Logistic Mnist2nn Mtfl2nn Nn",
    "models.mobilenet": "MobilenetV2",
    "models.recurrent": "ShakespeareGru",
    "report.frames": "load",
    "schedules.derived": "Hyperbolic Optimal",
    "schedules.measured": "ErrorRule StepRule",
    "schedules.plan": "SchedulePlan",
    "schedules.product": "Product",
    "schedules.timed": "BatchScaled Exp Fixed PostLocal RoundsRule Warmup",
}
"""The submodules that define the public names."""

_RENAMED = {"Clients": ("data.in_memory", "ClientSets"), "Table": ("data.in_memory", "FrameTable")}

_PUBLIC = {name: (home, name) for home, names in _HOMES.items() for name in names.split()} | _RENAMED

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import fedge` and `fedge --help` stay fast."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'fedge' has no attribute {name!r}")
    home, own = _PUBLIC[name]
    found = globals()[name] = getattr(import_module(f"fedge.{home}"), own)
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
