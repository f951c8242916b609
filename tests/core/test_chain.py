"""Parsing of chains, error messages for invalid ones, and the expected length of their streams."""

import pytest

from fedge.core.codecs.chain import (
    CODECS,
    Chain,
    CodecOptions,
    expected_bits,
    parse_chain,
)
from fedge.core.codecs.quantise import FLOAT32, ExpQ, Fp16, Qsgd, UniQ
from fedge.core.errors import ConfigError
from fedge.core.layout import Entry, Layout
from fedge.core.schema import read
from published_sizes import bits_per_value, formula_bits

MNIST_2NN = {"w1": (200, 784), "b1": (200,), "w2": (200, 200), "b2": (200,), "w3": (10, 200), "b3": (10,)}
MATRIX = Layout((Entry("w", 0, 1000, (10, 100), False),))
BOTH = Layout((Entry("w", 0, 1000, (10, 100), False), Entry("b", 1000, 1010, (10,), False)))
EMPTY = Layout((Entry("w", 0, 0, (0, 3), False),))

# ---------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("stages", "chain"),
    [
        (["sparsify(0.9)", "uniq", "golomb"], Chain(0.9, UniQ(), golomb=True)),
        (["sparsify(0)"], Chain(0.0, FLOAT32)),
        ([" sparsify( 5e-1 ) ", "expq"], Chain(0.5, ExpQ())),
        (["error_feedback", "sparsify(0.99)", "golomb"], Chain(0.99, golomb=True, error_feedback=True)),
        (["error_feedback", "fp16"], Chain(quantiser=Fp16(), error_feedback=True)),
        (["qsgd(4)"], Chain(quantiser=Qsgd(4))),
        ([], None),
    ],
)
def test_stages_make_a_chain(stages, chain):
    assert parse_chain(stages) == chain


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (["sparsfy(0.9)"], r"unknown stage 'sparsfy\(0.9\)', did you mean 'sparsify'\?; possible: error_feedback, spa"),
        (["zip"], "unknown stage 'zip'; possible: .*golomb"),
        (["uniq golomb"], "unknown stage 'uniq golomb'"),
        ([""], "unknown stage ''"),
        (["sparsify"], r"'sparsify': expected sparsify\(s\)"),
        (["sparsify()"], r"unknown stage 'sparsify\(\)', did you mean 'sparsify'"),
        (["uniq(8)"], r"'uniq\(8\)': expected uniq"),
        (["sparsify(lots)"], r"'sparsify\(lots\)': expected a number for s, got 'lots'"),
        (["qsgd(4.5)"], r"expected a number for bits, got '4.5'"),
        (["qsgd(3)"], "2, 4 or 8 bits per value, got 3"),
        (["sparsify(1)"], "at least 0 and below 1, got 1.0"),
        (["sparsify(-0.1)"], "got -0.1"),
        (["sparsify(nan)"], "got nan"),
        (["uniq", "sparsify(0.5)"], r"'sparsify\(0.5\)' is out of order: the order is error_feedback, sparsify"),
        (["uniq", "fp16"], "'fp16' is out of order"),
        (["sparsify(0.5)", "sparsify(0.5)"], "each at most once"),
        (["uniq", "golomb"], r"put sparsify\(s\) before it"),
        (["uniq", "error_feedback"], "'error_feedback' is out of order"),
        (["error_feedback"], "needs a lossy stage"),
        (["error_feedback", "qsgd(8)"], "error_feedback cannot be combined with qsgd"),
    ],
)
def test_messages_about_invalid_chains(stages, message):
    with pytest.raises(ConfigError, match=message):
        parse_chain(stages)


def test_every_stage_is_listed_once():
    assert list(CODECS) == ["error_feedback", "sparsify", "uniq", "expq", "qsgd", "fp16", "golomb"]
    assert CODECS["sparsify"].startswith("sparsify(s): ")
    assert all(text.count("\n") == 0 for text in CODECS.values())


# ---------------------------------------------------------------- in a configuration


