"""The codec itself is tested in core; these tests check that the server averages only decoded uploads."""

import pytest
import torch

from federation import Federation, crossed, mixed, pair, points, slope
from fedge.algorithms.ce_fedavg import CeFedAvg
from fedge.algorithms.mfl import FedAvgAdam
from fedge.core.codecs.codec import ChainCodec
from fedge.core.layout import Tree

FAIR = {"rtol": 0, "atol": 1e-7}  # changes travel as float32


def test_the_server_averages_decoded_uploads() -> None:
    federation = Federation(CeFedAvg(sparsity=0.5, epsilon=1.0).build, crossed(), make=pair, rate=0.3, steps=1)
    federation.round()
    # gradients (2, 1) and (1, 2); first corrected step 0.3*g/(|g| + 1): 0.2 for g = 2, 0.15 for g = 1.
    # Half of the changes travel: each client's larger one. The other decodes to the value sent down.
    expected = {"x": (1 - 0.2 / 2,) * 2, "m": (0.1 * 2 / 2,) * 2, "v": (0.001 * 4 / 2,) * 2, "t": (1,)}
    for name, values in expected.items():
        torch.testing.assert_close(federation.state[name], torch.tensor(values, dtype=torch.float64), **FAIR)
    federation.round()
    # error 0.9*3 - 2 = 0.7; client 0: g = (1.4, 0.7), m = 0.09 + 0.1*1.4 = 0.23, v = 0.001998 + 0.001*1.96 = 0.003958
    # corrected by 1 - 0.81 and 1 - 0.998001: step 0.3*1.210526316/(sqrt(1.979989995) + 1) = 0.150868140
    # its other change, 0.3*(0.16/0.19)/(sqrt(0.002488/0.001999) + 1) = 0.119412188, is smaller and is not sent
    expected = {
        "x": (0.9 - 0.150868140 / 2,) * 2,
        "m": ((0.1 + 0.23) / 2,) * 2,
        "v": ((0.002 + 0.003958) / 2,) * 2,
        "t": (2,),
    }
    for name, values in expected.items():
        torch.testing.assert_close(federation.state[name], torch.tensor(values, dtype=torch.float64), **FAIR)


def test_a_single_weight_is_always_sent() -> None:
    compressed, plain = (
        Federation(kind().build, points(0, 4), make=slope, steps=2).rounds(2).state for kind in (CeFedAvg, FedAvgAdam)
    )
    for name in ("x", "m", "v"):
        torch.testing.assert_close(compressed[name], plain[name], **FAIR)


def test_the_step_count_passes_unchanged() -> None:
    federation = Federation(CeFedAvg(sparsity=0.9).build, mixed(), steps=3)
    for number in (1, 2, 3):
        federation.round()
        assert federation.state["t"].item() == 3 * number


def test_the_second_moment_is_never_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    """With beta2 = 0 it is the last squared gradient: where that is zero, the rounded change overshoots."""
    decoded = []

    def decode(codec: ChainCodec, wire: Tree, down: Tree) -> Tree:
        decoded.append(original(codec, wire, down))
        return decoded[-1]

    original = ChainCodec.decode
    monkeypatch.setattr(ChainCodec, "decode", decode)
    federation = Federation(CeFedAvg(sparsity=0.0, beta2=0.0).build, mixed((9,)), rate=0.01).rounds(3)
    assert min(upload["v"].min() for upload in decoded[2:]) < 0
    assert (federation.state["v"] >= 0).all()
