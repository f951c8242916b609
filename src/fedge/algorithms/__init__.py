"""Algorithms by name: each a struct of options whose `build` makes it."""

from fedge.algorithms.ce_fedavg import CeFedAvg
from fedge.algorithms.dynavg import DynAvg
from fedge.algorithms.fedavg import Dsgd, FedAvg, FedSgd
from fedge.algorithms.independent import Independent
from fedge.algorithms.mfl import FedAvgAdam, Mfl
from fedge.algorithms.mtfl import mtfl
from fedge.algorithms.per_fedavg import PerFedAvg
from fedge.algorithms.private import Personal
from fedge.algorithms.reduced import REDUCERS, reduced
from fedge.algorithms.scaffold import Scaffold

ALGORITHMS = (FedAvg, FedSgd, Dsgd, Independent, Scaffold, Mfl, FedAvgAdam, CeFedAvg, PerFedAvg, DynAvg)

__all__ = ["ALGORITHMS", "REDUCERS", "Personal", "mtfl", "reduced"]
