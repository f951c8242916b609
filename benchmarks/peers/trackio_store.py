"""The runs of `benchmarks.page_runs` in a store of Trackio, and its page.

`python -m ... STORE NUM_RUNS NUM_ROUNDS` writes, `python -m ... STORE --port N` shows.
"""

import os
import sys

PROJECT = "fedge"


def write(num_runs: int, num_rounds: int) -> None:
    from trackio.sqlite_storage import SQLiteStorage

    from benchmarks.page_runs import outline_runs

    for made in outline_runs(num_runs):
        config = {"learning_rate": made.rate, "seed": made.seed}
        metrics = [{"accuracy": float(record["accuracy"])} for record in made.records(num_rounds)]
        SQLiteStorage.bulk_log(PROJECT, made.name, metrics, steps=list(range(1, num_rounds + 1)), config=config)


def show(port: int) -> None:
    import trackio

    trackio.show(PROJECT, open_browser=False, block_thread=True, host="127.0.0.1", server_port=port)


if __name__ == "__main__":
    os.environ["TRACKIO_DIR"] = sys.argv[1]  # read when Trackio is imported
    if sys.argv[2] == "--port":
        show(int(sys.argv[3]))
    else:
        write(int(sys.argv[2]), int(sys.argv[3]))
