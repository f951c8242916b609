"""`fedge server`, and `fedge resume` of its runs, with a fake server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fedge.cli.network import TERMINATED
from fedge.config import load, plain
from fedge.net.status import ServerStatus
from fedge.runs import files


class FakeServer:
    """Stands in for `fedge.experiment.networked_server`: records its arguments and writes a run."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.during: Callable[[], None] = lambda: None
        self.complete = True

    def serve(
        self, config: Any, *, runs: Path, listen: str, pki: Any, progress: Any, observer: Any, on_port: Any
    ) -> Path:
        self.calls.append({"config": config, "runs": runs, "listen": listen, "pki": pki})
        path = runs / config.name
        path.mkdir(parents=True, exist_ok=True)
        (path / files.CONFIG).write_text(json.dumps({**plain(config), "format": 2}))
        (path / files.REGISTRY).touch()
        on_port(8443)
        observer.event("join", client=0, name="clinic")
        observer.event("fetch", client=0, name="clinic")
        observer.status(ServerStatus(run="5f", state="waiting", round=1, waiting_for="waiting for 2 more clients"))
        observer.status(ServerStatus(run="5f", state="waiting", round=1, waiting_for="waiting for 2 more clients"))
        progress.begin(str(path), 1, config.rounds)
        for number in range(1, config.rounds + 1):
            progress.round({"round": number, "accuracy": 0.5})
        self.during()
        progress.end({})
        records = [{"round": number, "accuracy": 0.5} for number in range(1, config.rounds + 1)]
        (path / files.ROUNDS).write_text("".join(json.dumps(record) + "\n" for record in records))
        if self.complete:
            (path / files.SUMMARY).write_text(json.dumps({"rounds": config.rounds}))
        return path


@pytest.fixture
def networked(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    fake, module = FakeServer(), ModuleType("fedge.experiment.networked_server")
    module.serve = fake.serve  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fedge.experiment.networked_server", module)
    return fake


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def test_server_prints_rounds_and_results(fedge, networked, experiment_file, runs):
    result = fedge("server", experiment_file, "--runs", runs, "--set", "net.min_clients=3")
    assert result.exit_code == 0, result.stderr
    (call,) = networked.calls
    assert (call["runs"], call["listen"], call["pki"]) == (runs, "127.0.0.1:8443", Path("pki"))
    assert call["config"].net.min_clients == 3
    path = runs / "tiny"
    assert result.stdout.endswith(f"\nrun: {path}\n")
    assert result.stderr.splitlines()[:3] == [
        "listening on 127.0.0.1:8443",
        "client 0 (clinic) joined",
        "round 1: waiting for 2 more clients",
    ]
    rounds = [line for line in result.stderr.splitlines() if line.startswith(f"{path}: round ")]
    assert [line.partition(",")[0] for line in rounds] == [f"{path}: round {n}/3" for n in (0, 1, 2, 3, 3)]


def test_json(fedge, networked, experiment_file, runs):
    result = fedge("server", experiment_file, "--runs", runs, "--quiet", "--format", "json")
    assert json.loads(result.stdout)["runs"][0]["rounds"] == 3
    assert result.stderr == ""


def test_listen_and_pki_options(fedge, networked, experiment_file, runs, tmp_path):
    fedge("server", experiment_file, "--runs", runs, "--listen", "0.0.0.0:9000", "--pki", tmp_path / "ours")
    (call,) = networked.calls
    assert (call["listen"], call["pki"]) == ("0.0.0.0:9000", tmp_path / "ours")
    assert call["config"].net.listen == "0.0.0.0:9000"  # a resumed run listens there too


def test_insecure_on_this_machine(fedge, networked, experiment_file, runs):
    result = fedge("server", experiment_file, "--runs", runs, "--insecure", "--listen", "[::1]:0")
    assert result.exit_code == 0, result.stderr
    (call,) = networked.calls
    assert (call["listen"], call["pki"]) == ("[::1]:0", None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--insecure", "--listen", "0.0.0.0:8443"], "net.listen: --insecure works on this machine only"),
        (["--insecure", "--set", "net.listen=[::]:8443"], "net.listen: --insecure works on this machine only"),
        (["--insecure", "--pki", "pki"], "--pki and --insecure exclude each other"),
        (["--listen", "8443"], "--listen: expected HOST:PORT"),
        (["--set", "net.listen=here"], "net.listen: expected HOST:PORT"),
        (["--set", "edge.dropout=0.1"], "edge.dropout: it describes a simulated network"),
        (["--set", "seeds=[1,2]"], "seeds: a server run has one seed"),
        (["--set", "reduce.on_bad=stop"], "reduce.on_bad: "),
    ],
)
def test_bad_input(fedge, networked, experiment_file, runs, options, message):
    result = fedge("server", experiment_file, "--runs", runs, *options)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {message}")
    assert networked.calls == []
    assert not runs.exists()


