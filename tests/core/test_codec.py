"""Encoding trees as streams and decoding them."""

import warnings
import zlib

import numpy as np
import pytest
import torch

from fedge.core.codecs.chain import parse_chain
from fedge.core.codecs.codec import ChainCodec
from fedge.core.errors import ModelError, StreamError, TrainingError
from fedge.core.layout import Entry, Layout
from fedge.core.message import NoMeta, pack, unpack
from fedge.core.slots import Slot
from mutations import fuzz, mutate

PUBLISHED = ["sparsify(0.5)", "uniq", "golomb"]
HALF = ["sparsify(0.5)"]
LAYOUT = Layout((Entry("w", 0, 4, (2, 2), False), Entry("b", 4, 8, (4,), False)))
MATRIX = Layout((Entry("w", 0, 4, (2, 2), False),))
ADAM = {
    "x": Slot("params"),
    "y": Slot("params", anchor="x"),
    "m": Slot("params", anchor="m", moment=True),
    "v": Slot("params", anchor="v", moment=True),
    "t": Slot("scalar"),
    "stats": Slot("stats", anchor="stats"),
}
CHANGES = {"x": Slot("params"), "c": Slot("params"), "dy": Slot("params"), "dc": Slot("params")}


def codec_of(slots, up, moments=(), layout=MATRIX):
    return ChainCodec(layout, slots, parse_chain(list(up)), parse_chain(list(moments)))


def encode(codec, upload, down):
    return codec.encode(upload, down, np.random.default_rng(0))


def there_and_back(codec, upload, down):
    return codec.decode(encode(codec, upload, down), down)


def values(tree):
    return {name: value.tolist() for name, value in tree.items()}


# ---------------------------------------------------------------- vectors and their indices


def test_published_codec_by_hand():
    # The matrix loses int(4 * 0.5) = 2 of its values, the vector only its zero. Alone of its sign, a value is
    # exact; -3, -1 and -2 lie 0, 127 and 63.5 steps up of 2/127, and 63.5 goes to the even 64: -3 + 64*2/127.
    codec = codec_of(ADAM, PUBLISHED, ["expq"], LAYOUT)
    down = {"x": torch.full((8,), 10.0), "m": torch.zeros(8)}
    y = down["x"] + torch.tensor([1.0, -8, 4, 2, -3, 0, -2, -1])
    m = torch.tensor([5.0, 2, 2, 5, 0, 5, 2, -2])
    decoded = there_and_back(codec, {"y": y, "m": m}, down)
    assert decoded["y"].tolist() == pytest.approx([10, 2, 14, 10, 7, 10, 7 + 128 / 127, 9], rel=1e-6)
    assert decoded["m"].tolist() == [0, 2, 2, 0, 0, 0, 2, -2]


def test_moments_without_a_chain_travel_uncompressed():
    codec = codec_of(ADAM, HALF)
    upload = {"y": torch.tensor([1.0, 4, 3, 2]), "m": torch.rand(4), "v": torch.rand(4)}
    down = {name: torch.zeros(4) for name in "xmv"}
    wire = encode(codec, upload, down)
    assert list(wire) == ["stream:float32:y", "m", "v"]
    decoded = codec.decode(wire, down)
    assert torch.equal(decoded["m"], upload["m"])
    assert torch.equal(decoded["v"], upload["v"])
    assert decoded["y"].tolist() == [0, 4, 3, 0]


def test_moments_alone_have_all_indices():
    codec = codec_of(ADAM, [], ["fp16"])
    upload = {"y": torch.tensor([0.1, 4, 3, 2]), "m": torch.tensor([1.0, 2, 3, 0])}
    down = {name: torch.ones(4) for name in "xmv"}
    wire = encode(codec, upload, down)
    assert list(wire) == ["stream:float32:m", "y"]
    assert len(wire["stream:float32:m"]) == 12 + 4 + 2 * 4
    assert values(codec.decode(wire, down)) == values({"y": upload["y"], "m": upload["m"]})


def test_every_change_has_its_own_indices():
    codec = codec_of(CHANGES, HALF)
    upload = {"dc": torch.tensor([4.0, 3, 2, 1]), "dy": torch.tensor([1.0, 2, 3, 4])}
    wire = encode(codec, upload, {})
    assert list(wire) == ["stream:float32:dy,dc"]
    assert values(codec.decode(wire, {})) == {"dy": [0, 0, 3, 4], "dc": [4, 3, 0, 0]}


