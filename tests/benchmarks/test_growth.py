"""What the benchmark of growth runs."""

import torch
from benchmarks.growth import VALUES, _idle, prepare

from federation import Federation, mixed


def test_rounds_with_few_clients_and_small_models_run() -> None:
    for kind in ("clients", "params"):
        prepare(kind, min(VALUES[kind]))(1)


def test_without_training_the_model_stays_what_it_was() -> None:
    federation = Federation(_idle, mixed(), "block", dtype=torch.float32)
    before = federation.state["x"].clone()
    outcome = federation.round()
    assert torch.equal(federation.state["x"], before)
    assert outcome.replies[0].costs.steps.tolist() == [0] * 4
