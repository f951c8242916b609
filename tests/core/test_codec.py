import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.codec import SparseCodec, bits_per_value, formula_bits, largest
from fedge.core.errors import ConfigError, ModelError, StreamError, TrainingError
from fedge.core.layout import Entry, Layout

ANCHORS = {"y": "x", "m": "m", "v": "v"}
MNIST_2NN = ((200, 784), (200,), (200, 200), (200,), (10, 200), (10,))


def layout_of(*shapes):
    entries, start = [], 0
    for i, shape in enumerate(shapes):
        stop = start + int(np.prod(shape))
        entries.append(Entry(f"t{i}", start, stop, shape, False))
        start = stop
    return Layout(tuple(entries))


def codec_of(*shapes, sparsity=0.5, moments=("m", "v")):
    return SparseCodec(layout_of(*shapes), sparsity, anchors=ANCHORS, moments=moments)


def trees(codec, seed=0, dtype=torch.float32, zeros=0.0):
    """An upload and what had been sent down; m is zero there, so its changes span 40 orders of magnitude."""
    rng = np.random.default_rng(seed)
    size = codec.layout.num_params
    down = {name: torch.from_numpy(rng.standard_normal(size)).to(dtype) for name in ("x", "v")}
    down["m"] = torch.zeros(size, dtype=dtype)
    scales = {"y": rng.uniform(-3, 1, size), "m": rng.uniform(-35, 5, size), "v": rng.uniform(-35, 5, size)}
    upload = {}
    for name, scale in scales.items():
        change = 10**scale * rng.choice([-1, 1], size) * (rng.random(size) >= zeros)
        upload[name] = down[ANCHORS[name]] + torch.from_numpy(change).to(dtype)
    return {name: upload[name] for name in ("y", *codec.moments)}, down


def sealed(body):
    """A stream whose checksum is right, whatever it says."""
    data = bytes(body)
    return {"stream": torch.frombuffer(bytearray(data + zlib.crc32(data).to_bytes(4, "little")), dtype=torch.uint8)}


def bytes_of(wire):
    return bytearray(wire["stream"].numpy().tobytes())


# ---------------------------------------------------------------- what is kept


def test_largest_by_hand():
    # int(6 * 0.5) = 3 of 6 go. 5 and 4 stay; of the three 2s the one at the lowest place.
    assert largest(np.array([1, -2, 5, 2, -4, 2.0]), 0.5).tolist() == [1, 2, 4]


def test_largest_keeps_at_least_one_but_never_a_zero():
    assert largest(np.array([1.0, -3, 2]), 0.9999999999999999).tolist() == [1]
    assert largest(np.array([0.0, 0, 2, 0]), 0.0).tolist() == [2]
    assert largest(np.array([0.0, 0, 2, 0]), 0.25).tolist() == [2]
    assert largest(np.zeros(4), 0.5).tolist() == []
    assert largest(np.zeros(0), 0.5).tolist() == []


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-6, 6), max_size=60), st.floats(0, 1, exclude_max=True))
def test_largest_is_a_stable_sort_cut_short(numbers, sparsity):
    num_kept = max(1, len(numbers) - int(len(numbers) * sparsity))
    ordered = sorted(range(len(numbers)), key=lambda place: (-abs(numbers[place]), place))
    expected = sorted(place for place in ordered[:num_kept] if numbers[place])
    assert largest(np.array(numbers, np.float32), sparsity).tolist() == expected


# ---------------------------------------------------------------- how large it is


def test_formula_of_mnist_2nn():
    tensors = [(int(np.prod(shape)), 0.6) for shape in MNIST_2NN]
    assert formula_bits(tensors, moments=False) == pytest.approx(837_642)  # 6*160 + 0.4*(8 + 2.5)*199,210
    assert formula_bits(tensors, moments=True) == pytest.approx(2_112_970)  # 6*224 + 0.4*(24 + 2.5)*199,210


