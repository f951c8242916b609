"""Flower's SuperLink under the load of `benchmarks.net_load`, with TLS on loopback.

Flower needs a separate environment, without torch:

    python -m venv /tmp/flower && /tmp/flower/bin/pip install flwr
    PYTHONPATH=. /tmp/flower/bin/python -m benchmarks.net_flower payload 200 25
    PYTHONPATH=. /tmp/flower/bin/python -m benchmarks.net_flower idle 200

Load nodes are SuperNodes without a ClientApp: they use Flower's own connection (`http_request_response`), pull their
message, and push an array of random numbers, as SuperNodes do: two chunks of 5 MiB at a time. Answers differ between
nodes, because Flower stores equal chunks once. A few processes run all nodes, one thread each. The ServerApp is
Flower's FedAvg, started by `flwr run`. It is a separate process next to the SuperLink, and both are measured.

All nodes pull before any node pushes, so that both directions are timed separately, as in `net_load`. At most TOGETHER
nodes of a process transfer at once, because each holds several copies of its answer, and 200 of them would not fit into
memory. Down is timed from the first node that is notified of a message; nodes poll every three seconds.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.process_use import memory, processor_s

NUM_PROCESSES, TOGETHER = 2, 16
POLL_S = 3.0
"""Polling interval of an idle SuperNode."""
_FORK = get_context("fork")
_PATIENCE_S = 900.0
_PROJECT = """
[project]
name = "load"
version = "1.0.0"
description = "FedAvg of made-up arrays"
license = "Apache-2.0"
dependencies = ["flwr"]

[tool.flwr.app]
publisher = "benchmarks"

[tool.flwr.app.components]
serverapp = "load.apps:server"
clientapp = "load.apps:client"

[tool.flwr.app.config]
nodes = 1
values = 1
"""
_APPS = """
import numpy as np
from flwr.app import ArrayRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

server = ServerApp()
client = ClientApp()

@server.main()
def main(grid, context):
    nodes, values = context.run_config["nodes"], context.run_config["values"]
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes)
    strategy.start(grid, ArrayRecord([np.random.default_rng(1).random(values, np.float32)]), num_rounds=1)
"""


class Counters(NamedTuple):
    """Progress of all nodes."""

    joined: Any
    begun: Any
    pulled: Any
    pushed: Any


class SuperLink:
    """A SuperLink with TLS that keeps its state in memory, as it does by default."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port, self.address = folder, port, f"127.0.0.1:{port}"
        self.certificate = folder / "server.crt"
        self._environment = os.environ | {
            "FLWR_HOME": str(folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        self._make_certificate()
        command = ["flower-superlink", "--host", "127.0.0.1", "--port", str(port)]
        command += ["--ssl-certfile", str(self.certificate), "--ssl-keyfile", str(folder / "server.key")]
        command += ["--ssl-ca-certfile", str(self.certificate), "--disable-runtime-dependency-installation"]
        log = (folder / "superlink.log").open("wb")
        self.process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)

    def run_app(self, nodes: int, values: int) -> None:
        """Start FedAvg with this many nodes."""
        package = self.folder / "app/load"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "apps.py").write_text(_APPS)
        (package.parent / "pyproject.toml").write_text(_PROJECT)
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        connection = f'address = "{self.address}"\nroot-certificates = "{self.certificate}"\n'
        (home / "config.toml").write_text(f'[superlink]\ndefault = "own"\n\n[superlink.own]\n{connection}')
        command = ["flwr", "run", str(package.parent), "own", "--run-config", f"nodes={nodes} values={values}"]
        subprocess.run(command, env=self._environment, check=True, stdout=subprocess.DEVNULL)

    def listens(self) -> bool:
        """Return whether nodes can connect."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def pids(self) -> list[int]:
        """Return the SuperLink's process and its descendants."""
        found = [self.process.pid]
        for pid in found:  # grows during the loop
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                found += map(int, task.read_text().split())
        return found

    def _make_certificate(self) -> None:
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
        command += ["-keyout", str(self.folder / "server.key"), "-out", str(self.certificate)]
        subprocess.run(command, check=True, capture_output=True)


@contextmanager
def _superlink(port: int = 18080) -> Iterator[SuperLink]:
    with tempfile.TemporaryDirectory(prefix="flower-load-") as folder:
        link = SuperLink(Path(folder), port)
        try:
            yield link
        except BaseException:
            print((link.folder / "superlink.log").read_text()[-4000:], file=sys.stderr)
            raise
        finally:
            pids = link.pids()
            link.process.terminate()
            link.process.wait(30)
            for pid in pids[1:]:
                if Path(f"/proc/{pid}").exists():
                    os.kill(pid, 9)


