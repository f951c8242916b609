"""Streams: which values are kept, how long streams are, and how invalid ones are rejected."""

import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.codecs.chain import expected_bits, parse_chain
from fedge.core.codecs.stream import Group, carried, largest, read, write
from fedge.core.errors import ModelError, StreamError
from fedge.core.layout import Entry, Layout
from mutations import fuzz, mutate, outcome
from published_sizes import formula_bits

PUBLISHED = ["sparsify(0.6)", "uniq", "golomb"]
CHAINS = [
    PUBLISHED,
    ["sparsify(0.9)"],
    ["sparsify(0.5)", "golomb"],
    ["sparsify(0.3)", "qsgd(4)", "golomb"],
    ["sparsify(0.3)", "fp16"],
    ["uniq"],
    ["expq"],
    ["qsgd(2)"],
    ["fp16"],
]
MNIST_2NN = ((200, 784), (200,), (200, 200), (200,), (10, 200), (10,))
RNG = np.random.default_rng(0)


def layout_of(*shapes):
    entries, start = [], 0
    for i, shape in enumerate(shapes):
        stop = start + int(np.prod(shape))
        entries.append(Entry(f"t{i}", start, stop, shape, False))
        start = stop
    return Layout(tuple(entries))


def group_of(stages, moments=0):
    chain, expq = parse_chain(stages), parse_chain(["expq"])
    names = ("y", "m", "v")[: 1 + moments]
    return Group(names, (chain.quantiser, *[expq.quantiser] * moments), chain)


def changes_of(layout, names="ymv", seed=0, zeros=0.0, low=-35):
    rng = np.random.default_rng(seed)
    sizes = [10 ** rng.uniform(low, 5, layout.num_params) * rng.choice([-1, 1], layout.num_params) for _ in names]
    present = rng.random(layout.num_params) >= zeros
    return {name: (values * present).astype(np.float32) for name, values in zip(names, sizes, strict=True)}


def decode(layout, groups, stream, names="ymv"):
    vectors = {name: np.zeros(layout.num_params, np.float32) for name in names}
    read(layout, groups, np.frombuffer(bytes(stream), np.uint8), vectors)
    return vectors


def sealed(body):
    """Return a stream with a valid checksum for any content."""
    return bytes(body) + zlib.crc32(bytes(body)).to_bytes(4, "little")


# ---------------------------------------------------------------- kept values


def test_largest_by_hand():
    # int(6 * 0.5) = 3 of 6 are dropped. 5 and 4 stay, and the first of the three 2s.
    assert largest(np.array([1, -2, 5, 2, -4, 2.0]), 0.5).tolist() == [1, 2, 4]


def test_largest_keeps_at_least_one_but_never_a_zero():
    assert largest(np.array([1.0, -3, 2]), 0.9999999999999999).tolist() == [1]
    assert largest(np.array([0.0, 0, 2, 0]), 0.0).tolist() == [2]
    assert largest(np.array([0.0, 0, 2, 0]), 0.25).tolist() == [2]
    assert largest(np.zeros(4), 0.5).tolist() == []
    assert largest(np.zeros(0), 0.5).tolist() == []


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-6, 6), max_size=60), st.floats(0, 1, exclude_max=True))
def test_largest_is_a_stable_sort_cut_short(numbers, sparsity):
    num_kept = max(1, len(numbers) - int(len(numbers) * sparsity))
    ordered = sorted(range(len(numbers)), key=lambda place: (-abs(numbers[place]), place))
    expected = sorted(place for place in ordered[:num_kept] if numbers[place])
    assert largest(np.array(numbers, np.float32), sparsity).tolist() == expected


# ---------------------------------------------------------------- length


@pytest.mark.parametrize("sparsity", [0.6, 0.9, 0.95])
@pytest.mark.parametrize("moments", [0, 2])
def test_stream_length_equals_the_published_formula(sparsity, moments):
    layout = layout_of(*MNIST_2NN)
    group = group_of([f"sparsify({sparsity})", "uniq", "golomb"], moments)
    tensors = [(e.stop - e.start, sparsity if len(e.shape) > 1 else 0.0) for e in layout.params]
    num_bits = 8 * len(write(layout, [group], changes_of(layout), RNG))
    assert num_bits == pytest.approx(formula_bits(tensors, moments=bool(moments)), rel=0.02)


