"""The runs of `benchmarks.page_runs` as event files of TensorBoard: `python -m ... STORE NUM_RUNS NUM_ROUNDS`."""

import sys
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from benchmarks.page_runs import outline_runs


def main(store: Path, num_runs: int, num_rounds: int) -> None:
    for made in outline_runs(num_runs):
        writer = EventFileWriter(str(store / made.name), max_queue_size=num_rounds)
        for number, record in enumerate(made.records(num_rounds), 1):
            summary = Summary(value=[Summary.Value(tag="accuracy", simple_value=float(record["accuracy"]))])
            writer.add_event(Event(wall_time=float(number), step=number, summary=summary))
        writer.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
