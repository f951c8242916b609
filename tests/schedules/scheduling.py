"""Shortcuts for tests of schedules."""

import json
from collections.abc import Iterable
from typing import Any

from fedge.core.schema import read
from fedge.schedules import Amounts, Moment, SchedulePlan, Seen

BASE = Amounts(work=10, rate=0.4, server_rate=1.0)


def plan(**rules: Any) -> SchedulePlan:
    """Return the plan of a `[schedule]` table."""
    return read(rules, SchedulePlan, "schedule")


def moment(round: int = 1, **known: Any) -> Moment:
    return Moment(round, **{"fraction": 0.5, "cohort": 10, "batch_size": 32, **known})


def amounts(table: SchedulePlan, rounds: Iterable[int], base: Amounts = BASE, **known: Any) -> list[Amounts]:
    """Return the amounts of rounds under schedules that depend only on the moment."""
    state = table.init()
    return [table.amounts(base, moment(round, **known), state) for round in rounds]


def follow(table: SchedulePlan, seen: Iterable[Seen], base: Amounts = BASE) -> list[Amounts]:
    """Return the amounts of each round, given what was seen after it, and of one more; checkpoints every round."""
    state = table.init()
    found = [table.amounts(base, moment(1), state)]
    for round, after in enumerate(seen, start=2):
        state = json.loads(json.dumps(table.observe(state, after)))
        found.append(table.amounts(base, moment(round), state))
    return found
