"""Clusters with unavailable clients."""

from pathlib import Path

import pytest

import fedge


@pytest.mark.parametrize("engine", ["loop", "block"])
def test_the_clustering_round_asks_exactly_the_available_clients(engine: str, tmp_path: Path) -> None:
    """Of twelve clients, 0 to 7 are available from the start, and 8 to 11 after ten simulated seconds."""
    trace = tmp_path / "on.csv"
    early, late = range(8), range(8, 12)
    rows = [f"{client},0,1e9" for client in early] + [f"{client},10,1e9" for client in late]
    trace.write_text("\n".join(["client,start,end", *rows, ""]))
    run = fedge.run(
        {
            "rounds": 6,
            "data": {"name": "digits", "clients": 12},
            "model": "logistic",
            "algorithm": {"name": "fedavg", "local_steps": 1},
            "selection": {"count": 3},
            "cluster": {"count": 2, "round": 2},
            "edge": {"availability": {"name": "trace", "file": str(trace)}, "seconds_per_step": 3.0},
            "evaluate": {"every": 6},
            "engine": {"name": engine},
        },
        runs=tmp_path / "runs",
    )
    assert isinstance(run, fedge.Run)
    assert [record["cohort"] for record in run.rounds] == [3, 8, 3, 3, 3, 3]
    assert [record["dropped"] for record in run.rounds] == [0] * 6
    # all eight train and are told their clusters: a request and an answer each
    assert run.rounds[1]["messages"] == 2 * (8 + 8)
    # later each client trains once; one that is asked for the first time first trains once more to join a cluster
    newcomers = [(record["messages"] // 2 - 3) // 2 for record in run.rounds[2:]]
    assert sum(newcomers) > 0
    assert all(record["messages"] == 2 * (3 + 2 * new) for record, new in zip(run.rounds[2:], newcomers, strict=True))