def _node(link: SuperLink, counters: Counters, num_nodes: int, num_values: int, turn: threading.Semaphore) -> None:
    """Join, answer one message, then poll as an idle SuperNode does."""
    import numpy as np
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.supercore.inflatable.inflatable_object import (
        get_all_nested_objects,
        get_object_tree,
        iterate_object_tree,
        no_object_id_recompute,
    )
    from flwr.supercore.inflatable.inflatable_utils import pull_objects, push_objects
    from flwr.supernode.fleet_http_connection import http_request_response

    with http_request_response(link.address, False, str(link.certificate)) as connection:
        _, receive, send, _, _, pull_object, push_object, confirm = connection
        _count(counters.joined)
        while True:
            if (received := receive()) is None:
                time.sleep(POLL_S)
                continue
            message, tree = received
            _count(counters.begun)
            run = message.metadata.run_id
            ids = [each.object_id for each in iterate_object_tree(tree)]
            with turn:
                pull_objects(ids, partial(pull_object, run))
                confirm(run, message.metadata.message_id)
            _count(counters.pulled)
            while counters.pulled.value < num_nodes:
                time.sleep(0.05)
            with turn, no_object_id_recompute():
                array = np.random.default_rng().random(num_values, np.float32)
                content = {"arrays": ArrayRecord([array]), "metrics": MetricRecord({"num-examples": 4})}
                reply = Message(RecordDict(content), reply_to=message)
                reply.metadata.__dict__["_message_id"] = reply.object_id
                objects, tree = get_all_nested_objects(reply), get_object_tree(reply)
                wanted, session = send(reply, tree, 0.1)
                push_objects(objects, partial(push_object, run, session), object_ids_to_push=wanted)
            _count(counters.pushed)


def _count(counter: Any) -> None:
    with counter.get_lock():
        counter.value += 1


def _run_nodes(number: int, link: SuperLink, counters: Counters, num_nodes: int, num_values: int) -> None:
    turn = threading.Semaphore(TOGETHER)
    arguments = link, counters, num_nodes, num_values, turn
    threads = [threading.Thread(target=_node, args=arguments) for _ in range(number, num_nodes, NUM_PROCESSES)]
    for thread in threads:
        thread.start()
        time.sleep(0.02)
    for thread in threads:
        thread.join()


@contextmanager
def _joined(num_nodes: int, num_values: int) -> Iterator[tuple[SuperLink, Counters]]:
    with _superlink() as link, ExitStack() as stack:
        counters = Counters(*(_FORK.Value("q", 0) for _ in range(4)))
        _wait(link.listens, "the SuperLink to listen", counters)
        for number in range(NUM_PROCESSES):
            arguments = number, link, counters, num_nodes, num_values
            process = _FORK.Process(target=_run_nodes, args=arguments, daemon=True)
            process.start()
            stack.callback(process.kill)
        _wait(lambda: counters.joined.value >= num_nodes, f"{num_nodes} nodes to join", counters)
        yield link, counters


def _wait(reached: Callable[[], bool], what: str, counters: Counters) -> float:
    end = time.perf_counter() + _PATIENCE_S
    while not reached():
        state = [counter.value for counter in counters]
        assert time.perf_counter() < end, f"waited for {what}; joined, begun, pulled, pushed: {state}"
        time.sleep(0.02)
    return time.perf_counter()


def payload(num_nodes: int = 200, num_mb: int = 25) -> dict[str, float]:
    """Return GB/s down and up, and the peak memory of SuperLink and ServerApp in addition to the idle SuperLink."""
    with _joined(num_nodes, num_mb * 250_000) as (link, counters):
        idle_mb = memory(link.process.pid)["rss"] / 1e6
        link_mb, app_mb, over = [0.0], [0.0], threading.Event()

        def watch() -> None:
            while not over.wait(0.1):
                own, *others = [_rss_mb(pid) for pid in link.pids()]
                link_mb.append(own)
                app_mb.append(sum(others))

        watching = threading.Thread(target=watch, daemon=True)
        watching.start()
        link.run_app(num_nodes, num_mb * 250_000)
        began = _wait(lambda: counters.begun.value > 0, "the first node to begin", counters)
        pulled = _wait(lambda: counters.pulled.value >= num_nodes, "all nodes to pull", counters)
        pushed = _wait(lambda: counters.pushed.value >= num_nodes, "all nodes to push", counters)
        processor = processor_s(link.process.pid)
        ended = _wait(lambda: len(link.pids()) < 3 or app_mb[-1] < 150, "the ServerApp", counters)
        over.set()
        watching.join()
        total = num_nodes * num_mb / 1000
        return {
            "nodes": num_nodes,
            "mb": num_mb,
            "down_gb_s": total / (pulled - began),
            "up_gb_s": total / (pushed - pulled),
            "seconds_until_reduced": ended - began,
            "superlink_cpu_s": processor,
            "superlink_idle_mb": idle_mb,
            "superlink_peak_beyond_idle_mb": max(link_mb) - idle_mb,
            "other_processes_peak_mb": max(app_mb),
        }


def idle(num_nodes: int = 200, seconds: float = 60.0) -> dict[str, float]:
    """Return the SuperLink's share of one core while its nodes are idle."""
    with _joined(num_nodes, 1) as (link, _):
        time.sleep(10.0)
        before = processor_s(link.process.pid)
        time.sleep(seconds)
        share = (processor_s(link.process.pid) - before) / seconds
        return {"nodes": num_nodes, "idle_core_share": share, "rss_mb": memory(link.process.pid)["rss"] / 1e6}


def _rss_mb(pid: int) -> float:
    try:
        return memory(pid)["rss"] / 1e6
    except (OSError, KeyError):
        return 0.0


if __name__ == "__main__":
    from importlib.metadata import version

    name, *numbers = sys.argv[1:] or ["payload"]
    found = {"payload": payload, "idle": idle}[name](*map(int, numbers))
    print(json.dumps({"flwr": version("flwr"), name: found}, indent=2))