@pytest.mark.parametrize(
    ("sparsity", "plain", "with_moments"),
    [(0.6, 7.619, 9.057), (0.9, 25.087, 33.385), (0.95, 46.424, 64.460)],
)
def test_compression_without_headers(sparsity, plain, with_moments):
    assert 32 / bits_per_value(sparsity, moments=False) == pytest.approx(plain, abs=5e-4)
    assert 96 / bits_per_value(sparsity, moments=True) == pytest.approx(with_moments, abs=5e-4)


@pytest.mark.parametrize("sparsity", [0.6, 0.9, 0.95])
@pytest.mark.parametrize("moments", [(), ("m", "v")])
def test_stream_is_as_long_as_the_formula_says(sparsity, moments):
    codec = codec_of(*MNIST_2NN, sparsity=sparsity, moments=moments)
    num_bits = 8 * len(codec.encode(*trees(codec))["stream"])
    assert num_bits == pytest.approx(formula_bits(codec.tensors, moments=bool(moments)), rel=0.02)


@pytest.mark.parametrize(("moments", "bits"), [((), 160), (("m", "v"), 288)])
def test_header_of_a_tensor(moments, bits):
    codec = codec_of((3, 4), (4,), moments=moments)
    _, down = trees(codec)
    unchanged = {"y": down["x"], "m": down["m"], "v": down["v"]}
    assert 8 * len(codec.encode(unchanged, down)["stream"]) == 96 + 2 * bits


def test_example_of_the_documentation():
    page = (Path(__file__).parents[2] / "docs" / "stream.md").read_text("utf-8")
    listing = page.split("```")[1].strip().splitlines()
    expected = bytes.fromhex("".join(line[:11] for line in listing))
    layout = Layout((Entry("w", 0, 8, (2, 4), False),))
    codec = SparseCodec(layout, 0.625, anchors={"y": "x", "m": "m"}, moments=("m",))
    y = torch.tensor([0, -0.5, 0.25, 0, 1, 0, 0, 0.1])
    m = torch.tensor([7, 1, 0, 7, -(2.0**-126), 7, 7, 7])
    zero = torch.zeros(8)
    assert bytes_of(codec.encode({"y": y, "m": m}, {"x": zero, "m": zero})) == expected


# ---------------------------------------------------------------- there and back


def test_round_trip_by_hand():
    # The matrix loses int(4 * 0.5) = 2 of its values, the vector only its zero. Alone of its sign, a value is
    # exact; -3, -1 and -2 lie 0, 127 and 63.5 steps up of 2/127, and 63.5 goes to the even 64: -3 + 64*2/127.
    codec = codec_of((2, 2), (4,), moments=("m",))
    down = {"x": torch.full((8,), 10.0), "m": torch.zeros(8)}
    y = down["x"] + torch.tensor([1.0, -8, 4, 2, -3, 0, -2, -1])
    m = torch.tensor([5.0, 2, 2, 5, 0, 5, 2, -2])
    decoded = codec.decode(codec.encode({"y": y, "m": m}, down), down)
    assert decoded["y"].tolist() == pytest.approx([10, 2, 14, 10, 7, 10, 7 + 128 / 127, 9], rel=1e-6)
    assert decoded["m"].tolist() == [0, 2, 2, 0, 0, 0, 2, -2]


