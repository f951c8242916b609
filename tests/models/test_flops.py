import pytest
import torch
from torch import Tensor, nn

from fedge.core.errors import ModelError
from fedge.models.convolutional import FemnistCnn, MtflCnn
from fedge.models.dense import Logistic, Mnist2nn, Mtfl2nn
from fedge.models.flops import count_flops
from fedge.models.recurrent import ShakespeareGru


def test_logistic() -> None:
    assert count_flops(Logistic().build((5000,), 2), (5000,)) == 30_000


def test_normalisation_costs_nothing() -> None:
    expected = 3 * (784 * 200 + 200 * 200 + 200 * 10)
    assert count_flops(Mnist2nn().build((1, 28, 28), 10), (1, 28, 28)) == expected
    assert count_flops(Mtfl2nn().build((1, 28, 28), 10), (1, 28, 28)) == expected


def test_the_femnist_cnn_of_the_literature() -> None:
    # 26*26*32 * (9 + 1), 11*11*64 * (9*32 + 1), 1600*512 and 512*62 multiply-accumulates: 3,305,280.
    for model in (FemnistCnn(), MtflCnn()):
        assert count_flops(model.build((1, 28, 28), 62), (1, 28, 28)) == 9_915_840


def test_a_gru_counts_every_step_and_its_head_once() -> None:
    # A step is 3h(i+h) + 13h: 3*128*136 + 1664 = 53,888 and 3*128*256 + 1664 = 99,968 multiply-accumulates; 80 of
    # them, and 128*79 for the head.
    module = ShakespeareGru().build((80,), 79)
    assert count_flops(module, (80,)) == 3 * (80 * (53_888 + 99_968) + 128 * 79)


@pytest.mark.parametrize("batch_first", [True, False])
def test_a_gru_in_both_directions(batch_first: bool) -> None:
    # Two directions of 3*5*(4+5) + 65 and, on ten inputs, of 3*5*(10+5) + 65; seven steps.
    gru = nn.GRU(4, 5, num_layers=2, bidirectional=True, batch_first=batch_first)
    shape = (7, 4) if batch_first else (1, 4)

    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = gru

        def forward(self, x: Tensor) -> Tensor:
            return self.gru(x if batch_first else x.expand(7, 1, 4))[0]

    assert count_flops(Steps(), shape) == 3 * 7 * 2 * (200 + 290)


def test_a_convolution_by_hand() -> None:
    # 6 channels of 4x3 outputs, each of 3x3 pixels of 4/2 channels.
    def macs(bias: bool) -> int:
        layer = nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2, bias=bias)
        return count_flops(layer, (4, 7, 6)) // 3

    assert macs(bias=False) == 6 * 12 * 18
    assert macs(bias=True) == 6 * 12 * 19


def test_a_linear_layer_counts_at_every_position() -> None:
    assert count_flops(nn.Linear(4, 5), (7, 4)) == 3 * 7 * 20


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.layer(x)
        return x, self.layer(x)


def test_a_layer_used_twice_counts_twice() -> None:
    assert count_flops(Twice(), (4,)) == 3 * 32


def test_the_module_is_unchanged() -> None:
    module = Mtfl2nn().build((4,), 2)
    module[2].eval()
    modes = [part.training for part in module.modules()]
    state = {name: value.clone() for name, value in module.state_dict().items()}
    count_flops(module, (4,))
    assert [part.training for part in module.modules()] == modes
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())
    assert not any(part._forward_hooks for part in module.modules())


def test_double_precision_is_probed_as_such() -> None:
    assert count_flops(nn.Linear(4, 5).double(), (4,)) == 60


def test_inputs_of_the_wrong_shape_are_reported() -> None:
    module = nn.Linear(4, 5)
    with pytest.raises(ModelError, match=r"does not accept inputs of shape \(3,\)"):
        count_flops(module, (3,))
    assert not module._forward_hooks
    assert module.training
