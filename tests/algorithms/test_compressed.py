"""Compression around algorithms: by hand, in every engine, inside and outside MTFL."""

import numpy as np
import pytest
import torch
from torch import nn

from federation import ENGINES, Federation, crossed, mixed, normed, pair
from fedge.algorithms.ce_fedavg import CeFedAvg
from fedge.algorithms.compressed import compressed
from fedge.algorithms.dynavg import DynAvg
from fedge.algorithms.fedavg import FedAvg
from fedge.algorithms.mfl import FedAvgAdam
from fedge.algorithms.mimelite import Mimelite
from fedge.algorithms.mtfl import mtfl
from fedge.algorithms.scaffold import Scaffold
from fedge.core.algorithm import Algorithm, Build
from fedge.core.codecs.chain import CodecOptions, expected_bits, parse_chain
from fedge.core.codecs.codec import ChainCodec
from fedge.core.errors import ConfigError
from fedge.core.layout import Layout, Tree, pick

FAIR = {"rtol": 0, "atol": 1e-7}  # changes travel as float32
INNER = {kind.__name__: kind().build for kind in (FedAvg, Scaffold, FedAvgAdam, Mimelite)}
CODECS = {
    "published": CodecOptions(up=["sparsify(0.5)", "uniq", "golomb"], moments=["expq"]),
    "sparse": CodecOptions(up=["sparsify(0.7)"]),
    "random": CodecOptions(up=["sparsify(0.2)", "qsgd(4)"], moments=["qsgd(8)"], down=["qsgd(8)"]),
    "full": CodecOptions(up=["fp16"], moments=["uniq"], down=["fp16"]),
    "moments": CodecOptions(moments=["expq"]),
    "down": CodecOptions(down=["expq"]),
    "feedback": CodecOptions(up=["error_feedback", "sparsify(0.8)", "uniq", "golomb"], moments=["expq"]),
    "feedback, full": CodecOptions(up=["error_feedback", "uniq"], down=["uniq"]),
}


def coded(build: Build, codec: str) -> Build:
    return compressed(build, *CODECS[codec].chains)


def chain(build: Build, *stages: str) -> Build:
    return compressed(build, parse_chain(stages), None, None)


def assert_weights(federation: Federation, *expected: float) -> None:
    torch.testing.assert_close(federation.state["x"], torch.tensor(expected, dtype=torch.float64), **FAIR)


# ---------------------------------------------------------------- by hand


def test_values_that_are_not_sent_are_unchanged() -> None:
    federation = Federation(chain(FedAvg().build, "sparsify(0.5)"), crossed(), make=pair, rate=0.1, steps=1)
    federation.round()  # gradients (2, 1) and (1, 2): each client's larger change, -0.2, is sent
    assert_weights(federation, 0.9, 0.9)
    federation.round()  # error 0.7: -0.14
    assert_weights(federation, 0.83, 0.83)


@pytest.mark.parametrize("engine", ENGINES)
def test_error_feedback_by_hand(engine: str) -> None:
    build = chain(FedAvg().build, "error_feedback", "sparsify(0.5)")
    federation = Federation(build, crossed(), engine, make=pair, rate=0.1, steps=1)
    federation.round()
    assert_weights(federation, 0.9, 0.9)
    residuals = [federation.clients.kept.read(client)["residual.y"].tolist() for client in (0, 1)]
    np.testing.assert_allclose(residuals, [(0, -0.1), (-0.1, 0)], **FAIR)
    federation.round()
    # changes (-0.14, -0.07) and (-0.07, -0.14); with residuals (-0.14, -0.17) and (-0.17, -0.14): -0.17 is sent
    assert_weights(federation, 0.9 - 0.17 / 2, 0.9 - 0.17 / 2)
    residuals = [federation.clients.kept.read(client)["residual.y"].tolist() for client in (0, 1)]
    np.testing.assert_allclose(residuals, [(-0.14, 0), (0, -0.14)], **FAIR)


