"""`fedge client`, with a fake network."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fedge.cli.network import TERMINATED
from fedge.core.errors import NetworkError
from fedge.net.allow import FileReference
from fedge.net.client_options import ClientOptions
from fedge.net.policy import OfferFacts

OFFER = OfferFacts("work", 4, 0, 1000, 60.0)


class FakeNetwork:
    """Stands in for `fedge.experiment.networked_client`: records its arguments and reports one round."""

    def __init__(self) -> None:
        self.joined: list[ClientOptions] = []
        self.during: Callable[[], None] = lambda: None

    def join(self, options: ClientOptions, view: Any) -> None:
        self.joined.append(options)
        view.notice("server unreachable, retrying")
        view.connected("5f3a", 3)
        view.task(OFFER)
        view.activity("working")
        self.during()
        view.settled("received")
        view.connected("5f3a", 3)
        view.task(OFFER._replace(kind="question", exchange=1))
        view.settled("declined", "on\nbattery")
        view.done(options.state / "model.safetensors")


@pytest.fixture
def networked(monkeypatch: pytest.MonkeyPatch) -> FakeNetwork:
    fake, module = FakeNetwork(), ModuleType("fedge.experiment.networked_client")
    module.join = fake.join  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fedge.experiment.networked_client", module)
    return fake


@pytest.fixture
def minimal(tmp_path: Path) -> list[str]:
    """The required options of a client."""
    return ["--server", "localhost:8443", "--cert", "cert", "--data", "first.toml#3", "--state", str(tmp_path / "own")]


def without(options: list[str], name: str) -> list[str]:
    place = options.index(name)
    return options[:place] + options[place + 2 :]


def test_client_prints_its_progress(fedge, networked, minimal, tmp_path):
    result = fedge("client", *minimal)
    assert result.exit_code == 0, result.stderr
    (options,) = networked.joined
    assert options[:5] == ("localhost:8443", Path("cert"), None, "first.toml#3", tmp_path / "own")
    assert (options.threads, options.proxy, options.reset_state) == (None, None, False)
    assert options.policy.decide(OFFER) is None
    assert result.stdout == f"model: {tmp_path / 'own' / 'model.safetensors'}\n"
    assert result.stderr.splitlines() == [
        "server unreachable, retrying",
        "localhost:8443: joined as client 3 of run 5f3a",
        "round 4: received after 0:00",
        "localhost:8443: reconnected as client 3 of run 5f3a",
        "round 4, exchange 2, evaluation: declined after 0:00 (on",
        "battery)",
        "localhost:8443: the run is complete",
    ]


def test_quiet(fedge, networked, minimal):
    result = fedge("client", *minimal, "--quiet")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_all_options(fedge, networked, minimal, tmp_path):
    model, own = tmp_path / "model.py", tmp_path / "own.py"
    model.write_text("def build(shape, num_outputs): ...\n")
    own.write_text("def decide(offer):\n    return f'not in round {offer.round}'\n")
    given = ["--policy", "load=10000", "--policy", f"{own}:decide", "--allow", str(model), "--threads", "2"]
    result = fedge("client", *minimal, *given, "--proxy", "http://proxy:3128", "--reset-state")
    assert result.exit_code == 0, result.stderr
    (options,) = networked.joined
    assert options.policy.decide(OFFER) == "not in round 4"
    assert options.allow.find(FileReference.of(model, "build"), "model.name") == model
    assert (options.threads, options.proxy, options.reset_state) == (2, "http://proxy:3128", True)


def test_insecure_on_this_machine(fedge, networked, minimal):
    given = ["--insecure", "--name", "clinic-3", *without(without(minimal, "--cert"), "--server")]
    result = fedge("client", *given, "--server", "[::1]:8443")
    assert result.exit_code == 0, result.stderr
    (options,) = networked.joined
    assert options[:3] == ("[::1]:8443", None, "clinic-3")


@pytest.mark.parametrize("name", ["--server", "--data", "--state", "--cert"])
def test_error_names_missing_options(fedge, networked, minimal, name):
    result = fedge("client", *without(minimal, name))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: fedge client: missing {name}")
    assert networked.joined == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--insecure", "--name", "a"], "--cert and --insecure exclude each other"),
        (["--name", "a"], "--name: the client's name is in its certificate"),
        (["--policy", "hours=6-6"], "--policy hours=6-6: both times are the same"),
        (["--policy", "sometimes"], "--policy sometimes: unknown"),
        (["--allow", "nowhere.py"], "--allow nowhere.py: "),
        (["--proxy", "proxy:3128"], "--proxy: expected http://HOST:PORT"),
        (["--proxy", "http://proxy"], "--proxy: expected http://HOST:PORT"),
        (["--proxy", "http://proxy:port"], "--proxy: expected http://HOST:PORT"),
        (["--proxy", "socks5://proxy:1080"], "--proxy: expected http://HOST:PORT"),
        (["--server", "localhost"], "--server: expected HOST:PORT"),
        (["--server", "localhost:0"], "--server: expected HOST:PORT"),
    ],
)
def test_bad_input(fedge, networked, minimal, options, message):
    result = fedge("client", *minimal, *options)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {message}")
    assert networked.joined == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--name", "a", "--server", "192.0.2.1:8443"], "--server: --insecure works on this machine only"),
        ([], "--insecure: missing --name"),
        (["--name", "../other"], "--name: expected up to 64 letters"),
        (["--name", "a" * 65], "--name: expected up to 64 letters"),
        (["--name", "a\n"], "--name: expected up to 64 letters"),
        (["--name", ""], "--name: expected up to 64 letters"),
    ],
)
def test_bad_input_without_certificates(fedge, networked, minimal, options, message):
    result = fedge("client", "--insecure", *without(minimal, "--cert"), *options)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {message}")
    assert networked.joined == []


def test_threads_must_be_positive(fedge, networked, minimal):
    assert fedge("client", *minimal, "--threads", "0").exit_code == 2
    assert networked.joined == []


def test_windows_is_refused(fedge, networked, minimal, monkeypatch):
    monkeypatch.setattr("fedge.cli.network.sys", SimpleNamespace(platform="win32"))
    result = fedge("client", *minimal)
    assert result.exit_code == 2
    assert "on Windows run it in WSL 2" in result.stderr


def test_refused_client_exits_with_the_network_code(fedge, networked, minimal):
    def refuse() -> None:
        raise NetworkError("the server refused this client: revoked")

    networked.during = refuse
    result = fedge("client", *minimal)
    assert result.exit_code == 9
    assert result.stderr.endswith("\nerror: the server refused this client: revoked\n")


def test_client_shuts_down_cleanly_on_sigterm(fedge, networked, minimal, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fedge", "client", *minimal])
    networked.during = lambda: signal.raise_signal(signal.SIGTERM)
    result = fedge("client", *minimal)
    assert result.exit_code == TERMINATED
    assert result.stderr.splitlines()[-1] == f"terminated; to reconnect: fedge client {' '.join(minimal)}".replace(
        "first.toml#3", "'first.toml#3'"
    )


def test_without_arguments_prints_help(fedge):
    result = fedge("client")
    assert "--server" in result.output
    assert "fedge client --server" in result.output