def test_ignored_settings_are_reported(fedge, networked, experiment_file, runs):
    result = fedge("server", experiment_file, "--runs", runs, "--set", "engine.name=loop")
    assert result.stderr.startswith("engine.name: ignored under fedge server")
    assert len(networked.calls) == 1


def test_windows_is_refused(fedge, networked, experiment_file, monkeypatch):
    monkeypatch.setattr("fedge.cli.network.sys", SimpleNamespace(platform="win32"))
    result = fedge("server", experiment_file)
    assert result.exit_code == 2
    assert "Linux or macOS; on Windows run it in WSL 2" in result.stderr
    assert networked.calls == []


def test_same_command_resumes_then_reports_completion(fedge, networked, experiment_file, runs):
    networked.complete = False
    for _ in range(2):
        assert fedge("server", experiment_file, "--runs", runs).exit_code == 0
    assert [call["runs"] / call["config"].name for call in networked.calls] == [runs / "tiny"] * 2
    (runs / "tiny" / files.SUMMARY).write_text(json.dumps({"rounds": 3}))
    result = fedge("server", experiment_file, "--runs", runs)
    assert result.exit_code == 0
    assert result.stderr == f"{runs / 'tiny'}: is complete already\n"
    assert result.stdout.endswith(f"\nrun: {runs / 'tiny'}\n")
    assert len(networked.calls) == 2


def test_changed_fixed_setting_is_rejected(fedge, networked, experiment_file, runs):
    fedge("server", experiment_file, "--runs", runs)
    result = fedge("server", experiment_file, "--runs", runs, "--set", "data.clients=11", "--set", "seed=2")
    assert result.exit_code == 2
    assert "  - seed: cannot change" in result.stderr
    assert "  - data: cannot change" in result.stderr
    assert len(networked.calls) == 1


def test_existing_simulated_run_is_rejected(fedge, networked, experiment_file, write_run, runs):
    write_run(runs / "tiny")
    result = fedge("server", experiment_file, "--runs", runs)
    assert result.exit_code == 6
    assert "is a simulated run" in result.stderr


def test_resume_restarts_the_server(fedge, networked, experiment_file, runs, tmp_path):
    networked.complete = False
    fedge("server", experiment_file, "--runs", runs, "--listen", "127.0.0.1:9000")
    result = fedge("resume", runs / "tiny", "--set", "rounds=5", "--pki", tmp_path)
    assert result.exit_code == 0, result.stderr
    call = networked.calls[1]
    assert (call["runs"], call["listen"], call["pki"]) == (runs, "127.0.0.1:9000", tmp_path)
    assert call["config"].rounds == 5
    result = fedge("resume", runs / "tiny", "--insecure", "--listen", "localhost:9001")
    assert result.exit_code == 0, result.stderr
    assert networked.calls[2]["pki"] is None
    assert networked.calls[2]["listen"].endswith(":9001")


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--accept-code"], 2, "--accept-code: "),
        (["--set", "seed=2"], 2, "seed: cannot change"),
        (["--set", "edge.dropout=0.1"], 2, "edge.dropout: "),
        (["--insecure", "--listen", "0.0.0.0:1"], 2, "net.listen: --insecure works on this machine only"),
    ],
)
def test_resume_of_a_server_run_rejects_bad_options(fedge, networked, experiment_file, runs, options, code, message):
    fedge("server", experiment_file, "--runs", runs)
    result = fedge("resume", runs / "tiny", *options)
    assert result.exit_code == code
    assert result.stderr.startswith(f"error: {message}")
    assert len(networked.calls) == 1


