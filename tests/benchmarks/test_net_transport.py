import json
import subprocess
import sys


def test_all_payloads_arrive_and_are_measured() -> None:
    command = [sys.executable, "-m", "benchmarks.net_transport", "4", "2"]  # forks, so not from a process with threads
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout)
    for grants in ("4 grants", "200 grants"):
        values = found[grants]
        assert min(values["down_gb_s"], values["up_gb_s"], values["down_pss_mb"], values["up_rss_mb"]) > 0
        assert values["down_pss_mb"] <= values["down_rss_mb"]