def test_moments_use_the_indices_of_the_first_change_with_an_anchor():
    slots = {"g": Slot("params"), "y": Slot("params", anchor="x"), "m": Slot("params", moment=True)}
    upload = {"g": torch.tensor([4.0, 3, 2, 1]), "y": torch.tensor([1.0, 2, 3, 4]), "m": torch.ones(4)}
    down = {"x": torch.zeros(4)}
    assert there_and_back(codec_of(slots, HALF, ["expq"]), upload, down)["m"].tolist() == [0, 0, 1, 1]
    slots["y"] = Slot("params")
    assert there_and_back(codec_of(slots, HALF, ["expq"]), upload, down)["m"].tolist() == [1, 1, 0, 0]


def test_values_without_an_anchor_are_sent_as_values():
    """As in a download, where no vector is a change relative to another."""
    slots = {name: slot._replace(anchor=None, moment=False) for name, slot in ADAM.items()}
    down = {"x": torch.tensor([1.0, 2, 4, -8]), "m": torch.tensor([0, 0.5, 0, 1]), "t": torch.tensor([3.0])}
    assert values(there_and_back(codec_of(slots, ["fp16"]), down, {})) == values(down)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("slots", [CHANGES, {"dy": Slot("params", anchor="x")}])
def test_the_dtype_is_preserved(dtype, slots):
    codec = codec_of(slots, HALF)
    change = torch.tensor([0.5, 0.0, -4.0, 0.25], dtype=dtype)
    decoded = there_and_back(codec, {"dy": change}, {"x": torch.zeros(4, dtype=dtype)})
    assert decoded["dy"].tolist() == [0.5, 0, -4, 0]
    assert decoded["dy"].dtype == dtype


def test_other_entries_pass_unchanged():
    codec = codec_of(ADAM, PUBLISHED)
    down = {"x": torch.zeros(4)}
    passed = {"stats": torch.rand(7), "t": torch.tensor([3], dtype=torch.int64)}
    wire = encode(codec, {"y": torch.rand(4), **passed}, down)
    assert set(wire) == {"stream:float32:y", "stats", "t"}
    decoded = codec.decode(wire, down)
    assert set(decoded) == {"y", "stats", "t"}
    assert all(torch.equal(decoded[name], value) for name, value in passed.items())


def test_without_parameters_there_is_no_stream():
    codec = codec_of(ADAM, PUBLISHED, ["expq"])
    flag = {"t": torch.ones(1)}
    assert encode(codec, flag, {}) == flag
    assert codec.decode(flag, {}) == flag
    assert codec.decode(encode(codec, {}, {}), {}) == {}


def test_nothing_is_mutated_or_shared():
    codec = codec_of(ADAM, PUBLISHED, ["expq"])
    upload, down = ({name: torch.rand(4) for name in names} for names in ("ymv", "xmv"))
    before = values(upload), values(down)
    for value in there_and_back(codec, upload, down).values():
        value.fill_(0)
    assert (values(upload), values(down)) == before


def test_random_rounding_follows_the_generator():
    codec = codec_of(ADAM, ["qsgd(2)"], layout=Layout((Entry("w", 0, 300, (300,), False),)))
    upload, down = {"y": torch.rand(300)}, {"x": torch.zeros(300)}
    one, same, other = (codec.encode(upload, down, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert torch.equal(one["stream:float32:y"], same["stream:float32:y"])
    assert not torch.equal(one["stream:float32:y"], other["stream:float32:y"])


# ---------------------------------------------------------------- residuals


def test_a_residual_is_added_and_does_not_travel():
    codec = codec_of(ADAM, HALF)
    down = {"x": torch.ones(4)}
    upload = {"y": torch.tensor([2.0, 3, 4, 5]), "residual.y": torch.tensor([9.0, 0, 0, 0])}
    wire = encode(codec, upload, down)
    assert list(wire) == ["stream:float32:y"]
    assert codec.decode(wire, down)["y"].tolist() == [11, 1, 1, 5]


def test_lost_returns_the_part_that_a_stream_drops():
    codec = codec_of(ADAM, ["error_feedback", *HALF])
    assert codec.lost(torch.tensor([1.0, 4, -3, 2])).tolist() == [1, 0, 0, 2]
    assert codec.lost(torch.tensor([1.0, float("nan"), 3, 2])).tolist() == [0, 0, 0, 0]  # `encode` rejects it


# ---------------------------------------------------------------- rejected input


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e39])
def test_changes_beyond_float32_are_refused(value):
    down = {"x": torch.zeros(4, dtype=torch.float64)}
    with pytest.raises(TrainingError, match="change of 'y' is not finite"):
        encode(codec_of(ADAM, HALF), {"y": torch.tensor([0, 1, value, 0], dtype=torch.float64)}, down)


def test_a_block_of_clients_is_refused():
    with pytest.raises(ModelError, match=r"one client's vector of 4 values, got shape \(3, 4\)"):
        encode(codec_of(ADAM, HALF), {"y": torch.zeros(3, 4)}, {"x": torch.zeros(4)})


