"""Algorithms by name: each a struct of options whose `build` makes it."""

from typing import get_args

from fedge.algorithms.ce_fedavg import CeFedAvg
from fedge.algorithms.dynavg import DynAvg
from fedge.algorithms.fedavg import Dsgd, FedAvg
from fedge.algorithms.fedsgd import FedSgd
from fedge.algorithms.independent import Independent
from fedge.algorithms.mfl import FedAvgAdam, Mfl
from fedge.algorithms.mtfl import mtfl
from fedge.algorithms.options import Training
from fedge.algorithms.per_fedavg import PerFedAvg
from fedge.algorithms.private import Personal
from fedge.algorithms.reduced import ReduceOptions, reduced
from fedge.algorithms.scaffold import Scaffold

AlgorithmOptions = FedAvg | FedSgd | Dsgd | Independent | Scaffold | Mfl | FedAvgAdam | CeFedAvg | PerFedAvg | DynAvg
ALGORITHMS: tuple[type[Training], ...] = get_args(AlgorithmOptions)

__all__ = ["ALGORITHMS", "AlgorithmOptions", "Personal", "ReduceOptions", "mtfl", "reduced"]
