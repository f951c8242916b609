import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedge.core.errors import ModelError
from fedge.core.layout import Entry, Layout, nest, pick

SHAPES = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple), min_size=1, max_size=6)


def layout_of(shapes: list[tuple[int, ...]], stats: list[tuple[int, ...]] = ()) -> Layout:  # type: ignore[assignment]
    def entries(letter: str, side: list[tuple[int, ...]]) -> tuple[Entry, ...]:
        found, start = [], 0
        for i, shape in enumerate(side):
            stop = start + torch.empty(shape).numel()
            found.append(Entry(f"{letter}{i}", start, stop, shape, norm=False))
            start = stop
        return tuple(found)

    return Layout(entries("p", shapes), entries("s", list(stats)))


def names(entries: tuple[Entry, ...]) -> list[str]:
    return [entry.name for entry in entries]


# ---------------------------------------------------------------- of a module


def test_parameters_and_statistics_of_a_batchnorm_model() -> None:
    layout = Layout.of(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 1, bias=False)))
    # 6 weights and 3 biases, then gamma and beta of 3 each, then 3 weights
    assert layout.params == (
        Entry("0.weight", 0, 6, (3, 2), norm=False),
        Entry("0.bias", 6, 9, (3,), norm=False),
        Entry("1.weight", 9, 12, (3,), norm=True),
        Entry("1.bias", 12, 15, (3,), norm=True),
        Entry("3.weight", 15, 18, (1, 3), norm=False),
    )
    # num_batches_tracked is not a statistic that can be averaged
    assert layout.stats == (
        Entry("1.running_mean", 0, 3, (3,), norm=True),
        Entry("1.running_var", 3, 6, (3,), norm=True),
    )
    assert (layout.num_params, layout.num_stats) == (18, 6)
    assert [layout.size(kind) for kind in ("params", "stats", "scalar")] == [18, 6, 1]


def test_statistics_of_a_bare_batchnorm_have_plain_names() -> None:
    layout = Layout.of(nn.BatchNorm1d(2))
    assert names(layout.params) == ["weight", "bias"]
    assert names(layout.stats) == ["running_mean", "running_var"]


def test_batchnorm_without_running_statistics_has_none() -> None:
    layout = Layout.of(nn.Sequential(nn.BatchNorm1d(2, track_running_stats=False)))
    assert layout.stats == ()
    assert layout.num_stats == 0


def test_batchnorm_that_counts_batches_is_refused() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, momentum=None))
    with pytest.raises(ModelError, match=r"layer 1: .*momentum=None.*such as 0\.1"):
        Layout.of(module)


def test_frozen_parameters_have_no_entries() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    module[0].requires_grad_(False)
    assert Layout.of(module).params == (
        Entry("1.weight", 0, 3, (1, 3), norm=False),
        Entry("1.bias", 3, 4, (1,), norm=False),
    )


def test_a_model_without_trainable_parameters_is_refused() -> None:
    with pytest.raises(ModelError, match="no trainable parameter"):
        Layout.of(nn.Sequential(nn.Linear(2, 3).requires_grad_(False), nn.ReLU()))


def test_tied_parameters_are_one_entry() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.weight = first.weight
    assert names(Layout.of(nn.Sequential(first, second)).params) == ["0.weight", "0.bias", "1.bias"]


# ---------------------------------------------------------------- views


def test_views_share_memory_with_the_vector() -> None:
    layout = layout_of([(2, 2), (1,)], stats=[(2,)])
    vector, stats = torch.arange(5.0), torch.tensor([7.0, 8.0])
    views = layout.views(vector)
    assert views["p0"].tolist() == [[0, 1], [2, 3]]
    assert views["p1"].tolist() == [4]
    views["p0"][1, 0] = 9
    assert vector.tolist() == [0, 1, 9, 3, 4]
    layout.views(stats, "stats")["s0"][1] = 0
    assert stats.tolist() == [7, 0]


def test_views_of_a_block_start_with_its_rows() -> None:
    layout = layout_of([(2, 2), (1,)])
    block = torch.arange(10.0).view(2, 5)
    views = layout.views(block)
    assert views["p0"].tolist() == [[[0, 1], [2, 3]], [[5, 6], [7, 8]]]
    assert views["p1"].tolist() == [[4], [9]]
    views["p1"].fill_(-1)
    assert block[:, 4].tolist() == [-1, -1]


def test_a_parameter_without_dimensions_has_a_view() -> None:
    assert layout_of([()]).views(torch.tensor([3.0]))["p0"].item() == 3.0


