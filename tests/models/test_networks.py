from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedge.core.errors import ConfigError, ModelError
from fedge.core.layout import Layout
from fedge.core.schema import choose, tag
from fedge.models import MODELS
from fedge.models.mobilenet import InvertedResidual
from fedge.models.usermodel import UserModel

MNIST, CIFAR = (1, 28, 28), (3, 32, 32)
TEXT = "shakespeare_gru"
NAMES = [name for name in map(tag, MODELS) if name is not None and name != TEXT]


def build(name: str, shape: tuple[int, ...], num_outputs: int, **options: Any) -> nn.Module:
    return choose(name, MODELS, "model.name")(**options).build(shape, num_outputs)  # type: ignore[attr-defined]


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
        # 26 * 32, 801 * 64, 64 channels of 7x7: 3137 * 512, 513 * 10
        ("mnist_cnn", MNIST, 10, 1_663_370),
        # 28 * 32, 289 * 32, 289 * 64, 577 * 64, 577 * 128, 1153 * 128, 2 * 448 and 128 channels of 32x32: 131073 * 10
        ("cifar_cnn", CIFAR, 10, 1_598_634),
        ("femnist_dnn", MNIST, 62, 209_662),  # 785 * 200 + 201 * 200 + 201 * 62
        ("femnist_cnn", MNIST, 62, 870_334),  # 10 * 32, 289 * 64, 64 channels of 5x5: 1601 * 512, 513 * 62
        ("cifar100_cnn", CIFAR, 100, 1_250_852),  # 28 * 32, 289 * 64, 64 channels of 6x6: 2305 * 512, 513 * 100
        ("hfl_cnn", MNIST, 10, 56_900),  # 26 * 10, 251 * 30, 30 channels of 4x4: 481 * 100, 101 * 10
        ("dynavg_cnn", MNIST, 10, 693_962),  # 10 * 32, 32 channels of 13x13: 5409 * 128, 129 * 10
        # Embedding 79 * 8; layers 3 * 128 * (8 + 128) and 3 * 128 * 256, each with six biases per unit; 129 * 79
        (TEXT, (80,), 79, 162_887),
        ("bag_of_words", (5000,), 2, 10_002),
        ("bag_of_words", (10_000,), 500, 5_000_500),
        ("mobilenet_v2", CIFAR, 10, 3_504_872 + 1001 * 10),  # the published network and one more layer
        ("linear", (5000,), 2, 10_000),
    ],
)
def test_parameters_are_counted(name: str, shape: tuple[int, ...], num_outputs: int, expected: int) -> None:
    assert count(build(name, shape, num_outputs)) == expected


def test_variants_are_counted() -> None:
    assert count(build("mtfl_cnn", CIFAR, 10, dense_norm=True)) == 1_204_874 + 2 * 512
    # Embedding 77 * 8; layers 3 * 256 * (8 + 256) and 3 * 256 * 512, each with six biases per unit; 257 * 77
    assert count(build(TEXT, (80,), 77, units=256)) == 619_445


def kinds(module: nn.Module) -> list[str]:
    return [type(layer).__name__ for layer in module.children()]


@pytest.mark.parametrize("norm", ["before", "after"])
def test_positions_of_batch_normalisation_in_mtfl_models(norm: str) -> None:
    """Before the nonlinearity as in Mills, Hu & Min (2020), or after it and its pooling as in their code."""
    dense = ["BatchNorm1d", "ReLU"] if norm == "before" else ["ReLU", "BatchNorm1d"]
    module = build("mtfl_2nn", MNIST, 10, norm=norm)
    assert kinds(module) == ["Flatten", "Linear", *dense, "Linear", "ReLU", "Linear"]
    block = ["BatchNorm2d", "ReLU", "MaxPool2d"] if norm == "before" else ["ReLU", "MaxPool2d", "BatchNorm2d"]
    module = build("mtfl_cnn", CIFAR, 10, norm=norm, dense_norm=True)
    assert kinds(module) == ["Conv2d", *block, "Conv2d", *block, "Flatten", "Linear", *dense, "Linear"]
    assert count(module) == 1_205_898


def test_mtfl_normalises_before_the_nonlinearity_by_default() -> None:
    for name in ("mtfl_2nn", "mtfl_cnn"):
        assert kinds(build(name, CIFAR, 10)) == kinds(build(name, CIFAR, 10, norm="before"))


def test_activation_of_the_hidden_layer() -> None:
    module = build("nn", (1,), 1, activation="sigmoid")
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(0.0)
        module[3].weight.fill_(1.0)  # type: ignore[index, union-attr, operator]
    assert module(torch.ones(1, 1)).item() == 64  # 128 units of sigmoid(0) = 1/2
    assert kinds(build("nn", (1,), 1)) == ["Flatten", "Linear", "ReLU", "Linear"]


def test_statistics_are_counted() -> None:
    assert Layout.of(build("cifar_cnn", CIFAR, 10)).num_stats == 896  # a mean and a variance of 448 channels


def test_mobilenet_ends_with_4x4_features() -> None:
    module = build("mobilenet_v2", CIFAR, 10)
    assert module.features(torch.rand(2, *CIFAR)).shape == (2, 1280, 4, 4)  # type: ignore[operator]
    names = set(module.state_dict())
    assert {"features.0.0.weight", "features.1.conv.0.0.weight", "features.2.conv.3.weight"} <= names
    assert {"features.18.1.running_var", "classifier.1.bias", "output.weight"} <= names


