import os
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.errors import RunError, StorageError, TrainingError
from fedge.core.layout import Tree
from fedge.runs.kept import KeptStore

TEMPLATE = {"c": torch.tensor([1.0, 2.0]), "n": torch.tensor([7])}
ROW_BYTES = 128  # 8 bytes each, at 64-byte boundaries
CHUNK_ROWS = (1 << 20) // ROW_BYTES


def tree(value: float) -> Tree:
    return {"c": torch.tensor([float(value), -float(value)]), "n": torch.tensor([int(value)])}


def value(found: Tree) -> float:
    first, second = found["c"].tolist()
    assert second == -first
    assert found["n"].tolist() == [int(first)]
    return float(first)


def save(store: KeptStore) -> Tree:
    index = store.index()
    store.flush()
    store.committed()
    return index


def num_rows(path: Path) -> int:
    rows, rest = divmod(path.stat().st_size, ROW_BYTES)
    assert rest == 0
    return rows


def test_starts_from_the_template() -> None:
    store = KeptStore(TEMPLATE, None)
    first = store.read(3)
    assert first["c"].tolist() == [1.0, 2.0]
    assert first["n"].dtype == torch.int64
    first["c"].zero_()
    assert store.read(3)["c"].tolist() == [1.0, 2.0]


def test_a_read_returns_a_copy() -> None:
    store = KeptStore(TEMPLATE, None)
    store.write(3, tree(5))
    before = store.read(3)
    store.write(3, tree(6))
    assert value(before) == 5
    assert value(store.read(3)) == 6


def test_a_write_stores_a_copy() -> None:
    store = KeptStore(TEMPLATE, None)
    mine = tree(5)
    store.write(3, mine)
    mine["c"].zero_()
    assert value(store.read(3)) == 5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.bool, torch.uint8, torch.int32])
def test_any_dtype_and_shape(dtype: torch.dtype) -> None:
    template = {
        "odd": torch.zeros(3, dtype=torch.uint8),
        "x": torch.zeros(2, 3, dtype=dtype),
        "one": torch.zeros(()),
    }
    store = KeptStore(template | {"none": torch.zeros(0, 4)}, None)
    x = torch.arange(6).reshape(2, 3).to(dtype)
    store.write(1, template | {"none": torch.zeros(0, 4), "x": x, "one": torch.tensor(2.5)})
    found = store.read(1)
    assert list(found) == ["odd", "x", "one", "none"]
    assert torch.equal(found["x"], x)
    assert found["one"].shape == ()
    assert found["one"].item() == 2.5
    assert found["none"].shape == (0, 4)
    assert all(entry.data_ptr() % 64 == 0 for entry in found.values())


@pytest.mark.parametrize(
    "wrong",
    [
        {"c": torch.zeros(2)},
        {"c": torch.zeros(2), "n": torch.tensor([1]), "m": torch.zeros(1)},
        {"c": torch.zeros(1, 2), "n": torch.tensor([1])},
        {"c": torch.zeros(2, dtype=torch.float64), "n": torch.tensor([1])},
    ],
)
def test_refuses_other_names_shapes_and_dtypes(wrong: Tree) -> None:
    store = KeptStore(TEMPLATE, None)
    with pytest.raises(TrainingError, match=r"client 4: .*expected .*float32\[2\].*, got "):
        store.write(4, wrong)
    assert store.read(4)["c"].tolist() == [1.0, 2.0]


def test_empty_template_touches_no_file(tmp_path: Path) -> None:
    store = KeptStore({}, tmp_path / "kept.bin")
    store.write(1, {})
    assert store.read(1) == {}
    assert save(store) == {}
    store.restore({})
    store.close()
    assert not (tmp_path / "kept.bin").exists()


def test_only_participants_use_space(tmp_path: Path) -> None:
    path = tmp_path / "kept.bin"
    store = KeptStore(TEMPLATE, path)
    assert num_rows(path) == 0
    for client in (0, 10**6, 10**12):
        store.write(client, tree(client % 97))
    assert num_rows(path) == CHUNK_ROWS
    assert store.index()["clients"].tolist() == [0, 10**6, 10**12]
    assert value(store.read(10**12)) == 10**12 % 97


