"""edge.jsonl goes back to the checkpoint with the records."""

from pathlib import Path

import pytest
import torch

from fedge.core.errors import RunError
from fedge.runs.directory import RunDirectory
from fedge.runs.read import Run


def work(run: RunDirectory, *rounds: int) -> None:
    for r in rounds:
        run.append_edge({"round": r, "latency": [None, 0.5]})
        run.append({"round": r})


def save(run: RunDirectory, r: int) -> None:
    run.save({"x": torch.tensor([float(r)])}, {"round": r})


def rounds_seen(path: Path) -> list[int]:
    return [line["round"] for line in Run(path).edge]


def test_there_is_no_file_without_lines(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, {}, {}) as run:
        run.append({"round": 1})
        save(run, 1)
    assert not (tmp_path / "edge.jsonl").exists()
    assert Run(tmp_path).edge == []


def test_a_line_is_there_at_once(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, {}, {}) as run:
        work(run, 1)
        assert (tmp_path / "edge.jsonl").read_bytes() == b'{"round":1,"latency":[null,0.5]}\n'


def test_restore_goes_back_to_the_checkpoint(tmp_path: Path) -> None:
    """Each file by its own length: the run has traces too, and longer ones."""
    with RunDirectory.create(tmp_path, {}, {}) as run:
        work(run, 1, 2)
        run.append_traces({"round": 2, "step": k} for k in range(100))
        save(run, 2)
        work(run, 3)
        run.append_traces([{"round": 3}])
    with RunDirectory.open(tmp_path) as run:
        run.restore()
        assert rounds_seen(tmp_path) == [1, 2] == [record["round"] for record in Run(tmp_path).rounds]
        assert len(Run(tmp_path).traces) == 100
        work(run, 3, 4)
    assert rounds_seen(tmp_path) == [1, 2, 3, 4]


def test_restore_without_a_checkpoint_goes_back_to_the_start(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, {}, {}) as run:
        work(run, 1)
    with RunDirectory.open(tmp_path) as run:
        assert run.restore() is None
        assert rounds_seen(tmp_path) == []


def test_lines_that_begin_after_the_checkpoint(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, {}, {}) as run:
        run.append({"round": 1})
        save(run, 1)
        work(run, 2)
    with RunDirectory.open(tmp_path) as run:
        run.restore()
    assert rounds_seen(tmp_path) == []


@pytest.mark.parametrize("left", [5, None])
def test_lost_lines(tmp_path: Path, left: int | None) -> None:
    file = tmp_path / "edge.jsonl"
    with RunDirectory.create(tmp_path, {}, {}) as run:
        work(run, 1)
        save(run, 1)
    content = file.read_bytes()
    file.unlink() if left is None else file.write_bytes(content[:left])
    with (
        RunDirectory.open(tmp_path) as run,
        pytest.raises(RunError, match=rf"edge\.jsonl is damaged: expected at least the {len(content)} bytes"),
    ):
        run.restore()
    assert len(Run(tmp_path).rounds) == 1  # nothing was lost by trying
