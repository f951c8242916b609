"""What a run recorded of its edge: who was where, and when each client did what."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fedge.core.errors import ConfigError, RunError
from fedge.report.groups import RunView


class EdgeRound(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `edge.jsonl`: cells in row-major order, then the clients that worked, then the seconds of each."""

    round: int
    rows: int
    cols: int
    occupancy: list[int]
    classes: list[list[int]] | None = None
    clients: list[int]
    cell: list[int]
    down_s: list[float]
    compute_s: list[float]
    wait_s: list[float]
    up_s: list[float]
    finish_s: list[float]
    late: list[bool]
    latency: list[float | None]
    merged: bool
    deadline_s: float | None = None


def read_edge(run: RunView) -> list[EdgeRound]:
    """All rounds that a run has recorded; none, if it was not asked to."""
    try:
        return msgspec.convert(run.edge, list[EdgeRound])
    except msgspec.ValidationError as error:
        raise RunError(f"edge.jsonl is not what fedge writes: {error}; run the experiment again") from None


def read_one(runs: Sequence[RunView]) -> list[EdgeRound]:
    """The rounds of the only run among these that has recorded its edge."""
    recorded = [rounds for run in runs if (rounds := read_edge(run))]
    if not recorded:
        raise not_recorded()
    if len(recorded) > 1:
        raise ConfigError(f"this chart is of one run, got {len(recorded)} with a recorded edge; give the path of one")
    return recorded[0]


def find_round(rounds: Sequence[EdgeRound], number: int | None) -> EdgeRound:
    """The round of that number, or the last."""
    if number is None:
        return rounds[-1]
    found = next((line for line in rounds if line.round == number), None)
    if found is None:
        raise ConfigError(
            f"--round {number}: expected one of the rounds that are recorded, {rounds[0].round} to {rounds[-1].round}"
        )
    return found


def not_recorded() -> ConfigError:
    """How to get what the pictures of the edge need."""
    return ConfigError(
        "no run has edge.jsonl, which says where clients were and when they did what; "
        "run the experiment with --set edge.record=true"
    )