def test_rows_are_reused(tmp_path: Path) -> None:
    # Rows of 64 KiB are allocated 16 at a time: two versions of 10 rows need 32, and never more.
    path = tmp_path / "kept.bin"
    store = KeptStore({"c": torch.zeros(16 << 10)}, path)
    for round in range(4):
        for client in range(10):
            store.write(client, {"c": torch.full((16 << 10,), float(round))})
        save(store)
    assert path.stat().st_size == 32 * (64 << 10)


def test_growth_is_allocated(tmp_path: Path) -> None:
    path = tmp_path / "kept.bin"
    KeptStore(TEMPLATE, path).write(0, tree(1))
    assert path.stat().st_blocks * 512 >= 1 << 20  # no holes that a full disk could not fill


def test_resumes_from_the_index(tmp_path: Path) -> None:
    path = tmp_path / "kept.bin"
    store = KeptStore(TEMPLATE, path)
    store.write(1, tree(10))
    store.write(2, tree(20))
    index = save(store)
    store.write(1, tree(11))
    store.write(3, tree(31))
    store.close()

    again = KeptStore(TEMPLATE, path)
    again.restore(index)
    assert [value(again.read(client)) for client in (1, 2)] == [10, 20]
    assert again.read(3)["c"].tolist() == [1.0, 2.0]


def test_resumed_store_fills_its_gaps(tmp_path: Path) -> None:
    store = KeptStore(TEMPLATE, tmp_path / "kept.bin")
    store.write(1, tree(10))
    save(store)
    store.write(1, tree(11))  # to row 1
    index = save(store)
    again = KeptStore(TEMPLATE, tmp_path / "kept.bin")
    again.restore(index)
    again.write(2, tree(20))
    assert again.index()["rows"].tolist() == [1, 0]


def test_failed_checkpoint_frees_nothing(tmp_path: Path) -> None:
    store = KeptStore(TEMPLATE, tmp_path / "kept.bin")
    store.write(1, tree(10))
    first = save(store)
    store.write(1, tree(11))
    second = store.index()  # it is unknown which one is on disk: both must stay
    for round in range(12, 20):
        store.write(1, tree(round))
    for index, expected in ((first, 10), (second, 11)):
        other = KeptStore(TEMPLATE, tmp_path / "kept.bin")
        other.restore(index)
        assert value(other.read(1)) == expected
    assert value(store.read(1)) == 19


def test_writes_during_a_checkpoint(tmp_path: Path) -> None:
    store = KeptStore(TEMPLATE, tmp_path / "kept.bin")
    store.write(1, tree(10))
    index = store.index()
    store.write(1, tree(11))  # the row in the checkpoint has no client any more, but is not free
    store.committed()
    store.write(2, tree(20))
    again = KeptStore(TEMPLATE, tmp_path / "kept.bin")
    again.restore(index)
    assert value(again.read(1)) == 10
    assert [value(store.read(client)) for client in (1, 2)] == [11, 20]


def test_restore_refuses_other_rows(tmp_path: Path) -> None:
    store = KeptStore(TEMPLATE, tmp_path / "kept.bin")
    store.write(1, tree(10))
    index = save(store)
    with pytest.raises(RunError, match=r"expected 64 bytes .* the checkpoint has 128"):
        KeptStore({"c": torch.zeros(2)}, tmp_path / "other.bin").restore(index)
    with pytest.raises(RunError, match=r"expected 0 bytes .* the checkpoint has 128"):
        KeptStore({}, tmp_path / "other.bin").restore(index)
    with pytest.raises(RunError, match=r"expected 128 bytes .* the checkpoint has 0"):
        store.restore({})