def test_options_make_three_chains():
    options = read({"up": ["sparsify(0.9)", "uniq", "golomb"], "moments": ["expq"], "down": ["fp16"]}, CodecOptions)
    assert options.chains == (Chain(0.9, UniQ(), golomb=True), Chain(quantiser=ExpQ()), Chain(quantiser=Fp16()))
    assert CodecOptions().chains == (None, None, None)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"up": ["uniq", "golomb"]}, "codec: up: golomb encodes the indices"),
        (
            {"moments": ["sparsify(0.5)"]},
            r"codec: moments: 'sparsify\(0.5\)' is not allowed here: expected only a quantiser, uniq, ",
        ),
        ({"down": ["sparsify(0.5)", "uniq", "golomb"]}, "codec: down: .* only a quantiser"),
        ({"down": ["error_feedback", "uniq"]}, "codec: down: 'error_feedback' is not allowed here"),
        ({"down": ["uniq", "golomb"]}, "codec: down: 'golomb' is not allowed here: expected only a quantiser"),
        ({"down": ["uniq", "fp16"]}, "codec: down: 'fp16' is out of order: .* each at most once"),
        ({"down": ["half"]}, "codec: down: unknown stage 'half'"),
        ({"up": "uniq"}, "codec.up: expected array"),
        ({"upload": ["uniq"]}, "codec.upload: unknown key, did you mean 'up'"),
    ],
)
def test_messages_about_invalid_options(raw, message):
    with pytest.raises(ConfigError, match=message):
        read(raw, CodecOptions, "codec")


# ---------------------------------------------------------------- length


def test_published_size_of_mnist_2nn():
    tensors = [(size(shape), 0.6) for shape in MNIST_2NN.values()]
    assert formula_bits(tensors, moments=False) == pytest.approx(837_642)  # 6*160 + 0.4*(8 + 2.5)*199,210
    assert formula_bits(tensors, moments=True) == pytest.approx(2_112_970)  # 6*224 + 0.4*(24 + 2.5)*199,210


def size(shape):
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


@pytest.mark.parametrize(
    ("sparsity", "plain", "with_moments"),
    [(0.6, 7.619, 9.057), (0.9, 25.087, 33.385), (0.95, 46.424, 64.460)],
)
def test_compression_without_headers(sparsity, plain, with_moments):
    assert 32 / bits_per_value(sparsity, moments=False) == pytest.approx(plain, abs=5e-4)
    assert 96 / bits_per_value(sparsity, moments=True) == pytest.approx(with_moments, abs=5e-4)


@pytest.mark.parametrize(
    ("stages", "layout", "bits"),
    [
        (["uniq"], MATRIX, 96 + 4 * 32 + 1000 * 8),
        (["uniq"], BOTH, 96 + 2 * 4 * 32 + 1010 * 8),
        (["fp16"], MATRIX, 96 + 32 + 1000 * 16),
        (["qsgd(2)"], MATRIX, 96 + 32 + 1000 * 2),
        (["sparsify(0.9)"], MATRIX, 96 + 32 + 100 * (32 + 32)),
        (["sparsify(0.9)", "uniq"], BOTH, 96 + 160 + 100 * (8 + 32) + 160 + 10 * (8 + 32)),
        (["sparsify(0.6)", "uniq", "golomb"], BOTH, 96 + 160 + 400 * (8 + 2.5) + 160 + 10 * (8 + 1)),
        (["sparsify(0.6)", "uniq", "golomb"], EMPTY, 96 + 160),
        (["error_feedback", "sparsify(0.6)", "uniq", "golomb"], MATRIX, 96 + 160 + 400 * (8 + 2.5)),
    ],
)
def test_expected_bits_by_hand(stages, layout, bits):
    assert expected_bits(parse_chain(stages), layout) == pytest.approx(bits)


def test_expected_bits_with_moments():
    up, moments = parse_chain(["sparsify(0.6)", "uniq", "golomb"]), parse_chain(["expq"])
    assert expected_bits(up, MATRIX, moments, 2) == pytest.approx(96 + 160 + 2 * 64 + 400 * (24 + 2.5))
    assert expected_bits(up, MATRIX, None, 2) == expected_bits(up, MATRIX)
    down = parse_chain(["fp16"])
    assert expected_bits(down, MATRIX, down, 2) == 96 + 3 * (32 + 1000 * 16)
