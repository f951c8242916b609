"""Flower: run_simulation on Ray, one client per core at a time."""

from __future__ import annotations

import argparse
import os
import traceback

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.candidate import Rounds, serve
from benchmarks.plain import MODELS, tensors, train
from benchmarks.workloads import WORKLOADS, Workload


def make_client(workload: Workload) -> ClientApp:
    app = ClientApp()

    @app.train()
    def fit(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        model = MODELS[workload.model]()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        x, y = tensors(workload, int(context.node_config["partition-id"]))
        train(model, x, y, workload)
        metrics = MetricRecord({"num-examples": len(y)})
        content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
        return Message(content=content, reply_to=message)

    return app


def make_server(workload: Workload) -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        serve(lambda: prepare(workload, grid), ["flwr", "ray", "torch", "numpy"])

    return app


def prepare(workload: Workload, grid: Grid) -> Rounds:
    strategy = FedAvg(
        fraction_train=workload.fraction,
        fraction_evaluate=0.0,
        min_available_nodes=workload.registered,
    )
    arrays = ArrayRecord(MODELS[workload.model]().state_dict())

    def rounds(count: int) -> None:
        nonlocal arrays
        arrays = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=count).arrays

    return rounds


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    chosen = WORKLOADS[parser.parse_args().workload]
    try:
        run_simulation(
            server_app=make_server(chosen),
            client_app=make_client(chosen),
            num_supernodes=chosen.registered,
            backend_config={
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                # Never join another cluster that runs on this machine.
                "init_args": {"address": "local", "num_cpus": os.cpu_count() or 1, "include_dashboard": False},
            },
        )
    except Exception:
        traceback.print_exc()
        os._exit(1)  # the server's thread would wait for its clients forever