@settings(max_examples=80, deadline=None)
@given(
    shapes=st.lists(st.lists(st.integers(0, 9), max_size=3).map(tuple), max_size=4),
    sparsity=st.floats(0, 1, exclude_max=True),
    moments=st.sampled_from([(), ("m",), ("m", "v")]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    zeros=st.sampled_from([0.0, 0.5, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_decoded_is_what_was_sent_down_plus_the_kept_changes(shapes, sparsity, moments, dtype, zeros, seed):
    codec = codec_of(*shapes, sparsity=sparsity, moments=moments)
    upload, down = trees(codec, seed, dtype, zeros)
    decoded = codec.decode(codec.encode(upload, down), down)
    assert list(decoded) == ["y", *moments]
    precision = 4 * torch.finfo(dtype).eps if dtype == torch.float32 else 2.0**-24
    for entry, (_, s) in zip(codec.layout.params, codec.tensors, strict=True):
        here = slice(entry.start, entry.stop)
        change = {name: (upload[name] - down[ANCHORS[name]])[here].numpy() for name in upload}
        kept = np.zeros(entry.stop - entry.start, bool)
        kept[largest(change["y"].astype(np.float32), s)] = True
        for name, exact in change.items():
            sent, got = down[ANCHORS[name]][here].numpy(), decoded[name][here].numpy()
            assert got.dtype == sent.dtype
            assert np.array_equal(got[~kept], sent[~kept])
            rounding = precision * (np.abs(got[kept]) + np.abs(sent[kept]))
            assert (np.abs(got[kept] - sent[kept] - exact[kept]) <= allowed(name, exact[kept]) + rounding).all()


def allowed(name, exact):
    """Half a step of UniQ for the lead, of ExpQ for a moment."""
    exact = exact.astype(np.float64)
    if name == "y":
        spans = [np.ptp(exact[side]) if side.any() else 0.0 for side in (exact < 0, exact > 0)]
        return np.where(exact < 0, spans[0], spans[1]) / 254
    present = np.abs(exact[exact != 0])
    ratio = present.max() / present.min() if len(present) else 1.0
    return np.abs(exact) * (ratio ** (1 / 252) - 1)


def test_nothing_is_mutated_or_shared():
    codec = codec_of((5, 6), (6,))
    upload, down = trees(codec)
    before = {name: value.clone() for name, value in {**upload, **{f"down {k}": v for k, v in down.items()}}.items()}
    decoded = codec.decode(codec.encode(upload, down), down)
    for value in decoded.values():
        value.fill_(0)
    after = {**upload, **{f"down {k}": v for k, v in down.items()}}
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_other_entries_pass_through():
    codec = codec_of((5, 6))
    upload, down = trees(codec)
    passed = {"stats": torch.rand(7), "steps": torch.tensor([3], dtype=torch.int64)}
    wire = codec.encode({**upload, **passed}, down)
    assert set(wire) == {"stream", "stats", "steps"}
    decoded = codec.decode(wire, down)
    assert set(decoded) == {"y", "m", "v", "stats", "steps"}
    assert all(torch.equal(decoded[name], value) for name, value in passed.items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_without_an_anchor_the_value_is_the_change(dtype):
    codec = SparseCodec(layout_of((2, 2)), 0.5, lead="d", anchors={"d": None})
    change = torch.tensor([0.5, 0.0, -4.0, 0.25], dtype=dtype)
    decoded = codec.decode(codec.encode({"d": change}, {}), {"x": torch.ones(4, dtype=dtype)})
    assert decoded["d"].tolist() == [0.5, 0, -4, 0]
    assert decoded["d"].dtype == dtype


def test_without_tensors():
    codec = codec_of()
    upload, down = trees(codec)
    wire = codec.encode(upload, down)
    assert len(wire["stream"]) == 12
    assert {name: len(value) for name, value in codec.decode(wire, down).items()} == {"y": 0, "m": 0, "v": 0}


# ---------------------------------------------------------------- what is refused


@pytest.fixture(scope="module")
def sent():
    codec = codec_of((6, 7), (7,), (0, 3), (2, 3, 4))
    upload, down = trees(codec, zeros=0.1)
    return codec, down, bytes_of(codec.encode(upload, down))


def test_every_cut_is_refused(sent):
    codec, down, stream = sent
    for length in range(len(stream)):
        with pytest.raises(StreamError):
            codec.decode({"stream": torch.tensor(list(stream[:length]), dtype=torch.uint8)}, down)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_flipped_bits_and_extra_bytes_are_refused(sent, data):
    codec, down, stream = sent
    corrupt = bytearray(stream)
    corrupt[data.draw(st.integers(0, len(stream) - 1))] ^= data.draw(st.integers(1, 255))
    extended = stream + data.draw(st.binary(min_size=1, max_size=9))
    for wrong in (corrupt, extended):
        with pytest.raises(StreamError):
            codec.decode({"stream": torch.frombuffer(wrong, dtype=torch.uint8)}, down)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_corruption_under_a_right_checksum_decodes_or_is_refused(sent, data):
    codec, down, stream = sent
    body = stream[:-4]
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(8, len(body) - 1))] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.one_of(st.just(len(body)), st.integers(8, len(body))))]
    body += data.draw(st.one_of(st.just(b""), st.binary(max_size=9)))
    try:
        decoded = codec.decode(sealed(body), down)
    except StreamError:
        return
    assert {name: value.shape for name, value in decoded.items()} == dict.fromkeys("ymv", down["x"].shape)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_under_a_right_frame_decode_or_are_refused(sent, tensors):
    codec, down, stream = sent
    try:
        decoded = codec.decode(sealed(stream[:8] + tensors), down)
    except StreamError:
        return
    assert decoded["y"].shape == down["x"].shape


def test_a_sealed_stream_that_is_too_short_or_too_long_is_refused(sent):
    codec, down, stream = sent
    with pytest.raises(StreamError, match=r"t3: expected .* bytes more, .* are left"):
        codec.decode(sealed(stream[:-5]), down)
    with pytest.raises(StreamError, match="got 1 bytes more"):
        codec.decode(sealed(stream[:-4] + b"\0"), down)


def test_more_values_than_the_tensor_has_are_refused(sent):
    codec, down, stream = sent
    body = stream[:-4]
    body[8:12] = (43).to_bytes(4, "little")
    with pytest.raises(StreamError, match="t0: expected at most 42 values, got 43"):
        codec.decode(sealed(body), down)


def test_another_version_is_refused(sent):
    codec, down, stream = sent
    with pytest.raises(StreamError, match=r"FDS1.*FDS2"):
        codec.decode(sealed(b"FDS2" + stream[4:-4]), down)


@pytest.mark.parametrize(
    "other",
    [
        codec_of((7, 6), (7,), (0, 3), (2, 3, 4)),
        codec_of((6, 7), (7,), (2, 3, 4)),
        codec_of((6, 7), (7,), (0, 3), (2, 3, 4), moments=("m",)),
        codec_of((6, 7), (7,), (0, 3), (2, 3, 4), moments=("v", "m")),
    ],
)
def test_a_stream_of_another_layout_or_other_moments_is_refused(sent, other):
    _, down, stream = sent
    with pytest.raises(StreamError, match="another model"):
        other.decode({"stream": torch.frombuffer(stream, dtype=torch.uint8)}, down)


@pytest.mark.parametrize("wire", [{}, {"stream": torch.zeros(20)}, {"stream": torch.zeros(4, 5, dtype=torch.uint8)}])
def test_what_is_no_stream_is_refused(sent, wire):
    codec, down, _ = sent
    with pytest.raises(StreamError, match="expected 'stream'"):
        codec.decode(wire, down)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e39])
