"""Small versions of the scenes of `benchmarks.net_load`."""

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from benchmarks import net_load

pytestmark = pytest.mark.full


def run(scene: str, arguments: str) -> dict[str, Any]:
    code = f"import json; from benchmarks import net_load; print(json.dumps(net_load.{scene}({arguments})))"
    command = [sys.executable, "-c", code]  # forks, so not from a process with threads
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout)  # type: ignore[no-any-return]


def test_payloads_of_load_and_real_clients_are_timed() -> None:
    found = run("payload", "num_load=4, num_real=1, width=50_000")
    assert found["real_clients_done"] == 1
    assert min(found["down_gb_s"], found["up_gb_s"]) > 0
    down, up, reduced = found["peak_mb"].values()
    assert found["peak_beyond_mb"] == max(down, up, reduced - 2 * found["model_mb"])


def test_every_idle_client_joins_once() -> None:
    found = run("idle", "2.0, num_load=60")
    assert found["joins_again"] == 0
    assert 0 <= found["idle_core_share"] < 1


def test_large_model_is_sent_to_real_clients_and_back() -> None:
    found = run("large", "width=50_000")
    assert found["clients_done"] == 3
    assert found["server_peak_mb"] >= found["server_before_mb"] > 0


def test_clients_join_and_leave() -> None:
    found = run("churn", "8.0, num_load=30, num_real=1, net={'min_clients': 4, 'lease_s': 5.0}, selection={'count': 8}")
    assert found["joins"] > 4
    assert found["answers"] > 0
    assert len(found["minute, clients, MB, descriptors"]) > 1


def test_stragglers_do_not_delay_the_deadline() -> None:
    found = run("deadline", "num_load=8, rounds=2, width=500_000, net={'deadline_s': 4.0, 'fraction': 1.0}")
    assert len(found["seconds"]) == 2
    assert found["answers"] == 8  # two rounds with four prompt clients
    assert found["overrun_s"] == max(found["seconds"]) - 4.0 >= 0


def test_slope_excludes_the_oscillation() -> None:
    minutes = np.linspace(2, 5, 180)
    swing = 75 * np.sin(np.pi * minutes) + 20 * np.cos(np.pi * minutes)
    assert net_load.slope_beside_swing(minutes, 400 + swing) == pytest.approx(0, abs=1e-9)
    assert net_load.slope_beside_swing(minutes, 400 + 17 * minutes + swing) == pytest.approx(17)
