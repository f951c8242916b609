"""Programs that show runs in a browser, measured with the requests of their pages."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from benchmarks.candidate import ROOT
from benchmarks.peers.environments import interpreter


class Program(NamedTuple):
    """How a program is started, and what its page requests."""

    command: Callable[[Path, int], list[str]]
    list_runs: Callable[[Session], object]
    curves: Callable[[Session, Sequence[str]], object]
    write: Callable[[Path, int, int], None]  # path of its store with the runs


class Session:
    """A running program, ready once it has answered."""

    def __init__(self, program: Program, folder: Path, environment: dict[str, str], patience_s: float) -> None:
        self._program, self._token, self.folder = program, "", folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115 - read while the process runs
        self._process = subprocess.Popen(
            program.command(folder, self.port), stdout=self._output, stderr=self._output, env=environment, cwd=ROOT,
            start_new_session=True,
        )  # fmt: skip
        self._wait(time.monotonic() + patience_s)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def list_runs(self) -> object:
        return self._program.list_runs(self)

    def curves(self, names: Sequence[str]) -> object:
        return self._program.curves(self, names)

    def get(self, path: str, body: object = None, form: str | None = None) -> Any:
        """Return the answer of a path, as JSON if possible, otherwise as bytes; with a body or a form, send a POST."""
        data = form.encode() if form is not None else None if body is None else json.dumps(body).encode()
        kind = "application/x-www-form-urlencoded" if form is not None else "application/json"
        headers = {"Content-Type": kind, "Authorization": f"Bearer {self._token}"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers)
        with urllib.request.urlopen(request, timeout=600) as answer:
            found = answer.read()
            return json.loads(found) if "json" in answer.headers.get("Content-Type", "") else found

    def _wait(self, deadline: float) -> None:
        while time.monotonic() < deadline:
            self._output.seek(0)
            printed = self._output.read()
            if found := re.search(r"token=([\w-]+)", printed):
                self._token = found[1]
            if self._process.poll() is not None:
                raise RuntimeError(f"ended with {self._process.returncode}: {printed[-500:]}")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=600):
                    return
            except urllib.error.HTTPError as error:
                if error.code != 401 or self._token:  # 401: it answers, but the token must be read first
                    return
            except OSError:
                pass
            time.sleep(0.02)
        raise RuntimeError("did not answer in time")


def _peer(name: str) -> str:
    return str(interpreter(name))


def _write_by(name: str) -> Callable[[Path, int, int], None]:
    def write(store: Path, num_runs: int, num_rounds: int) -> None:
        python = sys.executable if name == "tensorboard" else _peer(name)
        module = f"benchmarks.peers.{name}_store"
        subprocess.run([python, "-m", module, str(store), str(num_runs), str(num_rounds)], check=True, cwd=ROOT)

    return write


def _fedge_list(session: Session) -> object:
    return session.get("/"), session.get("/api/runs?limit=100")


def _fedge_curves(session: Session, names: Sequence[str]) -> object:
    chosen = urlencode([("run", sha256(name.encode()).hexdigest()[:16]) for name in names])  # keys, see docs/view.md
    found = session.get(f"/api/chart/curves?{chosen}")
    assert found["n"] == len(names), f"{found['n']} of {len(names)} runs"
    return session.get(f"/compare?{chosen}"), found


def _tensorboard_list(session: Session) -> object:
    while len(found := session.get("/data/plugin/scalars/tags")) < _num_runs(session):
        time.sleep(0.05)  # it loads runs in the background, and its page shows them one by one
    return found


def _tensorboard_curves(session: Session, names: Sequence[str]) -> object:
    form = urlencode([("tag", "accuracy"), *(("runs", name) for name in names)])
    found = session.get("/data/plugin/scalars/scalars_multirun", form=form)
    assert len(found) == len(names), f"{len(found)} of {len(names)} runs"
    return found


def _num_runs(session: Session) -> int:
    return sum(path.is_file() for path in session.folder.rglob("events.*"))


def _mlflow_list(session: Session) -> object:
    body = {"experiment_ids": ["1"], "max_results": 1000}
    found = session.get("/ajax-api/2.0/mlflow/runs/search", body)["runs"]
    _mlflow_ids.update({run["info"]["run_name"]: run["info"]["run_id"] for run in found})
    return found


_mlflow_ids: dict[str, str] = {}


def _mlflow_curves(session: Session, names: Sequence[str]) -> object:
    ids = "&".join(f"run_id={_mlflow_ids[name]}" for name in names)
    return session.get(f"/ajax-api/2.0/mlflow/metrics/get-history-bulk?{ids}&metric_key=accuracy&max_results=25000")


def _trackio(session: Session, call: str, *arguments: object) -> Any:
    """Return the answer of a function that Trackio's page calls."""
    return session.get(f"/api/{call}", {"args": list(arguments)})["data"]


def _trackio_curves(session: Session, names: Sequence[str]) -> object:
    found = _trackio(session, "get_logs_batch", "fedge", [{"run": name} for name in names])
    assert len(found) == len(names), f"{len(found)} of {len(names)} runs"
    return found


PROGRAMS: dict[str, Program] = {
    "fedge": Program(
        lambda folder, port: [sys.executable, "-m", "fedge.cli", "view", str(folder), "--port", str(port)],
        _fedge_list,
        _fedge_curves,
        lambda store, num_runs, num_rounds: None,
    ),
    "tensorboard": Program(
        lambda folder, port: [
            *(sys.executable, "-m", "tensorboard.main", "--logdir", str(folder), "--port", str(port)),
            *("--load_fast", "false"),
        ],
        _tensorboard_list,
        _tensorboard_curves,
        _write_by("tensorboard"),
    ),
    "mlflow": Program(
        lambda folder, port: [
            *(_peer("mlflow"), "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
            *("--backend-store-uri", f"sqlite:///{folder}/mlflow.db"),
        ],
        _mlflow_list,
        _mlflow_curves,
        _write_by("mlflow"),
    ),
    "trackio": Program(
        lambda folder, port: [
            _peer("trackio"),
            "-m",
            "benchmarks.peers.trackio_store",
            str(folder),
            "--port",
            str(port),
        ],
        lambda session: _trackio(session, "get_runs_for_project", "fedge"),
        _trackio_curves,
        _write_by("trackio"),
    ),
}