def test_changes_beyond_float32_are_refused(value):
    codec = codec_of((2, 2), moments=())
    down = {"x": torch.zeros(4, dtype=torch.float64)}
    with pytest.raises(TrainingError, match="change of 'y' is not finite"):
        codec.encode({"y": torch.tensor([0, 1, value, 0], dtype=torch.float64)}, down)


def test_a_block_of_clients_is_refused():
    codec = codec_of((2, 2), moments=())
    with pytest.raises(ModelError, match=r"one client's vector of 4 values, got the shape \(3, 4\)"):
        codec.encode({"y": torch.zeros(3, 4)}, {"x": torch.zeros(4)})


def test_an_entry_in_the_streams_place_is_refused():
    codec = codec_of((2, 2), moments=())
    with pytest.raises(ModelError, match="'stream'"):
        codec.encode({"y": torch.zeros(4), "stream": torch.zeros(1)}, {"x": torch.zeros(4)})


def test_wrong_options_are_refused():
    layout = layout_of((2, 2))
    for sparsity in (-0.1, 1.0, float("nan")):
        with pytest.raises(ConfigError, match="at least 0 and less than 1"):
            SparseCodec(layout, sparsity)
    with pytest.raises(ConfigError, match="'m' is missing"):
        SparseCodec(layout, 0.5, moments=("m",))
    with pytest.raises(ModelError, match="t0 has 134217728 values"):
        SparseCodec(layout_of((2**14, 2**13)), 0.5)
