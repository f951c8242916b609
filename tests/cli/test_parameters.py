"""Shell completion."""

from __future__ import annotations

import pytest

from fedge.cli.parameters import complete_experiment, complete_metric, complete_run


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in ("a.toml", "b.txt", "recipes/c.toml", "runs/one/config.json", "runs/two/seed-1/config.json"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("", ["a.toml", "recipes/", "runs/"]),
        ("rec", ["recipes/"]),
        ("recipes/", ["recipes/c.toml"]),
        ("b", []),
    ],
)
def test_experiments(written, expected):
    assert complete_experiment(written) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("", ["runs/one", "runs/two/"]),
        ("ru", ["runs/"]),
        ("runs/o", ["runs/one"]),
        ("runs/two/", ["runs/two/seed-1"]),
        ("[", []),
    ],
)
def test_runs(written, expected):
    assert complete_run(written) == expected


def test_metrics():
    assert complete_metric("train_") == ["train_loss", "train_accuracy", "train_eval_loss"]
