from pathlib import Path

import pytest
import torch
from torch import nn

from fedge.core.errors import ConfigError, ModelError
from fedge.core.schema import choose, tag
from fedge.models import MODELS
from fedge.models.usermodel import UserModel

MNIST, CIFAR = (1, 28, 28), (3, 32, 32)
NAMES = [name for name in map(tag, MODELS) if name is not None]


def build(name: str, shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    module = choose(name, MODELS, "model.name")().build(shape, num_outputs)  # type: ignore[attr-defined]
    assert isinstance(module, nn.Sequential)
    return module


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("name", "shape", "num_outputs", "expected"),
    [
        ("logistic", MNIST, 10, 7_850),  # 785 * 10
        ("nn", MNIST, 10, 101_770),  # 785 * 128 + 129 * 10
        ("mnist_2nn", MNIST, 10, 199_210),  # 785 * 200 + 201 * 200 + 201 * 10
        ("mtfl_2nn", MNIST, 10, 199_610),  # and 2 * 200
        # 28 * 32 + 64, 289 * 64 + 128, 64 channels of 6x6: 2305 * 512, 513 * 10
        ("mtfl_cnn", CIFAR, 10, 1_204_874),
        # 10 * 32 + 64, 289 * 64 + 128, 64 channels of 5x5: 1601 * 512, 513 * 10
        ("mtfl_cnn", MNIST, 10, 843_850),
        ("linear", (5000,), 2, 10_000),
    ],
)
def test_parameters_are_counted(name: str, shape: tuple[int, ...], num_outputs: int, expected: int) -> None:
    assert count(build(name, shape, num_outputs)) == expected


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [MNIST, CIFAR, (2, 10, 13)])
def test_every_model_trains_on_images(name: str, shape: tuple[int, ...]) -> None:
    module = build(name, shape, 7)
    output = module(torch.rand(4, *shape))
    assert output.shape == (4, 7)
    output.sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_the_caller_alone_decides_the_initial_weights(name: str) -> None:
    states = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        states.append(torch.cat([p.flatten() for p in build(name, MNIST, 10).parameters()]))
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])


def test_mtfl_normalises_before_the_first_activation() -> None:
    kinds = [type(layer).__name__ for layer in build("mtfl_2nn", MNIST, 10).children()]
    assert kinds == ["Flatten", "Linear", "BatchNorm1d", "ReLU", "Linear", "ReLU", "Linear"]


@pytest.mark.parametrize("shape", [(784,), (28, 28), (1, 9, 28), (0, 28, 28)])
def test_a_cnn_wants_images(shape: tuple[int, ...]) -> None:
    with pytest.raises(
        ModelError, match=r"model\.name: mtfl_cnn takes images .* at least 10x10 .* got inputs of shape"
    ):
        build("mtfl_cnn", shape, 10)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0)])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "mtfl_cnn"])
def test_an_input_without_numbers_fits_nothing(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="expected inputs of at least one number"):
        build(name, shape, 10)


def write(folder: Path, body: str) -> str:
    path = folder / "mine.py"
    path.write_text(f"from torch import nn\n\ndef build(shape, num_outputs, width=3):\n    {body}\n")
    return f"{path}:build"


def test_a_users_model_is_built_with_its_options(tmp_path: Path) -> None:
    name = write(tmp_path, "return nn.Sequential(nn.Linear(*shape, width), nn.Linear(width, num_outputs))")
    assert choose(name, MODELS, "model.name") is UserModel
    assert count(UserModel(name=name).build((4,), 2)) == 15 + 8
    module = UserModel(name=name, options={"width": 5}).build((4,), 2)
    assert count(module) == 25 + 12
    assert module.training


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 3", r"must return an nn\.Module, got int"),
        ("raise ValueError('no')", r"failed: ValueError: no \(line 4 of"),
        ("return nn.Linear(5, num_outputs)", r"does not take inputs of shape \(4,\): RuntimeError"),
        ("return nn.Linear(*shape, 3)", r"shape \(4,\) the model must give a tensor \[2, 2\], got \[2, 3\]"),
        ("return nn.LSTM(*shape, 2)", r"must give a tensor \[2, 2\], got tuple"),
    ],
)
def test_what_is_no_model_for_the_data_is_refused(tmp_path: Path, body: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        UserModel(name=write(tmp_path, body)).build((4,), 2)


def test_an_absent_file_is_a_matter_of_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.name: there is no file"):
        UserModel(name=f"{tmp_path}/none.py:build").build((4,), 2)
