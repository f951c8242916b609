from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from fedge.core.errors import RunError
from fedge.runs.checkpoint import Checkpoint, load, pack


def example() -> Checkpoint:
    shared = torch.arange(6.0).reshape(2, 3)
    state = {
        "z": shared,
        "a.b": shared.t(),  # the same memory, in another order
        "half": torch.tensor([1.5], dtype=torch.bfloat16),
        "count": torch.tensor(3),
        "none": torch.zeros(0),
    }
    return Checkpoint(state, {"rows": torch.tensor([4, 2])}, {"round": 7, "time": 0.1, "loss": float("nan")}, 123)


def test_comes_back_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(pack(example()))
    found = load(tmp_path / "file")
    assert found is not None
    assert list(found.state) == ["z", "a.b", "half", "count", "none"]
    assert found.state["z"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found.state["a.b"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert found.state["half"].dtype == torch.bfloat16
    assert found.state["count"].shape == ()
    assert found.state["count"].item() == 3
    assert found.state["none"].shape == (0,)
    assert found.kept["rows"].tolist() == [4, 2]
    assert found.meta == {"round": 7, "time": 0.1, "loss": None}
    assert found.round_bytes == 123


def test_others_can_read_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(pack(example()))
    with safe_open(tmp_path / "file", "pt") as file:
        assert set(file.keys()) == {
            "state.z",
            "state.a.b",
            "state.half",
            "state.count",
            "state.none",
            "kept.rows",
        }
        assert file.get_tensor("state.z").tolist() == [[0, 1, 2], [3, 4, 5]]


def test_no_file_is_no_checkpoint(tmp_path: Path) -> None:
    assert load(tmp_path / "file") is None


def test_every_cut_is_noticed(tmp_path: Path) -> None:
    data = pack(example())
    for length in range(0, len(data), 7):
        (tmp_path / "file").write_bytes(data[:length])
        with pytest.raises(RunError, match=r"file is damaged: expected a checkpoint, but .*; put back"):
            load(tmp_path / "file")


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    data = pack(example())
    start = 8 + int.from_bytes(data[:8], "little")
    places = range(start, len(data)), [data.index(b"round_bytes") + 15, data.index(b'\\"round\\":7') + 10]
    for place in (place for some in places for place in some):
        wrong = bytearray(data)
        wrong[place] ^= 1
        (tmp_path / "file").write_bytes(wrong)
        with pytest.raises(RunError, match="its checksum does not match"):
            load(tmp_path / "file")


def test_foreign_file_is_refused(tmp_path: Path) -> None:
    save_file({"x": torch.zeros(1)}, tmp_path / "file", {"format": "pt"})
    with pytest.raises(RunError, match="is damaged: expected a checkpoint"):
        load(tmp_path / "file")
