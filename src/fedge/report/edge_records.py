"""The edge records of a run: the cell of each client and the times of its phases."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fedge.core.errors import ConfigError, RunError
from fedge.report.groups import RunView
from fedge.runs.data_names import DataNames
from fedge.runs.files import EDGE


class EdgeRound(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `edge.jsonl`: the cells in row-major order, the clients that worked, and the seconds of each."""

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

    def __post_init__(self) -> None:
        num_cells = len(self.occupancy)
        if min(self.rows, self.cols) < 1 or num_cells != self.rows * self.cols:
            raise ValueError(f"occupancy: expected {self.rows} * {self.cols} cells, got {num_cells}")
        if self.classes is not None and len(self.classes) != num_cells:
            raise ValueError(f"classes: expected {num_cells} cells, got {len(self.classes)}")
        if len({len(counts) for counts in self.classes or ()}) > 1:
            raise ValueError("classes: expected the same number of classes in every cell")
        for name in ("cell", "down_s", "compute_s", "wait_s", "up_s", "finish_s", "late"):
            if len(values := getattr(self, name)) != len(self.clients):
                raise ValueError(f"{name}: expected a value for each of {len(self.clients)} clients, got {len(values)}")
        if not all(0 <= cell < num_cells for cell in self.cell):
            raise ValueError(f"cell: expected numbers from 0 to {num_cells - 1}")


def read_edge(run: RunView) -> list[EdgeRound]:
    """Return all rounds in a run's edge records; empty without `edge.record`."""
    try:
        return msgspec.convert(run.edge, list[EdgeRound])
    except msgspec.ValidationError as error:
        file = run.path / EDGE
        raise RunError(f"{file} is damaged: {error}; restore a copy of it, or rerun the experiment") from None


def read_one(runs: Sequence[RunView]) -> tuple[list[EdgeRound], DataNames]:
    """Return the rounds of the only run with edge records, and its names of classes and clients."""
    recorded = [(rounds, run.names) for run in runs if (rounds := read_edge(run))]
    if not recorded:
        raise not_recorded()
    if len(recorded) > 1:
        raise ConfigError(f"this chart shows one run, got {len(recorded)} with edge records; give the path of one")
    return recorded[0]


def find_round(rounds: Sequence[EdgeRound], number: int | None) -> EdgeRound:
    """Return the round with this number, by default the last."""
    if number is None:
        return rounds[-1]
    found = next((line for line in rounds if line.round == number), None)
    if found is None:
        raise ConfigError(
            f"--round {number}: expected one of the recorded rounds, {rounds[0].round} to {rounds[-1].round}"
        )
    return found


def not_recorded() -> ConfigError:
    """Return an error that explains how to get edge records."""
    return ConfigError(
        "no run has edge.jsonl, the record of cells and client times; run the experiment with --set edge.record=true"
    )
