"""Time of each step of a new user: from a fresh clone to their own algorithm on real clients.

python -m benchmarks.new_user         every step once, with a new virtual environment: takes minutes
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

from benchmarks.measure import save

ROOT = Path(__file__).parents[1]
PATIENCE_S = 300.0
SMALL = ["--set", "data.clients=4", "--set", "selection.fraction=1", "--set", "model.name=logistic", "--quiet"]
OWN = "algorithm.name=half_step.py:HalfStep"
MODEL = """\
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(784, 32), nn.Linear(32, 10)

    def forward(self, x):
        return self.out(self.hidden(x.flatten(1)).relu())
"""


class NewUser:
    """A new user in a folder outside the checkout; a step that fails raises an error with the command's output."""

    def __init__(self, folder: Path, python: Path, environment: Mapping[str, str]) -> None:
        """`python` is that of the environment with fedge."""
        self.folder, self._python, self._environment = folder, python, dict(environment)

    def first_result(self) -> None:
        self.fedge("new", "experiment", "first")
        self.fedge("run", "first.toml", "--quiet")

    def own_csv(self) -> None:
        """Train on a CSV file with columns of different scales and a text target."""
        draw = random.Random(1)
        rows = [(draw.uniform(18, 90), draw.uniform(0, 100_000)) for _ in range(400)]
        lines = [f"{age:.0f},{income:.2f},{'yes' if income > 1000 * age else 'no'}" for age, income in rows]
        (self.folder / "people.csv").write_text("\n".join(["age,income,buys", *lines]) + "\n")
        table = 'data={ name = "table", file = "people.csv", target = "buys", clients = 4 }'
        self.fedge("run", "first.toml", "--set", "name=csv", "--set", table, *SMALL[2:])

    def own_model(self) -> None:
        (self.folder / "my_model.py").write_text(MODEL)
        chosen = [*SMALL, "--set", "model.name=my_model.py:Net"]
        self.fedge("run", "first.toml", "--set", "name=model", "--set", "rounds=3", *chosen)

    def own_algorithm(self) -> None:
        """Write an algorithm, test it and run it."""
        self.fedge("new", "algorithm", "half_step")
        self.call(self._python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_half_step.py")
        self.fedge(*self._run_own("own"))

    def kill(self) -> int:
        """Kill a run of the same experiment once a round is recorded, and return the number of records."""
        records = self.folder / "runs" / "killed" / "rounds.jsonl"
        process = self.start(*self._run_own("killed"))
        deadline = time.monotonic() + PATIENCE_S
        while not (records.exists() and b"\n" in records.read_bytes()):
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                raise RuntimeError(f"no round was recorded: {process.communicate()[1]}")
            time.sleep(0.002)
        process.kill()
        process.communicate()
        if process.returncode != -signal.SIGKILL:
            raise RuntimeError(f"the run ended with {process.returncode} before it was killed")
        return records.read_bytes().count(b"\n")

    def resume(self) -> None:
        self.fedge("resume", "runs/killed", "--quiet")

    def sweep(self) -> None:
        several = ["--set", "algorithm.step=[0.5, 1.0]", "--set", "rounds=3"]
        self.fedge("sweep", "first.toml", "--set", "name=steps", *several, "--set", OWN, *SMALL)

    def serve(self) -> None:
        """Run a server and clients whose owners allow the file, which they have under another name."""
        shutil.copy(self.folder / "half_step.py", self.folder / "reviewed.py")
        shared = (self.folder / "first.toml").read_text().replace('"fedavg"', '"half_step.py:HalfStep"')
        shared = shared.replace('"mnist_2nn"', '"logistic"').replace("clients = 20", "clients = 2")
        (self.folder / "real.toml").write_text(shared)
        few = ["--set", "name=real", "--set", "rounds=3", "--set", "selection.fraction=1", "--set", "net.min_clients=2"]
        with ExitStack() as stack:
            server = self.start("server", "real.toml", "--insecure", "--listen", "127.0.0.1:0", *few)
            stack.callback(_end, server)
            port = _wait_for_port(server)
            processes = [server]
            for number in (0, 1):
                data = ["--data", f"real.toml#{number}", "--state", f"state-{number}", "--allow", "reviewed.py"]
                who = ["--server", f"127.0.0.1:{port}", "--insecure", "--name", f"c{number}"]
                processes.append(self.start("client", *who, *data))
                stack.callback(_end, processes[-1])
            for process in processes:
                said = process.communicate(timeout=PATIENCE_S)[1]
                if process.returncode:
                    raise RuntimeError(f"{process.args} ended with {process.returncode}: {said}")

    def notebook(self) -> None:
        """Execute the example notebook."""
        shutil.copy(ROOT / "examples" / "first.ipynb", self.folder)
        self.call(self._python.with_name("jupyter-execute"), "--inplace", "first.ipynb")

    def fedge(self, *args: str) -> str:
        """Run a command and return its output."""
        return self.call(self._python.with_name("fedge"), *args)

    def call(self, *command: str | Path) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=PATIENCE_S
        )
        if done.returncode:
            raise RuntimeError(f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def start(self, *args: str) -> subprocess.Popen[str]:
        command = [self._python.with_name("fedge"), *args]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.folder, env=self._environment, stdout=pipe, stderr=pipe, text=True)

    def _run_own(self, name: str) -> list[str]:
        safe = ["--set", "rounds=300", "--set", "checkpoint.every=1"]
        return ["run", "first.toml", "--set", f"name={name}", *safe, "--set", OWN, *SMALL]


