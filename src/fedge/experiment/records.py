"""The record of a round: participants and training statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedge.core.algorithm import Info
from fedge.core.drive import Outcome
from fedge.core.world import Cohort


def describe_round(info: Info, cohorts: Sequence[Cohort], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the fields of a round's record that come from its replies.

    `cohort` counts the distinct clients that the world or any exchange asked, `reported` those whose answers were all
    accepted, and `dropped` the others: they dropped out, did not answer, were late or were rejected.
    """
    replies = [reply for outcome in outcomes for reply in outcome.replies]
    losses = np.concatenate([reply.losses for reply in replies] or [np.zeros(0)])
    losses = losses[~np.isnan(losses)]
    first = [outcome.replies[0] for outcome in outcomes]
    distances = [reply.cosine_distance for reply in first if reply.cosine_distance is not None]
    heard = {client for reply in replies for client in reply.ids}
    missing = {client for reply in replies for client in reply.missing}
    asked = heard | missing | {client for cohort in cohorts for client in cohort.asked}
    reported = heard - missing
    optional = {
        "late": len({client for reply in replies if reply.late for client in reply.late.ids}) or None,
        "rejected": len({client for reply in replies if reply.rejected for client in reply.rejected.ids}) or None,
        "declined": len({client for reply in replies for client in reply.declined}) or None,
        "num_local_steps": info.num_steps,
        "num_local_epochs": info.num_epochs,
        "train_loss": float(losses.mean()) if len(losses) else None,
        "cosine_distance": float(np.mean(distances)) if distances else None,
        "void": all(outcome.void for outcome in outcomes) or None,
    }
    return {
        "round": info.round,
        "cohort": len(asked),
        "reported": len(reported),
        "dropped": len(asked) - len(reported),
        "learning_rate": info.rate,
        **{name: value for name, value in optional.items() if value is not None},
    }
