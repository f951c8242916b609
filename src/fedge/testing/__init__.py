"""Tools for testing algorithms: tiny federations, and the contract that every algorithm must satisfy.

from fedge.testing import Federation, check_contract, points, slope
check_contract(Mine())
"""

from fedge.testing.contract import CONTRACT, assert_close, assert_same, check_contract
from fedge.testing.federation import ENGINES, Federation, Handmade, dense, mixed, normed, points, slope

__all__ = [
    "CONTRACT",
    "ENGINES",
    "Federation",
    "Handmade",
    "assert_close",
    "assert_same",
    "check_contract",
    "dense",
    "mixed",
    "normed",
    "points",
    "slope",
]