@pytest.mark.parametrize(
    ("wire", "message"),
    [
        ({"y": torch.zeros(4)}, "expected y in a stream, got it uncompressed"),
        ({"stream:float32:y": torch.zeros(20)}, "expected a stream of bytes, got torch.float32"),
        ({"stream:float32:y": torch.zeros(4, 5, dtype=torch.uint8)}, r"of shape \(4, 5\)"),
        ({"stream:float32:y": torch.zeros(3, dtype=torch.uint8)}, "at least 12 bytes, got 3"),
        ({"stream:float32:z": torch.zeros(20, dtype=torch.uint8)}, "is not a stream of this codec"),
        ({"stream:float32:": torch.zeros(20, dtype=torch.uint8)}, "is not a stream of this codec"),
        ({"stream:float32:y,y": torch.zeros(20, dtype=torch.uint8)}, "is not a stream of this codec"),
        ({"stream:float32:t": torch.zeros(20, dtype=torch.uint8)}, "is not a stream of this codec"),
        ({"stream:int64:y": torch.zeros(20, dtype=torch.uint8)}, "is not a stream of this codec"),
        ({"stream:y": torch.zeros(20, dtype=torch.uint8)}, "is not a stream of this codec"),
        ({f"stream:{t}:y": torch.zeros(20, dtype=torch.uint8) for t in ("float32", "float64")}, "expected one stream"),
    ],
)
def test_invalid_streams_are_rejected(wire, message):
    with pytest.raises(StreamError, match=message):
        codec_of(ADAM, HALF, ["expq"]).decode(wire, {"x": torch.zeros(4)})


# ---------------------------------------------------------------- forged input


def test_the_change_of_a_vector_that_was_not_sent_is_refused():
    codec = codec_of(ADAM, PUBLISHED, ["expq"])
    wire = encode(codec, {"y": torch.ones(4), "m": torch.ones(4)}, {"x": torch.zeros(4), "m": torch.zeros(4)})
    with pytest.raises(StreamError, match="the change of 'm', which was not sent"):
        codec.decode(wire, {"x": torch.zeros(4)})


def test_a_sum_beyond_the_largest_float_is_infinite():
    codec = codec_of(ADAM, HALF)
    wire = encode(codec, {"y": torch.full((4,), 3e38)}, {"x": torch.zeros(4)})
    with warnings.catch_warnings(action="error"):
        assert codec.decode(wire, {"x": torch.full((4,), 3e38)})["y"].tolist()[:2] == [float("inf")] * 2


CODEC = codec_of(ADAM, PUBLISHED, ["expq"], LAYOUT)
DOWN = {"x": torch.arange(8.0), "m": torch.ones(8), "stats": torch.zeros(0)}
NAMES = [f"stream:float32:{names}" for names in ("y,m", "y", "m", "y,m,v", "y,y", "", "t")]
NAMES += ["stream:float64:y,m", "stream:object:y", "stream::", "stream:", *ADAM]


def forge(rng):
    """Return a message whose entries have other names, dtypes, shapes or bytes than the codec writes."""
    upload = {"y": torch.arange(8.0).flip(0), "m": torch.ones(8), "stats": torch.zeros(0), "t": torch.ones(1)}
    wire = list(encode(CODEC, upload, DOWN).items())
    for _ in range(rng.randint(1, 2)):
        i = rng.randrange(len(wire))
        name, value = wire[i]
        which = rng.randrange(4)
        if which == 0:
            name = rng.choice(NAMES)
        elif which == 1:
            value = value.to(rng.choice([torch.float16, torch.int64, torch.float64]))
        elif which == 2:
            value = rng.choice([value[None], value[:0], value.reshape(-1).repeat(2)])
        else:
            data = value.contiguous().view(torch.uint8).numpy().tobytes()
            value = torch.from_numpy(np.frombuffer(sealed(mutate(data[:-4], rng)), np.uint8).copy())
        wire[i] = name, value
    return pack(NoMeta(), dict(wire))


def sealed(body):
    return body + zlib.crc32(body).to_bytes(4, "little")


@pytest.mark.parametrize("num_cases", [2_000, pytest.param(20_000, marks=pytest.mark.full)])
def test_mutations_decode_or_are_refused(num_cases):
    def decode(case):
        CODEC.decode(unpack(case, NoMeta)[1], DOWN)

    found = fuzz(forge, decode, StreamError, num_cases, lambda case: 40 * len(case))
    assert found[""] > num_cases / 10
    for complaint in ("in a stream", "stream of bytes", "is not a stream", "not sent", "one stream, got", "w: "):
        assert any(complaint in text for text in found)