@pytest.mark.parametrize("stages", CHAINS, ids=" ".join)
@pytest.mark.parametrize("moments", [0, 1])
def test_stream_length_equals_expected_bits(stages, moments):
    layout = layout_of((80, 90), (90,), (6, 5, 4))
    group = group_of(stages, moments)
    num_bits = 8 * len(write(layout, [group], changes_of(layout), RNG))
    assert num_bits == pytest.approx(expected_bits(group.chain, layout, parse_chain(["expq"]), moments), rel=0.01)


@pytest.mark.parametrize(("moments", "bits"), [(0, 160), (2, 288)])
def test_header_of_a_tensor(moments, bits):
    layout = layout_of((3, 4), (4,))
    unchanged = changes_of(layout, zeros=1.0)
    assert 8 * len(write(layout, [group_of(PUBLISHED, moments)], unchanged, RNG)) == 96 + 2 * bits


def test_example_of_the_documentation():
    page = (Path(__file__).parents[2] / "docs" / "stream.md").read_text("utf-8")
    listing = page.split("```")[1].strip().splitlines()
    expected = bytes.fromhex("".join(line[:11] for line in listing))
    layout = Layout((Entry("w", 0, 8, (2, 4), False),))
    changes = {
        "y": np.float32([0, -0.5, 0.25, 0, 1, 0, 0, 0.1]),
        "m": np.float32([7, 1, 0, 7, -(2.0**-126), 7, 7, 7]),
    }
    assert write(layout, [group_of(["sparsify(0.625)", "uniq", "golomb"], 1)], changes, RNG) == expected


def test_indexes_and_floats_by_hand():
    layout = layout_of((2, 2))
    stream = write(layout, [group_of(["sparsify(0.5)"])], {"y": np.float32([1, -8, 0, 2])}, RNG)
    text = b"y:float32 at:u32\nt0 2x2"
    body = b"FDS1" + zlib.crc32(text).to_bytes(4, "little")
    body += b"\2\0\0\0" + b"\1\0\0\0\3\0\0\0" + np.array([-8, 2], "<f4").tobytes()
    assert stream == sealed(body)


def test_full_halves_by_hand():
    stream = write(layout_of((2,)), [group_of(["fp16"])], {"y": np.float32([1, -1.5])}, RNG)
    body = b"FDS1" + zlib.crc32(b"y:fp16 at:all\nt0 2").to_bytes(4, "little")
    body += np.array([2.0**-14], "<f4").tobytes() + np.array([2**14, -1.5 * 2**14], "<f2").tobytes()
    assert stream == sealed(body)


# ---------------------------------------------------------------- there and back


