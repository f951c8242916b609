"""Settings of an experiment file that `fedge server` refuses or ignores."""

from __future__ import annotations

from typing import Any

import pytest

from fedge.config import change, parse
from fedge.core.errors import ConfigError
from fedge.experiment.networked_check import check_networked
from fedge.experiment.setup import Setup

PLAIN: dict[str, Any] = {
    "data": {"name": "digits", "clients": 4},
    "model": "logistic",
    "algorithm": {"name": "fedavg", "local_steps": 2},
}
OPTIMAL = {
    "name": "optimal",
    "smoothness": 1.0,
    "convexity": 0.1,
    "first_loss": 2.0,
    "gradient_bound": 1.0,
    "communication_s": 1.0,
}


def check(**changes: object) -> list[str]:
    return check_networked(parse(change(PLAIN, {path.replace("__", "."): value for path, value in changes.items()})))


REFUSED: list[tuple[str, dict[str, object]]] = [
    ("seeds", {"seeds": [1, 2]}),
    ("edge.clock", {"edge__clock": "cells"}),
    ("edge.availability", {"edge__availability": {"name": "constant", "rate": 0.5}}),
    ("edge.availability", {"edge__availability": {"name": "diurnal"}}),
    ("edge.dropout", {"edge__dropout": 0.1}),
    ("edge.deadline_s", {"edge__deadline_s": 10.0}),
    ("edge.devices", {"edge__devices": [{"share": 1.0, "compute_scale": 2.0}]}),
    ("edge.down_mbps", {"edge__down_mbps": 21}),
    ("edge.up_mbps", {"edge__up_mbps": [1.0, 2.0, 3.0, 4.0]}),
    ("edge.seconds_per_step", {"edge__seconds_per_step": {"name": "normal", "mean": 1.0, "std": 0.1}}),
    ("edge.payload_bits", {"edge__payload_bits": 1000.0}),
    ("edge.retry_s", {"edge__retry_s": 1.0}),
    ("edge.record", {"edge__record": True}),
    ("selection.name", {"selection__name": "fedcs", "edge__deadline_s": 10.0}),
    ("schedule.local_steps", {"schedule__local_steps": OPTIMAL}),
    ("schedule.learning_rate", {"schedule__learning_rate": OPTIMAL}),
    ("schedule.local_steps", {"schedule__local_steps": {"name": "product", "rules": ["rounds", OPTIMAL]}}),
    ("reduce.on_bad", {"reduce__on_bad": "stop"}),
    ("reduce.on_bad", {"reduce__name": "median", "reduce__on_bad": "stop"}),
    ("trace", {"trace": {"every": 2}}),
]


@pytest.mark.parametrize(("setting", "changes"), REFUSED)
def test_simulation_settings_are_refused_by_name(setting: str, changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as raised:
        check(**changes)
    assert [problem.partition(":")[0] for problem in raised.value.problems if problem.startswith(f"{setting}:")]


def test_all_problems_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        check(seeds=[1, 2], edge__dropout=0.1, edge__deadline_s=10.0, trace={"every": 1})
    named = [problem.partition(":")[0] for problem in raised.value.problems]
    assert named == ["seeds", "edge.deadline_s", "edge.dropout", "trace"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"edge__clock": "fixed", "edge__down_mbps": 20, "edge__availability": {"name": "constant", "rate": 1.0}},
        {"edge__max_void_rounds": 3, "edge__client_power_w": 1.0, "edge__compute_power_w": 2.0},
        {"reduce__on_bad": "reject", "reduce__max_norm": 3.0},
        {"schedule__local_steps": "rounds", "schedule__learning_rate": {"name": "exp", "decay": 0.9}},
        {
            "engine__name": "auto",
            "engine__dtype": "float64",
            "engine__matmul_precision": "high",
            "checkpoint__every": 10,
        },
        {"personal": {"private": "bn_params"}},
        {"cluster": {}},
        {"data__drift": {"name": "arriving", "until": 5, "start": 0.5}, "data__validation": 0.1},
        {"evaluate__user_accuracy": True, "evaluate__at": "clients", "evaluate__train": True},
        {"net__over_selection": 1.3, "target__value": 0.9, "budget__bytes_up": 1e9},
    ],
)
def test_other_settings_are_accepted_without_notice(changes: dict[str, object]) -> None:
    assert check(**changes) == []


@pytest.mark.parametrize(
    ("changes", "notices"),
    [
        ({"engine__name": "loop"}, ["engine.name: ignored"]),
        (
            {"engine__name": "pool", "engine__workers": 2, "engine__rows": 3},
            ["engine.name, engine.workers, engine.rows"],
        ),
        ({"checkpoint__every": 5}, ["checkpoint.every: ignored"]),
        ({"engine__device": "cuda"}, ["engine.device: applies only to the server's own test set"]),
        ({"budget__sim_seconds": 60.0}, ["budget.sim_seconds: counts measured seconds"]),
        (
            {"engine__name": "wire", "checkpoint__every": 1, "budget__energy_j": 5.0},
            ["engine.name: ", "checkpoint.every: ", "budget.energy_j: "],
        ),
    ],
)
def test_ignored_settings_cause_notices(changes: dict[str, object], notices: list[str]) -> None:
    found = check(**changes)
    assert len(found) == len(notices)
    assert all(said.startswith(start) for said, start in zip(found, notices, strict=True))


@pytest.mark.parametrize(
    ("setting", "simulated", "networked"),
    [(None, "stop", "reject"), ("reject", "reject", "reject"), ("stop", "stop", "stop")],
)
def test_the_default_for_bad_uploads_differs_under_a_server(
    setting: str | None, simulated: str, networked: str
) -> None:
    raw = change(PLAIN, {"reduce.on_bad": setting} if setting else {})
    setup = Setup.of(parse(raw), 1)
    assert setup.server_side().limits.on_bad == simulated
    assert setup.server_side("reject").limits.on_bad == networked
