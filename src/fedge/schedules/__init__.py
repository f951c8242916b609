"""Schedules by name: how local steps and learning rates change from round to round, for any algorithm."""

from fedge.schedules.plan import SCHEDULES, SchedulePlan, ScheduleRule
from fedge.schedules.rule import Amounts, Moment, Plateau, Quantity, Seen

__all__ = ["SCHEDULES", "Amounts", "Moment", "Plateau", "Quantity", "SchedulePlan", "ScheduleRule", "Seen"]