def test_renamed_server_run_is_rejected(fedge, networked, experiment_file, runs):
    fedge("server", experiment_file, "--runs", runs)
    (runs / "tiny").rename(runs / "moved")
    result = fedge("resume", runs / "moved")
    assert result.exit_code == 6
    assert "holds the run 'tiny'" in result.stderr


def test_resume_from_inside_the_run(fedge, networked, experiment_file, runs, monkeypatch):
    fedge("server", experiment_file, "--runs", runs)
    monkeypatch.chdir(runs / "tiny")
    result = fedge("resume", ".", "--set", "rounds=9")
    assert result.exit_code == 0, result.stderr
    assert networked.calls[1]["runs"] == runs.resolve()


@pytest.mark.parametrize("option", [["--insecure"], ["--pki", "pki"], ["--listen", "localhost:1"]])
def test_resume_of_a_simulated_run_rejects_network_options(fedge, write_run, runs, option):
    result = fedge("resume", write_run(runs / "tiny"), *option)
    assert result.exit_code == 2
    assert "apply to runs of `fedge server` only" in result.stderr


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGTERM, TERMINATED, "terminated"), (signal.SIGINT, 130, "interrupted")],
)
def test_signal_stops_a_waiting_server(fedge, networked, experiment_file, runs, monkeypatch, number, code, word):
    """The server's main thread is waiting for clients when the signal arrives."""
    monkeypatch.setattr(sys, "argv", ["fedge", "server", "two words.toml"])
    monkeypatch.setattr(signal, "default_int_handler", signal.default_int_handler)
    before = signal.getsignal(signal.SIGTERM)
    listening = signal.signal(signal.SIGINT, signal.default_int_handler)

    def wait() -> None:
        threading.Thread(target=os.kill, args=(os.getpid(), number)).start()
        assert threading.Event().wait(60), "the signal did not end the wait"

    networked.during = wait
    try:
        result = fedge("server", experiment_file, "--runs", runs)
    finally:
        signal.signal(signal.SIGINT, listening)
    assert result.exit_code == code
    assert result.stderr.endswith(f"\n{word}; to resume: fedge server 'two words.toml'\n")
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.full
def test_sigterm_exit_code(experiment_file, tmp_path):
    code = f"""
import sys, threading, types
sys.path[:0] = {sys.path!r}
serving = sys.modules["fedge.experiment.networked_server"] = types.ModuleType("fedge.experiment.networked_server")
def serve(config, **told):
    try:
        told["progress"].notice("serving")
        threading.Event().wait()
    finally:
        told["progress"].notice("closed")
serving.serve = serve
from fedge.cli import main
main()
"""
    command = [sys.executable, "-c", code, "server", str(experiment_file)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == "serving\n"
        process.terminate()
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == TERMINATED
    assert said == f"closed\nterminated; to resume: fedge server {experiment_file}\n"


def test_fake_server_writes_a_readable_configuration(experiment_file, networked, fedge, runs):
    """The fake writes settings as a server run does: they are read back unchanged."""
    fedge("server", experiment_file, "--runs", runs)
    written = json.loads((runs / "tiny" / files.CONFIG).read_text())
    assert written["net"] == plain(load(experiment_file))["net"]
