"""Fast experiments with three clients, for tests with real processes."""

from __future__ import annotations

from e2e.experiments import Settings, changed

FEDAVG: Settings = {
    "name": "faults",
    "seed": 3,
    "rounds": 3,
    "data": {"name": "digits", "clients": 3},
    "model": {"name": "logistic"},
    "engine": {"name": "loop"},
    "algorithm": {"name": "fedavg", "local_steps": 2},
    "selection": {"fraction": 1.0},
    "net": {"min_clients": 3, "wait_s": 100.0, "lease_s": 20.0, "grace_s": 20.0},
}
SCAFFOLD = changed(
    FEDAVG,
    algorithm={"name": "scaffold", "local_steps": 2},
    selection={"fraction": 0.67},
    evaluate={"at": "clients", "user_accuracy": True, "after_training": True},
)
MTFL = changed(
    FEDAVG,
    model={"name": "mtfl_2nn"},
    algorithm={"name": "fedavg_adam", "local_steps": 2},
    personal={"private": "bn"},
    evaluate={"at": "clients", "user_accuracy": True},
)
CE_FEDAVG = changed(
    FEDAVG,
    algorithm={"name": "fedavg_adam", "local_steps": 2},
    codec={"up": ["error_feedback", "sparsify(0.6)", "uniq", "golomb"], "moments": ["expq"]},
    evaluate={"cosine_distance": True},
)
"""With error feedback, which `ce_fedavg` itself does not have."""
DYNAVG = changed(FEDAVG, algorithm={"name": "dynavg", "delta": 0.001, "local_steps": 2}, rounds=4)
SCENES = {"fedavg": FEDAVG, "scaffold": SCAFFOLD, "mtfl": MTFL, "ce_fedavg": CE_FEDAVG, "dynavg": DYNAVG}
