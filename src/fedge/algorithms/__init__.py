"""Algorithms by name: each is a struct of options whose `build` returns the algorithm."""

from typing import get_args

from fedge.algorithms.ce_fedavg import CeFedAvg
from fedge.algorithms.cluster_division import Cluster
from fedge.algorithms.compose import compose
from fedge.algorithms.dynavg import DynAvg
from fedge.algorithms.dynavg_loss import DynAvgLoss
from fedge.algorithms.dynavg_svd import DynAvgSvd
from fedge.algorithms.fedavg import Dsgd, FedAvg, FedMax, FedProx
from fedge.algorithms.fedgbo import FedGbo
from fedge.algorithms.fedopt import FedAdam, FedAdamKDecay, FedOpt
from fedge.algorithms.fedsgd import FedSgd
from fedge.algorithms.independent import Independent
from fedge.algorithms.mfl import FedAvgAdam, Mfl
from fedge.algorithms.mimelite import Mimelite, MimeXlite
from fedge.algorithms.options import TrainingOptions
from fedge.algorithms.per_fedavg import PerFedAvg
from fedge.algorithms.periodic import Periodic
from fedge.algorithms.pfedme import PFedMe
from fedge.algorithms.private import Personal
from fedge.algorithms.reduced import ReduceOptions
from fedge.algorithms.scaffold import Scaffold
from fedge.core.codecs.chain import CodecOptions

AlgorithmOptions = (
    FedAvg
    | FedSgd
    | Dsgd
    | FedProx
    | FedMax
    | Independent
    | Scaffold
    | FedOpt
    | FedAdam
    | FedAdamKDecay
    | Mfl
    | FedAvgAdam
    | CeFedAvg
    | Mimelite
    | MimeXlite
    | FedGbo
    | PerFedAvg
    | PFedMe
    | Periodic
    | DynAvg
    | DynAvgSvd
    | DynAvgLoss
)
ALGORITHMS: tuple[type[TrainingOptions], ...] = get_args(AlgorithmOptions)

__all__ = ["ALGORITHMS", "AlgorithmOptions", "Cluster", "CodecOptions", "Personal", "ReduceOptions", "compose"]
