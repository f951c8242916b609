"""The runs of `benchmarks.page_runs` in a SQLite store of MLflow: `python -m ... STORE NUM_RUNS NUM_ROUNDS`."""

import sys
from pathlib import Path

import mlflow
from mlflow.entities import Metric, Param

from benchmarks.page_runs import outline_runs


def main(store: Path, num_runs: int, num_rounds: int) -> None:
    store.mkdir(parents=True)
    client = mlflow.MlflowClient(f"sqlite:///{store}/mlflow.db")
    experiment = client.create_experiment("fedge")
    for made in outline_runs(num_runs):
        run = client.create_run(experiment, run_name=made.name).info.run_id
        params = {"learning_rate": made.rate, "seed": made.seed}
        client.log_batch(run, params=[Param(name, str(value)) for name, value in params.items()])
        values = [
            Metric("accuracy", float(record["accuracy"]), number, number)
            for number, record in enumerate(made.records(num_rounds), 1)
        ]
        for first in range(0, len(values), 1000):  # the most that a batch may have
            client.log_batch(run, metrics=values[first : first + 1000])
        client.set_terminated(run)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
