"""Placement of tensors in a buffer, and their bytes in pieces."""

import pytest
import torch

from fedge.core.placement import ALIGNMENT, Placement, aligned, allocate, arrange, end_of, pieces, settle

MIB = 1 << 20


def test_every_tensor_starts_at_a_multiple_of_64() -> None:
    tree = {
        "x": torch.zeros(3, 5),
        "t": torch.zeros((), dtype=torch.int64),
        "none": torch.zeros(0),
        "y": torch.zeros(1),
    }
    assert arrange(tree, start=10) == [
        Placement("x", "float32", (3, 5), 64),  # 60 bytes
        Placement("t", "int64", (), 128),  # 8 bytes
        Placement("none", "float32", (0,), 192),
        Placement("y", "float32", (1,), 192),
    ]
    assert end_of(arrange(tree, start=10)) == 196
    assert end_of([]) == 0
    assert [aligned(number) for number in (0, 1, 64, 65)] == [0, 64, 64, 128]


def test_views_share_the_memory_of_the_buffer() -> None:
    tree = {"x": torch.arange(6.0).view(2, 3), "flag": torch.tensor(True), "none": torch.zeros(0, 4).double()}
    placements = arrange(tree)
    memory = allocate(placements[1].stop)  # an empty tensor may lie beyond the end
    for place in placements:
        place.view(memory).copy_(tree[place.name])
    assert all(torch.equal(place.view(memory), tree[place.name]) for place in placements)
    placements[0].view(memory)[0, 0] = 9
    assert memory[:4].view(torch.float32).item() == 9


@pytest.mark.parametrize("num_bytes", [0, 1, 63, 64, 1000, 5 * MIB])
def test_allocated_memory_is_aligned(num_bytes: int) -> None:
    held = [allocate(num_bytes) for _ in range(5)]
    assert {len(memory) for memory in held} == {num_bytes}
    assert {memory.data_ptr() % 64 for memory in held if num_bytes} <= {0}


@pytest.mark.parametrize(
    "value",
    [
        torch.arange(3 * MIB // 4),
        torch.arange(600.0).expand(1000, 600),
        torch.randn(3, 700, 500).permute(2, 0, 1),
        torch.randn(2_000_000)[::2],
        torch.arange(10.0)[3:4].as_strided((1,), (7,)),  # contiguous with a stride that is not 1
        torch.tensor(2.5, dtype=torch.bfloat16, requires_grad=True),
        torch.zeros(0, 3),
    ],
    ids=["contiguous", "expanded", "permuted", "every other", "odd stride", "one number", "empty"],
)
def test_pieces_are_the_bytes_of_a_tensor(value: torch.Tensor) -> None:
    found = list(pieces(value))
    assert all(0 < len(piece) <= MIB for piece in found)
    whole = value.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
    expected = torch.empty_like(whole).copy_(whole).as_strided(whole.shape, (1,)).view(torch.uint8)
    assert b"".join(found) == expected.numpy().tobytes()


def test_settle_copies_only_unaligned_tensors() -> None:
    rows = torch.arange(21.0).view(3, 7)
    tree = {"own": torch.arange(5.0), "row": rows[1], "column": rows[:, 1], "empty": torch.zeros(0)}
    found = settle(tree)
    assert found["own"] is tree["own"]
    assert all(value.data_ptr() % ALIGNMENT == 0 and value.is_contiguous() for value in found.values())
    for name, value in tree.items():
        assert torch.equal(found[name], value)
    assert rows[1].data_ptr() % ALIGNMENT  # otherwise the test would show nothing
