"""Speed of the results page: `python -m benchmarks.page [--runs 1000] [--rounds 1000]`.

Measures from the request to the whole answer, in this process, without a browser: the first view without an index and
with one, filter and sort of many rows, a comparison of 20 runs with its curves, and the Pareto front of many points.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from random import Random

from starlette.testclient import TestClient

from benchmarks.page_runs import make_runs
from fedge.report.pareto import pareto_front
from fedge.view.app import make_app
from fedge.view.guard import AccessRules


def timed(client: TestClient, path: str) -> float:
    """Return the seconds until the whole answer is there; an error ends the measurement."""
    began = time.perf_counter()
    answer = client.get(path)
    seconds = time.perf_counter() - began
    assert answer.status_code == 200, answer.text
    return seconds


def open_page(folder: Path) -> TestClient:
    rules = AccessRules()
    client = TestClient(make_app(folder, rules), base_url="http://localhost")
    client.headers["Authorization"] = f"Bearer {rules.token}"
    return client


def measure(folder: Path, num_rows: int) -> dict[str, float]:
    """Return seconds by what was measured."""
    found = {"first view without an index": timed(open_page(folder), "/")}
    found["first view with an index"] = timed(open_page(folder), "/")
    with tempfile.TemporaryDirectory() as many:
        make_runs(Path(many), num_rows, 2)
        client = open_page(Path(many))
        timed(client, "/")
        query = "/?where=accuracy>=0.01&where=algorithm.learning_rate>=0.02&q=rate&sort=-accuracy"
        found[f"filter and sort of {num_rows} rows"] = min(timed(client, query) for _ in range(3))
        found[f"groups of {num_rows} rows"] = min(timed(client, "/?group=settings&sort=-accuracy") for _ in range(3))
    client = open_page(folder)
    timed(client, "/")
    timed(client, "/api/chart/curves?where=algorithm.learning_rate=0.01")  # imports Altair
    keys = [row["key"] for row in client.get("/api/runs?limit=60").json()["rows"]][20:40]
    chosen = "&".join(f"run={key}" for key in keys)
    found["comparison of 20 runs"] = timed(client, f"/compare?{chosen}")
    found["curves of 20 runs"] = timed(client, f"/api/chart/curves?{chosen}")
    random = Random(1)
    points = [(random.random(), random.random()) for _ in range(100_000)]
    began = time.perf_counter()
    pareto_front(points)
    found["Pareto front of 100,000 points"] = time.perf_counter() - began
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=1_000)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, help="runs made before; else they are made in a temporary folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["XDG_CACHE_HOME"] = f"{scratch}/cache"
        folder = given.folder or Path(scratch) / "runs"
        if given.folder is None:
            make_runs(folder, given.runs, given.rounds)
        print(json.dumps(measure(folder, given.rows), indent=2))


if __name__ == "__main__":
    main()