@pytest.mark.parametrize("stages", CHAINS, ids=" ".join)
@settings(max_examples=25, deadline=None)
@given(
    shapes=st.lists(st.lists(st.integers(0, 9), max_size=3).map(tuple), max_size=4),
    moments=st.integers(0, 2),
    zeros=st.sampled_from([0.0, 0.5, 0.97, 1.0]),
    low=st.sampled_from([-35, 4.99]),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_stream_restores_quantised_values_at_its_indices(stages, shapes, moments, zeros, low, seed):
    layout, group = layout_of(*shapes), group_of(stages, moments)
    changes = changes_of(layout, seed=seed, zeros=zeros, low=low)
    stream = write(layout, [group], changes, np.random.default_rng(seed))
    decoded = decode(layout, [group], stream)
    rng = np.random.default_rng(seed)
    for entry in layout.params:
        here = slice(entry.start, entry.stop)
        lead = changes["y"][here]
        sparsity = group.chain.sparsity_of(entry)
        indices = np.arange(len(lead)) if sparsity is None else largest(lead, sparsity)
        for name, quantiser in zip(group.names, group.quantisers, strict=True):
            kept = changes[name][here][indices]
            expected = np.zeros(len(lead), np.float32)
            expected[indices] = quantiser.restore(*quantiser.quantise(kept, rng), len(kept), np.dtype(np.float32))
            assert np.array_equal(decoded[name][here], expected)


@pytest.mark.parametrize("stages", [chain for chain in CHAINS if not any("qsgd" in stage for stage in chain)])
def test_carried_equals_the_decoded_stream(stages):
    layout, group = layout_of((7, 9), (9,), (0, 2), (2, 3, 4)), group_of(stages)
    change = changes_of(layout, "y", zeros=0.2)
    decoded = decode(layout, [group], write(layout, [group], change, RNG), "y")["y"]
    assert np.array_equal(carried(layout, group.chain, change["y"]), decoded)


def test_every_group_has_its_own_indices():
    layout = layout_of((2, 2))
    groups = [group_of(["sparsify(0.5)"]), group_of(["sparsify(0.5)"])._replace(names=("c",))]
    changes = {"y": np.float32([4, 1, 2, 3]), "c": np.float32([1, 3, 2, 0])}
    decoded = decode(layout, groups, write(layout, groups, changes, RNG), "yc")
    assert {name: vector.tolist() for name, vector in decoded.items()} == {"y": [4, 0, 0, 3], "c": [0, 3, 2, 0]}


def test_read_adds_to_the_vectors():
    layout, group = layout_of((2, 2)), group_of(["sparsify(0.5)"])
    stream = write(layout, [group], {"y": np.float32([4, 1, 2, 3])}, RNG)
    vectors = {"y": np.full(4, 10.0)}
    read(layout, [group], np.frombuffer(stream, np.uint8), vectors)
    assert vectors["y"].tolist() == [14, 10, 10, 13]


def test_a_tensor_that_is_too_large_to_be_sparse_is_refused():
    entry = Entry("huge", 0, 2**27, (2**14, 2**13), False)
    change = {"y": np.broadcast_to(np.float32(0), 2**27)}  # takes no memory
    with pytest.raises(ModelError, match=r"huge has 134217728 values.*drop sparsify"):
        write(Layout((entry,)), [group_of(PUBLISHED)], change, RNG)


# ---------------------------------------------------------------- rejected input

LAYOUT = layout_of((6, 7), (7,), (0, 3), (2, 3, 4))
SENT = {
    " ".join(stages): (groups := [group_of(stages, 2)], write(LAYOUT, groups, changes_of(LAYOUT, zeros=0.1), RNG))
    for stages in CHAINS
}


@pytest.mark.parametrize("name", SENT)
def test_every_truncation_of_a_stream_is_rejected(name):
    groups, stream = SENT[name]
    for length in range(len(stream)):
        with pytest.raises(StreamError):
            decode(LAYOUT, groups, stream[:length])
    for length in range(len(stream) - 4):
        with pytest.raises(StreamError):
            decode(LAYOUT, groups, sealed(stream[:length]))


@pytest.mark.parametrize("name", SENT)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_flipped_bits_and_extra_bytes_are_refused(name, data):
    groups, stream = SENT[name]
    corrupt = bytearray(stream)
    corrupt[data.draw(st.integers(0, len(stream) - 1))] ^= data.draw(st.integers(1, 255))
    extended = stream + data.draw(st.binary(min_size=1, max_size=9))
    for wrong in (corrupt, extended):
        with pytest.raises(StreamError):
            decode(LAYOUT, groups, wrong)


@pytest.mark.parametrize("name", SENT)
@settings(max_examples=35, deadline=None)
@given(data=st.data())
def test_corruption_with_a_valid_checksum_decodes_or_is_rejected(name, data):
    groups, stream = SENT[name]
    body = stream[:-4]
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(8, len(body) - 1))] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.one_of(st.just(len(body)), st.integers(8, len(body))))]
    body += data.draw(st.one_of(st.just(b""), st.binary(max_size=9)))
    try:
        decoded = decode(LAYOUT, groups, sealed(body))
    except StreamError:
        return
    assert all(np.isfinite(vector).all() for vector in decoded.values())


@pytest.mark.parametrize("name", SENT)
@settings(max_examples=30, deadline=None)
@given(tensors=st.binary(max_size=300))
def test_any_bytes_in_a_valid_frame_decode_or_are_rejected(name, tensors):
    groups, stream = SENT[name]
    try:
        decoded = decode(LAYOUT, groups, sealed(stream[:8] + tensors))
    except StreamError:
        return
    assert all(np.isfinite(vector).all() for vector in decoded.values())


def test_a_sealed_stream_that_is_too_short_or_too_long_is_refused():
    groups, stream = SENT[" ".join(PUBLISHED)]
    with pytest.raises(StreamError, match=r"t3: expected .* more bytes, .* are left"):
        decode(LAYOUT, groups, sealed(stream[:-5]))
    with pytest.raises(StreamError, match="got 1 bytes more"):
        decode(LAYOUT, groups, sealed(stream[:-4] + b"\0"))


