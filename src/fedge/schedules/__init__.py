"""Schedules by name: how much each round does, for any algorithm."""

from fedge.schedules.plan import SCHEDULES, SchedulePlan, ScheduleRule
from fedge.schedules.rule import Amounts, Moment, Quantity, Seen

__all__ = ["SCHEDULES", "Amounts", "Moment", "Quantity", "SchedulePlan", "ScheduleRule", "Seen"]
