"""Forecast the costs of an experiment before training."""

from fedge.costs.alternative_algorithms import Alternative, alternatives
from fedge.costs.forecast import Forecast, Quote

__all__ = ["Alternative", "Forecast", "Quote", "alternatives"]