def test_more_values_than_the_tensor_has_are_refused():
    groups, stream = SENT[" ".join(PUBLISHED)]
    with pytest.raises(StreamError, match="t0: expected at most 42 values, got 43"):
        decode(LAYOUT, groups, sealed(stream[:8] + b"\x2b\0\0\0" + stream[12:-4]))


@pytest.mark.parametrize("indices", [(3, 3), (3, 2), (3, 4), (1, 2**31)])
def test_indices_that_do_not_increase_below_the_size_are_refused(indices):
    layout, groups = layout_of((2, 2)), [group_of(["sparsify(0.5)"])]
    stream = write(layout, groups, {"y": np.float32([4, 1, 2, 3])}, RNG)
    with pytest.raises(StreamError, match="increasing indices below 4"):
        decode(layout, groups, sealed(stream[:12] + np.array(indices, "<u4").tobytes() + stream[20:-4]))


def test_another_version_is_refused():
    groups, stream = SENT["uniq"]
    with pytest.raises(StreamError, match=r"FDS1.*FDS2"):
        decode(LAYOUT, groups, sealed(b"FDS2" + stream[4:-4]))


@pytest.mark.parametrize(
    ("layout", "groups"),
    [
        (layout_of((7, 6), (7,), (0, 3), (2, 3, 4)), [group_of(PUBLISHED, 2)]),
        (layout_of((6, 7), (7,), (2, 3, 4)), [group_of(PUBLISHED, 2)]),
        (LAYOUT, [group_of(PUBLISHED, 1)]),
        (LAYOUT, [group_of(PUBLISHED, 2)._replace(names=("y", "v", "m"))]),
        (LAYOUT, [group_of(["sparsify(0.6)", "uniq"], 2)]),
        (LAYOUT, [group_of(["sparsify(0.6)", "expq", "golomb"], 2)]),
        (LAYOUT, [group_of(["uniq"], 2)]),
        (LAYOUT, [group_of(PUBLISHED, 2), group_of(PUBLISHED)._replace(names=("c",))]),
    ],
)
def test_a_stream_of_another_layout_or_codec_is_refused(layout, groups):
    _, stream = SENT[" ".join(PUBLISHED)]
    with pytest.raises(StreamError, match="another model or codec"):
        decode(layout, groups, stream, "ymvc")


def test_the_format_does_not_depend_on_the_sparsity():
    _, stream = SENT[" ".join(PUBLISHED)]
    assert decode(LAYOUT, [group_of(["sparsify(0.9)", "uniq", "golomb"], 2)], stream)["y"].any()


# ---------------------------------------------------------------- forged input


def forge(rng):
    """Return the number of a chain and a modified stream; in three of four cases frame and checksum are valid."""
    which = rng.randrange(len(SENT))
    _, stream = list(SENT.values())[which]
    if rng.randrange(4) == 0:
        return bytes([which]) + mutate(bytes(stream), rng)
    return bytes([which]) + sealed(bytes(stream[:8]) + mutate(bytes(stream[8:-4]), rng))


def decode_forged(case):
    groups, _ = list(SENT.values())[case[0]]
    decoded = decode(LAYOUT, groups, case[1:])
    assert all(np.isfinite(vector).all() for vector in decoded.values())


def allowed(case):
    """Return the memory allowed: bits as bytes, indices and values as 8 bytes each, several at a time."""
    return 40 * len(case) + 8 * 40 * LAYOUT.num_params


@pytest.mark.parametrize("num_cases", [2_000, pytest.param(20_000, marks=pytest.mark.full)])
def test_mutations_decode_or_are_refused(num_cases):
    found = fuzz(forge, decode_forged, StreamError, num_cases, allowed)
    checksums = sum(count for text, count in found.items() if "checksum" in text)
    assert 0 < checksums < num_cases / 3
    assert found[""] > num_cases / 20
    assert sum(text.startswith("t3: ") for text in found) > 5  # the last tensor is reached


def test_a_huge_count_takes_no_memory():
    _, stream = SENT[" ".join(PUBLISHED)]
    case = bytes([0]) + sealed(bytes(stream[:8]) + b"\xff" * 4 + bytes(stream[12:-4]))
    assert "expected at most 42 values, got 134217727" in outcome(case, decode_forged, StreamError, allowed)