STEPS = ("first_result", "own_csv", "own_model", "own_algorithm", "kill", "resume", "sweep", "serve", "notebook")
"""The methods of NewUser, in the order of their calls."""


def run() -> dict[str, object]:
    """Return the seconds of each step, and the megabytes that the base install downloads in addition to torch."""
    seconds: dict[str, float] = {}
    unset = ("PYTHONPATH", "FEDGE_DATA", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    with TemporaryDirectory() as folder:
        clone, work = Path(folder) / "fedge", Path(folder) / "work"
        work.mkdir()
        _timed(seconds, "clone", lambda: subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True))
        setup = ["make", "--quiet", "setup"]
        _timed(seconds, "make setup", lambda: subprocess.run(setup, cwd=clone, env=environment, check=True))
        user = NewUser(work, clone / ".venv" / "bin" / "python", environment)
        for step in STEPS:
            _timed(seconds, step, getattr(user, step))
    return {"seconds": seconds, "downloads": downloads()}


def downloads() -> dict[str, float]:
    """Return the megabytes that `pip install fedge` downloads: torch with its dependencies, and everything else."""
    base, torch = _wheels([str(ROOT)]), _wheels(["torch"])
    further = {name: size for name, size in base.items() if name not in torch and name != "fedge"}
    return {"torch_mb": sum(torch.values()) / 1e6, "besides_torch_mb": sum(further.values()) / 1e6}


def _wheels(wanted: Sequence[str]) -> dict[str, int]:
    """Return the download sizes in bytes of a first install of these packages, by name, in the tested versions."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    command += ["--disable-pip-version-check", "-c", str(ROOT / "constraints.txt"), *wanted]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["install"]
    return {each["metadata"]["name"].lower(): _size(each["download_info"]["url"]) for each in found}


def _size(url: str) -> int:
    if url.startswith("file:"):
        path = Path(unquote(urlsplit(url).path))
        return path.stat().st_size if path.is_file() else 0  # a folder is the checkout
    with urlopen(Request(url, method="HEAD"), timeout=60) as answer:
        return int(answer.headers["Content-Length"])


def _timed(seconds: dict[str, float], name: str, step: Any) -> None:
    began = time.perf_counter()
    step()
    seconds[name] = round(time.perf_counter() - began, 1)
    print(f"{name}: {seconds[name]} s", flush=True)


def _wait_for_port(server: subprocess.Popen[str]) -> int:
    """Return the port on which the server listens."""
    assert server.stderr is not None
    said = []
    for line in server.stderr:
        said.append(line)
        if found := re.match(r"listening on 127\.0\.0\.1:(\d+)$", line):
            return int(found[1])
    raise RuntimeError(f"the server ended with {server.wait()}: {''.join(said)}")


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    print(f"written to {save({'new_user': run()})}")