def test_a_residual_block_adds_its_input() -> None:
    block = InvertedResidual(4, 4, expansion=6, stride=1).eval()
    x = torch.rand(2, 4, 5, 5)
    assert torch.allclose(block(x), x + block.conv(x))
    assert InvertedResidual(4, 4, expansion=6, stride=2)(x).shape == (2, 4, 3, 3)


def test_dropout_is_for_training_alone() -> None:
    module = build("dynavg_cnn", MNIST, 10).eval()
    x = torch.rand(3, *MNIST)
    assert torch.equal(module(x), module(x))
    rates = [part.p for part in build("cifar_cnn", CIFAR, 10).modules() if isinstance(part, nn.Dropout)]
    assert rates == [0.2, 0.3, 0.4]


def test_the_gru_predicts_after_the_last_character() -> None:
    module = build(TEXT, (6,), 11, units=5)
    x = torch.randint(11, (4, 6))
    logits = module(x)
    assert logits.shape == (4, 11)
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())
    changed = x.clone()
    changed[:, 0] = (x[:, 0] + 1) % 11
    assert not torch.equal(module(changed), logits)  # the first still counts
    with pytest.raises(ModelError, match=r"shakespeare_gru expects sequences of characters .* shape \(1, 28"):
        build(TEXT, MNIST, 10)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [MNIST, CIFAR, (2, 16, 19)])
def test_every_model_trains_on_images(name: str, shape: tuple[int, ...]) -> None:
    module = build(name, shape, 7)
    output = module(torch.rand(4, *shape))
    assert output.shape == (4, 7)
    output.sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_initial_weights_depend_only_on_the_global_seed(name: str) -> None:
    states = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        states.append(torch.cat([p.flatten() for p in build(name, MNIST, 10).parameters()]))
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])


def test_mtfl_normalises_before_the_first_activation() -> None:
    kinds = [type(layer).__name__ for layer in build("mtfl_2nn", MNIST, 10).children()]
    assert kinds == ["Flatten", "Linear", "BatchNorm1d", "ReLU", "Linear", "ReLU", "Linear"]


SMALLEST = {
    "mnist_cnn": 4,
    "cifar_cnn": 1,
    "mtfl_cnn": 10,
    "femnist_cnn": 10,
    "cifar100_cnn": 10,
    "hfl_cnn": 16,
    "dynavg_cnn": 4,
    "mobilenet_v2": 8,
}


@pytest.mark.parametrize(("name", "side"), SMALLEST.items())
def test_a_cnn_rejects_images_that_are_too_small(name: str, side: int) -> None:
    module = build(name, (1, side, side), 3).eval()
    assert module(torch.rand(2, 1, side, side)).shape == (2, 3)
    for shape in ((784,), (28, 28), (1, side - 1, 28), (0, 28, 28)):
        said = rf"model\.name: {name} takes images .* at least {side}x{side} pixels, got inputs of shape"
        with pytest.raises(ModelError, match=said):
            build(name, shape, 10)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0)])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in SMALLEST])
def test_empty_inputs_are_rejected(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="expected inputs of at least one number"):
        build(name, shape, 10)


def write(folder: Path, body: str) -> str:
    path = folder / "mine.py"
    path.write_text(f"from torch import nn\n\ndef build(shape, num_outputs, width=3):\n    {body}\n")
    return f"{path}:build"


def test_a_users_model_is_built_with_its_options(tmp_path: Path) -> None:
    name = write(tmp_path, "return nn.Sequential(nn.Linear(*shape, width), nn.Linear(width, num_outputs))")
    kind = choose(name, MODELS, "model.name")
    assert issubclass(kind, UserModel)
    assert count(kind().build((4,), 2)) == 15 + 8
    module = kind(options={"width": 5}).build((4,), 2)
    assert count(module) == 25 + 12
    assert module.training


@pytest.mark.parametrize("arguments", ["", ", width=4", ", shape, num_outputs, width=4"])
def test_a_class_of_modules_is_a_model(tmp_path: Path, arguments: str) -> None:
    """As PyTorch users write it: constructed without arguments, or with the shape and the number of outputs."""
    body = f"def __init__(self{arguments}):\n        super().__init__(4, 2)"
    (tmp_path / "mine.py").write_text(f"from torch import nn\n\nclass Net(nn.Linear):\n    {body}\n")
    kind = choose(f"{tmp_path}/mine.py:Net", MODELS, "model.name")
    assert count(kind().build((4,), 2)) == 10
    if "width" in arguments:
        assert count(kind(options={"width": 5}).build((4,), 2)) == 10


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 3", r"must return an nn\.Module, got int"),
        ("raise ValueError('no')", r"failed: ValueError: no \(line 4 of"),
        (
            "return nn.Linear(5, num_outputs)",
            r"inputs of shape \(4,\), .*: RuntimeError.*; change its first layer",
        ),
        ("return nn.Linear(*shape, 3)", r"shape \(4,\) the model must return a tensor \[2, 2\], got \[2, 3\]"),
        ("return nn.LSTM(*shape, 2)", r"must return a tensor \[2, 2\], got tuple"),
    ],
)
def test_models_that_do_not_fit_the_data_are_rejected(tmp_path: Path, body: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        build(write(tmp_path, body), (4,), 2)


def test_a_missing_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.name: there is no file"):
        build(f"{tmp_path}/none.py:build", (4,), 2)
