"""Short ways to ask a schedule."""

import json
from collections.abc import Iterable
from typing import Any

from fedge.core.schema import read
from fedge.schedules import Amounts, Moment, SchedulePlan, Seen

BASE = Amounts(work=10, rate=0.4, server_rate=1.0)


def plan(**rules: Any) -> SchedulePlan:
    """A `[schedule]` table."""
    return read(rules, SchedulePlan, "schedule")


def moment(round: int = 1, **known: Any) -> Moment:
    return Moment(round, **{"fraction": 0.5, "cohort": 10, "batch_size": 32, **known})


def amounts(table: SchedulePlan, rounds: Iterable[int], base: Amounts = BASE, **known: Any) -> list[Amounts]:
    """What rounds do under schedules that look at nothing but the moment."""
    state = table.init()
    return [table.amounts(base, moment(round, **known), state) for round in rounds]


def follow(table: SchedulePlan, seen: Iterable[Seen], base: Amounts = BASE) -> list[Amounts]:
    """What each round does when these are seen after it, and the one after the last; with a checkpoint every round."""
    state = table.init()
    found = [table.amounts(base, moment(1), state)]
    for round, after in enumerate(seen, start=2):
        state = json.loads(json.dumps(table.observe(state, after)))
        found.append(table.amounts(base, moment(round), state))
    return found
