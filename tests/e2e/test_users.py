"""User accuracy: before and after training, fine-tuned, with and without noise, and per client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedge
from e2e.experiments import Settings, changed, records
from fedge.core.errors import ConfigError
from fedge.core.progress import Silent
from fedge.data.digits import Digits
from fedge.data.divided_dataset import Noise

PLAIN: Settings = {
    "name": "users",
    "seed": 5,
    "rounds": 3,
    "data": {"name": "digits", "clients": 10, "noise": {"fraction": 0.3, "std": 3.0}},
    "model": {"name": "mtfl_2nn"},
    "algorithm": {"name": "fedavg", "learning_rate": 0.1, "local_steps": 4},
    "selection": {"count": 5},
    "evaluate": {"user_accuracy": True},
}


class Listening(Silent):
    def __init__(self) -> None:
        self.notices: list[str] = []

    def notice(self, text: str) -> None:
        self.notices.append(text)


def run(folder: Path, **changes: Any) -> fedge.Run:
    found = fedge.run(changed(PLAIN, **changes), runs=folder)
    assert isinstance(found, fedge.Run)
    return found


def test_user_accuracy_is_the_mean_over_clients(tmp_path: Path) -> None:
    found = run(tmp_path)
    accuracies = {row["client"]: row["user_accuracy"] for row in found.clients}
    assert sorted(accuracies) == list(range(10))  # including clients that never took part
    last = found.rounds[-1]
    assert last["user_accuracy"] == pytest.approx(sum(accuracies.values()) / 10, abs=1e-12)
    assert last["user_accuracy_min"] == min(accuracies.values())
    noisy = set(Digits(clients=10, noise=Noise(fraction=0.3, std=3.0)).build(5).noisy.tolist())
    assert len(noisy) == 3
    clean = [value for client, value in accuracies.items() if client not in noisy]
    assert last["user_accuracy_clean"] == pytest.approx(sum(clean) / 7, abs=1e-12)


def test_after_training_changes_nothing_else(tmp_path: Path) -> None:
    plain = records(run(tmp_path / "plain").path)
    after = records(run(tmp_path / "after", evaluate={"after_training": True}).path)
    assert all("user_accuracy_after" in record for record in after)
    assert [{k: v for k, v in record.items() if "_after" not in k} for record in after] == plain
    assert [record["user_accuracy_after"] for record in after] != [record["user_accuracy"] for record in after]


def test_fine_tuning_is_measured_and_discarded(tmp_path: Path) -> None:
    plain, tuned = run(tmp_path / "plain"), run(tmp_path / "tuned", evaluate={"fine_tune_steps": 5})
    assert [record["loss"] for record in tuned.rounds] == [record["loss"] for record in plain.rounds]
    assert [r["user_accuracy"] for r in tuned.rounds] != [r["user_accuracy"] for r in plain.rounds]


def test_fine_tuning_needs_user_accuracy() -> None:
    with pytest.raises(ConfigError, match=r"evaluate\.user_accuracy = true"):
        fedge.run(changed(PLAIN, evaluate={"user_accuracy": False, "fine_tune_steps": 5}))


def test_averaging_batchnorm_causes_a_notice(tmp_path: Path) -> None:
    said = {}
    for name, changes in {"nothing": {}, "none": {"personal": {"private": "none"}}, "nn": {"model": "nn"}}.items():
        listening = Listening()
        fedge.run(changed(PLAIN, rounds=1, **changes), runs=tmp_path / name, progress=listening)
        said[name] = sum("BatchNorm" in text for text in listening.notices)
    assert said == {"nothing": 1, "none": 0, "nn": 0}