@pytest.mark.parametrize("engine", ENGINES)
def test_clients_start_from_the_decoded_download(engine: str) -> None:
    build = compressed(FedAvg().build, None, None, parse_chain(["fp16"]))
    federation = Federation(build, crossed(), engine, make=pair, rate=0.1, steps=1)
    federation.state["x"] = torch.tensor([1, 1 / 3], dtype=torch.float64)
    federation.round()
    # 1 is 2^14 units of 2^-14, and 1/3 is 5461.3, where halves are 4 units apart: 5460. The errors are
    # 2 + third - 2 and 1 + 2*third - 2, the gradients (2, 1)*third and (1, 2)*(2*third - 1)
    third = 5460 / 2**14
    gradients = np.array([(2 * third, third), (2 * third - 1, 4 * third - 2)])
    assert_weights(federation, *(np.array([1, third]) - 0.1 * gradients.mean(0)))


def test_scaffold_has_two_changes_and_two_residuals() -> None:
    federation = Federation(chain(Scaffold().build, "error_feedback", "sparsify(0.5)"), mixed()).rounds(1)
    kept = federation.clients.kept.read(0)
    assert set(kept) == {"c_i", "residual.dy", "residual.dc"}
    assert all(kept[name].count_nonzero() > 0 for name in kept)


def test_only_models_are_encoded_as_streams() -> None:
    """Dynamic averaging: only `pull` uploads parameters."""
    build = chain(DynAvg(delta=0).build, "fp16")
    plain, halves = (Federation(b, mixed(), rate=0.1) for b in (DynAvg(delta=0).build, build))
    replies, coded_replies = plain.round().replies, halves.round().replies
    assert replies[0].costs.bytes_up.tolist() == coded_replies[0].costs.bytes_up.tolist()
    assert (coded_replies[1].costs.bytes_up < 0.7 * replies[1].costs.bytes_up).all()
    torch.testing.assert_close(halves.state["x"], plain.state["x"], rtol=2e-3, atol=2e-3)


def test_an_algorithm_with_its_own_codec_is_rejected() -> None:
    layout = Layout.of(normed())
    with pytest.raises(ConfigError, match="compresses its uploads itself"):
        coded(CeFedAvg().build, "sparse")(layout)
    (work,) = coded(CeFedAvg().build, "down")(layout).works.values()
    assert isinstance(work.codec, ChainCodec)
    assert isinstance(work.down_codec, ChainCodec)


def test_sparse_moments_and_downloads_are_refused() -> None:
    sparse = parse_chain(["sparsify(0.5)"])
    for chains in ((None, sparse, None), (None, None, sparse)):
        with pytest.raises(ConfigError, match="moments and down accept only a quantiser"):
            compressed(FedAvg().build, *chains)


def test_bytes_equal_the_expected_bits() -> None:
    up = parse_chain(["sparsify(0.9)", "uniq", "golomb"])
    make = lambda: nn.Linear(8 * 50, 30)  # noqa: E731
    federation = Federation(compressed(FedAvg().build, up, None, None), mixed(features=400, classes=30), make=make)
    bytes_up = federation.round().replies[0].costs.bytes_up
    assert up is not None
    # in addition to the stream, a message has a head of 192 bytes, padding below 64 and a checksum of 4
    stream = expected_bits(up, federation.clients.network.layout) / 8
    assert ((bytes_up > 0.95 * stream) & (bytes_up < 1.02 * stream + 260)).all()


# ---------------------------------------------------------------- engines and wrappers


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("inner", ["Scaffold", "FedAvgAdam"])
def test_wire_equals_loop_bit_for_bit(inner: str, codec: str) -> None:
    loop, wire = (Federation(coded(INNER[inner], codec), mixed(), engine).rounds(2) for engine in ("loop", "wire"))
    assert_same(loop.everything(), wire.everything())


@pytest.mark.parametrize("codec", ["sparse", "full", "down", "feedback, full"])
@pytest.mark.parametrize("inner", ["FedAvg", "Scaffold"])
def test_block_equals_loop_up_to_a_quantisation_step(inner: str, codec: str) -> None:
    loop, block = (Federation(coded(INNER[inner], codec), mixed(), engine).rounds(2) for engine in ("loop", "block"))
    everything = block.everything()
    for name, value in loop.everything().items():
        torch.testing.assert_close(everything[name], value, rtol=1e-2, atol=1e-2, msg=name)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("inner", "engine"), [("Scaffold", "loop"), ("FedAvgAdam", "wire"), ("Mimelite", "block")])
