"""Trees in shared memory."""

import os
import resource
import tempfile
from collections.abc import Iterator
from math import prod
from multiprocessing import get_context
from pathlib import Path

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.errors import StorageError
from fedge.core.layout import Tree
from fedge.core.placement import Placements, arrange, end_of
from fedge.engines.arena import Arena, room

MIB = 1 << 20
DTYPES = (torch.float16, torch.float32, torch.float64, torch.uint8, torch.int32, torch.int64, torch.bool)


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena()
    yield arena
    arena.close()


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    found: Tree = {}
    for name in draw(st.lists(st.text(max_size=5), max_size=4, unique=True)):
        shape = draw(st.lists(st.integers(0, 4), max_size=3))
        found[name] = torch.arange(prod(shape)).view(shape).to(draw(st.sampled_from(DTYPES)))
    return found


def assert_same(found: Tree, expected: Tree) -> None:
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value)


@settings(max_examples=50)
@given(trees(), trees())
def test_several_trees_one_after_another(first: Tree, second: Tree) -> None:
    arena = Arena()
    one = arena.put(first)
    other = arena.put(second, end_of(one))
    # Placements can be sent to another process as plain values.
    one, other = (msgspec.convert(msgspec.to_builtins(entries), Placements) for entries in (one, other))
    assert_same(arena.get(one), first)
    assert_same(arena.get(other), second)
    arena.close()


@pytest.mark.parametrize("has_memfd", [True, False])
@pytest.mark.parametrize("has_fallocate", [True, False])
def test_on_other_systems(
    has_memfd: bool, has_fallocate: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if not has_memfd:
        monkeypatch.delattr(os, "memfd_create")
    if not has_fallocate:
        monkeypatch.delattr(os, "posix_fallocate")
    arena = Arena()
    tree = {"x": torch.arange(3 * MIB // 8)}
    assert_same(arena.get(arena.put(tree)), tree)
    assert arena.num_bytes == 3 * MIB
    assert list(tmp_path.iterdir()) == []  # it leaves no file behind
    arena.close()


def test_tensors_are_aligned_as_torch_aligns_them(arena: Arena) -> None:
    entries = arena.put({name: torch.ones(3) for name in "abc"})
    assert [entry.start for entry in entries] == [0, 64, 128]
    assert end_of(entries) == 128 + 12
    assert [value.data_ptr() % 64 for value in arena.get(entries).values()] == [0, 0, 0]


def test_get_returns_views(arena: Arena) -> None:
    entries = arena.put({"x": torch.zeros(2)})
    seen = arena.get(entries)["x"]
    arena.put({"x": torch.tensor([1.0, 2.0])})
    assert seen.tolist() == [1, 2]


def test_expanded_rows_are_written_in_full(arena: Arena) -> None:
    rows = torch.tensor([1.0, 2.0]).expand(3, 2)
    found = arena.get(arena.put({"rows": rows, "turned": rows.T}))
    assert found["rows"].tolist() == [[1, 2]] * 3
    assert found["turned"].tolist() == [[1] * 3, [2] * 3]
    assert all(value.is_contiguous() for value in found.values())


def test_an_arena_grows_only_when_it_must(arena: Arena) -> None:
    assert arena.num_bytes == 0
    small, large = {"x": torch.zeros(10)}, {"x": torch.zeros(MIB)}
    arena.put(small)
    assert arena.num_bytes == room(40)
    for _ in range(3):
        arena.put(large)
        arena.put(small)
        assert arena.num_bytes == room(end_of(arrange(large))) == 4 * MIB


def test_views_stay_valid_when_the_arena_grows_or_closes(arena: Arena) -> None:
    seen = arena.get(arena.put({"x": torch.arange(5)}))["x"]
    arena.put({"y": torch.zeros(MIB)}, start=64)
    arena.close()
    assert seen.tolist() == [0, 1, 2, 3, 4]


def test_another_process_may_grow_it(arena: Arena) -> None:
    before = arena.put({"x": torch.ones(1)})
    tree = {"y": torch.arange(MIB)}
    process = get_context("fork").Process(target=arena.put, args=(tree, 64))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert_same(arena.get(arrange(tree, 64)), tree)
    assert arena.get(before)["x"].item() == 1


def test_running_out_of_memory_is_reported(arena: Arena) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    arena.put({"x": torch.zeros(1)})
    held = arena.num_bytes
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, before[1]))
    try:
        with pytest.raises(StorageError, match=r"room for 2097152 bytes, got: File too large; raise the limit"):
            arena.put({"x": torch.zeros(MIB // 2)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert arena.num_bytes == held
    arena.put({"x": torch.zeros(MIB // 2)})


def test_running_out_of_address_space_is_reported(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: int, length: int) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("fedge.engines.arena.mmap.mmap", refuse)
    with pytest.raises(StorageError, match=r"got: Cannot allocate memory; free memory, or lower engine.rows"):
        arena.put({"x": torch.zeros(1)})
