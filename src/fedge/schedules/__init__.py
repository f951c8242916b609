"""Schedules by name: how much each round does, for any algorithm."""

from fedge.schedules.plan import SCHEDULES, SchedulePlan, ScheduleRule
from fedge.schedules.rule import Amounts, Moment, Plateau, Quantity, Seen

__all__ = ["SCHEDULES", "Amounts", "Moment", "Plateau", "Quantity", "SchedulePlan", "ScheduleRule", "Seen"]
