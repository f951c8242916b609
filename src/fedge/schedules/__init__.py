"""Schedules by name: how much each round does, for any algorithm."""

from fedge.schedules.plan import SCHEDULES, Plan, ScheduleOptions
from fedge.schedules.rule import Amounts, Moment, Quantity, Seen

__all__ = ["SCHEDULES", "Amounts", "Moment", "Plan", "Quantity", "ScheduleOptions", "Seen"]