def test_a_truncated_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "kept.bin"
    store = KeptStore(TEMPLATE, path)
    store.write(1, tree(10))
    store.write(2, tree(20))
    index = save(store)
    os.truncate(path, ROW_BYTES)
    with pytest.raises(RunError, match=r"kept\.bin is damaged: it ends before the end of row"):
        store.read(2)
    with pytest.raises(RunError, match=r"kept\.bin is damaged: expected at least 2 rows .* got 1"):
        KeptStore(TEMPLATE, path).restore(index)


def test_full_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = KeptStore(TEMPLATE, tmp_path / "kept.bin", "resume with `fedge resume here`")
    store.write(1, tree(10))
    index = save(store)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        for _ in range(3):
            with pytest.raises(StorageError, match=r"kept\.bin: No space .*; free space .* `fedge resume here`"):
                store.write(1, tree(11))
    assert value(store.read(1)) == 10
    store.write(1, tree(12))
    assert value(store.read(1)) == 12
    assert store.index()["rows"].tolist() == [1]  # the row that failed three times is not lost
    again = KeptStore(TEMPLATE, tmp_path / "kept.bin")
    again.restore(index)
    assert value(again.read(1)) == 10


class Checkpointed:
    """A store with its expected contents: a dictionary, and a copy for each checkpoint that may be on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = KeptStore(TEMPLATE, path)
        self.now: dict[int, float] = {}
        self.durable: tuple[Tree, dict[int, float]] = (save(self.store), {})
        self.doubtful: tuple[Tree, dict[int, float]] | None = None  # written, but not known to be durable

    def write(self, client: int, number: int) -> None:
        self.store.write(client, tree(number))
        self.now[client] = number

    def checkpoint(self, succeeds: bool, between: int | None) -> None:
        """Write a checkpoint; client `between` writes meanwhile."""
        self.doubtful = (self.store.index(), dict(self.now))
        if between is not None:
            self.write(between, 1000 + between)
        if succeeds:
            self.store.committed()
            self.durable, self.doubtful = self.doubtful, None

    def crash(self) -> None:
        self.store.close()
        self.store = KeptStore(TEMPLATE, self.path)
        self.store.restore(self.durable[0])
        self.now, self.doubtful = dict(self.durable[1]), None

    def check(self) -> None:
        same(self.store, self.now)
        for index, expected in filter(None, (self.durable, self.doubtful)):
            reader = KeptStore(TEMPLATE, self.path)
            reader.restore(index)
            same(reader, expected)
            reader.close()


def same(store: KeptStore, expected: dict[int, float]) -> None:
    for client in range(4):
        if client in expected:
            assert value(store.read(client)) == expected[client]
        else:
            assert store.read(client)["c"].tolist() == [1.0, 2.0]


clients = st.integers(0, 3)
actions = st.one_of(
    st.tuples(st.just("write"), clients, st.integers(1, 999)),
    st.tuples(st.just("checkpoint"), st.booleans(), st.none() | clients),
    st.tuples(st.just("crash")),
)


@settings(max_examples=120, deadline=None)
@given(st.lists(actions, min_size=3, max_size=20))
def test_checkpoints_stay_consistent(steps: list[tuple[Any, ...]]) -> None:
    with TemporaryDirectory() as folder:
        model = Checkpointed(Path(folder) / "kept.bin")
        for action, *arguments in steps:
            getattr(model, action)(*arguments)
            model.check()
        model.store.close()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(clients, max_size=6), min_size=2, max_size=8))
def test_needs_no_more_rows_than_two_checkpoints(cohorts: list[list[int]]) -> None:
    """A client has at most two rows: the one of the last checkpoint, and the one written since."""
    store = KeptStore(TEMPLATE, None)
    indexes = []
    for cohort in cohorts:
        for client in cohort:
            store.write(client, tree(client))
        indexes.append(save(store))
    for before, after in pairwise(indexes):
        assert len(set(after["rows"].tolist())) == len(after["rows"])
        num_clients = len(after["clients"])
        assert max(after["rows"].tolist(), default=0) < max(1, num_clients + len(before["clients"]))
    store.close()