def test_a_scalar_has_no_views() -> None:
    assert layout_of([(2,)]).views(torch.ones(1), "scalar") == {}


@given(SHAPES)
@settings(max_examples=50, deadline=None)
def test_flat_undoes_views(shapes: list[tuple[int, ...]]) -> None:
    layout = layout_of(shapes)
    vector = torch.arange(float(layout.num_params))
    assert torch.equal(layout.flat(layout.views(vector).values()), vector)


# ---------------------------------------------------------------- parts


def test_a_part_is_packed_together() -> None:
    part = layout_of([(2,), (3,), (1, 2)], stats=[(2,), (1,)]).part(lambda entry: entry.name in ("p0", "p2", "s1"))
    assert part == Layout(
        (Entry("p0", 0, 2, (2,), norm=False), Entry("p2", 2, 4, (1, 2), norm=False)),
        (Entry("s1", 0, 1, (1,), norm=False),),
    )


def test_neighbouring_tensors_are_taken_as_one_slice() -> None:
    layout = layout_of([(2,), (3,), (1,), (4,)])
    part = layout.part(lambda entry: entry.name != "p2")
    assert list(layout.places(part, "params")) == [(slice(0, 5), slice(0, 5)), (slice(6, 10), slice(5, 9))]


def test_take_by_hand() -> None:
    layout = layout_of([(2,), (3,), (1,)], stats=[(1,), (2,)])
    part = layout.part(lambda entry: entry.name in ("p0", "p2", "s1"))
    assert layout.take(torch.arange(6.0), part, "params").tolist() == [0, 1, 5]
    assert layout.take(torch.arange(12.0).view(2, 6), part, "params").tolist() == [[0, 1, 5], [6, 7, 11]]
    assert layout.take(torch.arange(3.0), part, "stats").tolist() == [1, 2]


def test_a_part_without_tensors_takes_nothing() -> None:
    layout = layout_of([(2,)])
    nothing = layout.part(lambda entry: False)
    assert layout.take(torch.ones(3, 2), nothing, "params").shape == (3, 0)
    assert layout.put([(nothing, torch.ones(3, 0))], "params").shape == (3, 0)
    assert nothing.size("params") == 0


@given(st.data(), SHAPES, SHAPES | st.just([]))
@settings(max_examples=100, deadline=None)
@pytest.mark.parametrize("rows", [(), (3,)])
def test_put_undoes_take(
    rows: tuple[int, ...], data: st.DataObject, shapes: list[tuple[int, ...]], stats: list[tuple[int, ...]]
) -> None:
    """For any split of the tensors into three parts, some of them empty, in any order."""
    layout = layout_of(shapes, stats)
    owner = {entry.name: data.draw(st.integers(0, 2)) for entry in (*layout.params, *layout.stats)}
    parts = [layout.part(lambda entry, i=i: owner[entry.name] == i) for i in data.draw(st.permutations(range(3)))]
    for kind in ("params", "stats"):
        whole = torch.rand(*rows, layout.size(kind))
        pieces = [(part, layout.take(whole, part, kind)) for part in parts]
        assert sum(piece.shape[-1] for _, piece in pieces) == layout.size(kind)
        assert torch.equal(layout.put(pieces, kind), whole)


def test_put_spreads_a_scalar_over_its_part() -> None:
    layout = layout_of([(1,), (2,), (3,)])
    ours, mine = layout.part(lambda e: e.name != "p1"), layout.part(lambda e: e.name == "p1")
    spread = layout.put([(ours, torch.tensor([5.0])), (mine, torch.tensor([8.0]))], "params")
    assert spread.tolist() == [5, 8, 8, 5, 5, 5]


def test_put_gives_a_shared_vector_to_every_row() -> None:
    layout = layout_of([(1,), (2,)])
    ours, mine = layout.part(lambda e: e.name == "p0"), layout.part(lambda e: e.name == "p1")
    block = layout.put([(ours, torch.tensor([5.0])), (mine, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))], "params")
    assert block.tolist() == [[5, 1, 2], [5, 3, 4]]


# ---------------------------------------------------------------- trees in trees


def test_pick_undoes_nest() -> None:
    one, other = {"x": torch.ones(1), "a.b": torch.zeros(2)}, {"x": torch.zeros(1)}
    tree = nest("own", one) | nest("kept", other)
    assert list(tree) == ["own.x", "own.a.b", "kept.x"]
    assert pick("own", tree) == one
    assert pick("kept", tree) == other
    assert pick("ow", tree) == {}
