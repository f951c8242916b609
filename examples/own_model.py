"""Your own model, data and callback: `python examples/own_model.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor, nn

import fedge


class Net(nn.Module):
    """One hidden layer."""

    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, hidden), nn.ReLU(), nn.Linear(hidden, 3))

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layers(x)
        return outputs


class Announce(fedge.Callback):
    """Prints each evaluation, and ends the run once an accuracy is reached."""

    def __init__(self, enough: float) -> None:
        self.enough = enough

    def on_evaluate(self, record: dict[str, Any]) -> bool:
        print(f"round {record['round']}: {record['accuracy']:.1%}")
        return bool(record["accuracy"] >= self.enough)


def main() -> None:
    """Train, inspect the run, train round by round, and repeat over seeds."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2000, 8))
    y = x[:, :3].argmax(axis=1)
    experiment = fedge.Experiment(
        name="own_model",
        data=fedge.Arrays(x, y, test_fraction=0.1),
        clients=10,
        partition=fedge.Dirichlet(alpha=0.5),
        model=Net,
        algorithm=fedge.FedAvg(learning_rate=0.1, local_epochs=1),
        selection=fedge.Uniform(fraction=0.5),
    )
    run = experiment.run(rounds=10, callbacks=[Announce(0.8)], progress=False)
    costs = run.cost_to(accuracy=0.5)
    print("not reached" if costs is None else f"50% after {costs['bytes_up'] / 1e6:.2f} MB up")
    net = run.load_into(Net())
    print(f"{sum(parameter.numel() for parameter in net.parameters())} trained parameters")
    with experiment.rounds(3, seed=2) as rounds:
        for record in rounds:
            print(record["round"], record.get("accuracy"))
    runs = experiment.run(rounds=2, seeds=[1, 2, 3], progress=False)
    print([one.summary["accuracy"] for one in runs if one.summary is not None])


if __name__ == "__main__":
    main()
