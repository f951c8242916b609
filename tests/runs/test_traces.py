from pathlib import Path

import pytest
import torch

from fedge.core.errors import RunError, StorageError
from fedge.runs.directory import RunDirectory
from fedge.runs.read import Run


def work(run: RunDirectory, *rounds: int) -> None:
    for r in rounds:
        run.append_traces({"round": r, "step": k} for k in range(2))
        run.append({"round": r})


def save(run: RunDirectory, r: int) -> None:
    run.save({"x": torch.tensor([float(r)])}, {"round": r})


def rounds_traced(path: Path) -> list[int]:
    return [line["round"] for line in Run(path).traces]


def test_there_is_no_file_without_traces(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, {}, {}) as run:
        run.append({"round": 1})
        save(run, 1)
    assert not (tmp_path / "traces.jsonl").exists()
    assert Run(tmp_path).traces == []


def test_lines_are_there_at_once(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, {}, {}) as run:
        run.append_traces([{"round": 1, "loss": float("nan")}, {"round": 1}])
        assert (tmp_path / "traces.jsonl").read_bytes() == b'{"round":1,"loss":null}\n{"round":1}\n'


def test_restore_goes_back_to_the_checkpoint(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, {}, {}) as run:
        work(run, 1, 2)
        save(run, 2)
        work(run, 3)
    with RunDirectory.open(tmp_path) as run:
        restored = run.restore()
        assert restored is not None
        assert restored[1] == {"round": 2}
        assert rounds_traced(tmp_path) == [1, 1, 2, 2]
        work(run, 3, 4)
        assert rounds_traced(tmp_path) == [1, 1, 2, 2, 3, 3, 4, 4]


def test_restore_without_a_checkpoint_goes_back_to_the_start(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, {}, {}) as run:
        work(run, 1)
    with RunDirectory.open(tmp_path) as run:
        assert run.restore() is None
        assert rounds_traced(tmp_path) == []
        work(run, 1)
    assert rounds_traced(tmp_path) == [1, 1]


def test_traces_that_begin_after_the_checkpoint(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, {}, {}) as run:
        run.append({"round": 1})
        save(run, 1)
        work(run, 2)
    with RunDirectory.open(tmp_path) as run:
        run.restore()
    assert rounds_traced(tmp_path) == []


@pytest.mark.parametrize("left", [5, None])
def test_lost_lines(tmp_path: Path, left: int | None) -> None:
    file = tmp_path / "traces.jsonl"
    with RunDirectory.create(tmp_path, {}, {}) as run:
        work(run, 1)
        save(run, 1)
    content = file.read_bytes()
    file.unlink() if left is None else file.write_bytes(content[:left])
    with (
        RunDirectory.open(tmp_path) as run,
        pytest.raises(RunError, match=rf"traces\.jsonl is damaged: expected at least the {len(content)} bytes"),
    ):
        run.restore()
    assert len(Run(tmp_path).rounds) == 1  # nothing was lost by trying


def test_half_a_line_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_half(file: int, data: bytes) -> None:
        real(file, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    import fedge.runs.directory as module

    real = module.write_all
    with RunDirectory.create(tmp_path, {}, {}) as run:
        work(run, 1)
        before = (tmp_path / "traces.jsonl").read_bytes()
        monkeypatch.setattr(module, "write_all", write_half)
        with pytest.raises(StorageError, match=r"cannot write .*traces\.jsonl: No space left on device; free space"):
            run.append_traces([{"round": 2}])
    assert (tmp_path / "traces.jsonl").read_bytes() == before


def test_half_a_line_is_not_there_yet(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, {}, {}) as run:
        work(run, 1)
        with (tmp_path / "traces.jsonl").open("ab") as file:
            file.write(b'{"round": 2')
        assert rounds_traced(tmp_path) == [1, 1]