def test_compression_inside_mtfl_equals_compression_outside(inner: str, engine: str, codec: str) -> None:
    private = ["1.*", "4.bias"]
    inside = Federation(mtfl(coded(INNER[inner], codec), private), mixed(), engine)
    outside = Federation(coded(mtfl(INNER[inner], private), codec), mixed(), engine)
    for cohort in ((0, 1, 2, 3), (1, 3), (0, 1)):
        one, other = inside.round(cohort).replies[0], outside.round(cohort).replies[0]
        assert one.costs.bytes_up.tolist() == other.costs.bytes_up.tolist()
        assert one.costs.bytes_down.tolist() == other.costs.bytes_down.tolist()
        assert_same(inside.state, outside.state)
        for client in range(4):
            kept = (pick("own", federation.clients.kept.read(client)) for federation in (inside, outside))
            assert_same(*kept)


# ---------------------------------------------------------------- accounting of error feedback


class Spy:
    """A codec that sums the changes before encoding and after decoding."""

    def __init__(self, codec: ChainCodec) -> None:
        self.codec = codec
        self.given: dict[str, torch.Tensor] = {}
        self.decoded: dict[str, torch.Tensor] = {}

    def encode(self, upload: Tree, down: Tree, rng: np.random.Generator) -> Tree:
        self._add(self.given, upload, down)
        return self.codec.encode(upload, down, rng)

    def decode(self, wire: Tree, down: Tree) -> Tree:
        upload = self.codec.decode(wire, down)
        self._add(self.decoded, upload, down)
        return upload

    def _add(self, total: dict[str, torch.Tensor], upload: Tree, down: Tree) -> None:
        for name in self.codec.leads(upload):
            anchor = self.codec.slots[name].anchor
            total[name] = total.get(name, 0) + (upload[name] if anchor is None else upload[name] - down[anchor])


@pytest.mark.parametrize("engine", ["loop", "block"])
@pytest.mark.parametrize("stages", [("sparsify(0.8)", "uniq", "golomb"), ("expq",), ("sparsify(0.9)",)], ids=" ".join)
@pytest.mark.parametrize("inner", ["FedAvg", "Scaffold"])
@pytest.mark.parametrize("order", ["alone", "mtfl inside", "mtfl outside"])
def test_decoded_and_residual_add_up_to_the_changes(
    order: str, inner: str, stages: tuple[str, ...], engine: str
) -> None:
    spies: list[Spy] = []

    def spied(layout: Layout) -> Algorithm:
        algorithm = build(layout)
        (name, work), *_ = algorithm.works.items()
        spies.append(Spy(work.codec))
        return algorithm._replace(works={name: work._replace(codec=spies[-1])})

    build = INNER[inner]
    if order == "mtfl inside":
        build = mtfl(build, "bn")
    build = chain(build, "error_feedback", *stages)
    if order == "mtfl outside":
        build = mtfl(build, "bn")
    federation = Federation(spied, mixed(), engine)
    for cohort in ((0, 1, 2, 3), (1, 3), (0, 1, 2)):
        federation.round(cohort)
    full, travels = federation.clients.network.layout, spies[0].codec.layout
    assert set(spies[0].given) == ({"y"} if inner == "FedAvg" else {"dy", "dc"})
    for name, given in spies[0].given.items():
        key = f"kept.residual.{name}" if order == "mtfl outside" else f"residual.{name}"
        residual = sum(federation.clients.kept.read(client)[key] for client in range(4))
        if order == "mtfl outside":
            residual = full.take(residual, travels, "params")
        assert residual.count_nonzero() > 0
        torch.testing.assert_close(spies[0].decoded[name] + residual, given, rtol=1e-5, atol=1e-6)


def assert_same(one: Tree, other: Tree) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name
