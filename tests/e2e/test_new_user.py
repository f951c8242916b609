"""A new user's path: the commands of docs/deploy.md, with a server that is killed in the middle."""

from __future__ import annotations

import json
import re
import shlex
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from e2e.command import Fedge, Process, wait_until
from net.deployment import unmeasured_records

PAGE = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text("utf-8")


def commands(heading: str) -> list[list[str]]:
    """Return the arguments of all calls of `fedge` in the console blocks of a section."""
    text = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = "".join(re.findall(r"^```console\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)).splitlines()
    return [shlex.split(line)[1:] for line in lines]


@pytest.mark.full
@pytest.mark.parametrize("heading", ["On one machine", "From simulation to real devices"])
def test_the_commands_of_the_page(heading: str, fedge: Fedge, tmp_path: Path) -> None:
    (experiment,) = re.findall(r"Save this as `digits.toml`:\n\n```toml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "digits.toml").write_text(experiment)
    shown = commands(heading)
    clients = [args for args in shown if args[0] == "client" and args[1] != "request"]
    (server,) = (args for args in shown if args[0] == "server")
    for args in shown:
        if args not in (server, *clients):
            assert (ended := fedge(*args, folder=tmp_path)).code == 0, ended.err
    assert len(clients) == 3
    run = tmp_path / "runs" / "real"
    with ExitStack() as stack:

        def start_server(port: int) -> Process:
            """Start it, and wait until it listens."""
            args = [*server, "--listen", f"127.0.0.1:{port}"]
            process = stack.enter_context(fedge.start(*args, folder=tmp_path))
            wait_until(lambda: "listening on" in process.err or process.ended)
            return process

        first = start_server(0)
        (port,) = map(int, re.findall(r"^listening on 127\.0\.0\.1:(\d+)$", first.err, re.MULTILINE))
        there = [[arg.replace(":8443", f":{port}") for arg in args] for args in clients]
        processes = [stack.enter_context(fedge.start(*args, folder=tmp_path)) for args in there]
        wait_until(lambda: len(unmeasured_records(run)) >= 3)
        assert first.kill().code == -signal.SIGKILL
        assert len(unmeasured_records(run)) < 20
        assert (ended := start_server(port).wait()).code == 0, ended.err
        for process in processes:
            assert (ended := process.wait()).code == 0, ended.err
            assert "the run is complete" in ended.err
            assert "reconnected as client" in ended.err
    told = {args[0]: fedge(*args, folder=tmp_path) for args in commands("Inspect the run")}
    assert {name: ended.code for name, ended in told.items()} == dict.fromkeys(
        ("clients", "show", "plot", "run", "report"), 0
    ), told
    members = json.loads(fedge("clients", "runs/real", "--format", "json", folder=tmp_path).out)["clients"]
    assert [(member["number"], member["name"], member["rounds"]) for member in members] == [
        (number, name, 20) for number, name in enumerate("abc")
    ]
    assert (tmp_path / "real.svg").read_text().startswith("<svg")
    page = (tmp_path / "report.html").read_text()
    assert {"real", "simulated"} <= set(re.findall(r"\w+", page))
    assert unmeasured_records(run) == unmeasured_records(tmp_path / "runs" / "simulated")
