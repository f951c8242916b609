from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fedge.core.errors import ModelError
from fedge.core.schema import choose, read
from fedge.models import MODELS
from fedge.models.dense import Logistic, Mtfl2nn
from fedge.models.model import Model


def test_a_model_must_define_its_network() -> None:
    class Vague(Model, tag="vague"):
        """Only a name."""

    with pytest.raises(TypeError, match="Vague must define network"):
        Vague().build((1,), 1)


def test_every_model_accepts_weights() -> None:
    assert all("weights" in kind.__struct_fields__ for kind in MODELS)


def test_weights_are_those_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    save_file({"1.weight": torch.tensor([[1.0, 2.0]]), "1.bias": torch.tensor([3.0])}, file)
    module = read({"weights": str(file)}, Logistic, "model").build((2,), 1)
    assert module(torch.tensor([[10.0, 100.0]])).tolist() == [[213]]


def test_a_saved_model_is_restored_with_its_statistics(tmp_path: Path) -> None:
    before = Mtfl2nn().build((4,), 3)
    before(torch.rand(8, 4))  # moves the running statistics
    save_file(before.state_dict(), tmp_path / "w.safetensors")
    after = Mtfl2nn(weights=str(tmp_path / "w.safetensors")).build((4,), 3)
    assert all(torch.equal(value, after.state_dict()[name]) for name, value in before.state_dict().items())


def test_tensors_missing_in_the_file_stay_random(tmp_path: Path) -> None:
    save_file({"1.bias": torch.tensor([3.0])}, tmp_path / "w.safetensors")
    torch.manual_seed(1)
    plain = Logistic().build((2,), 1)
    torch.manual_seed(1)
    given = Logistic(weights=str(tmp_path / "w.safetensors")).build((2,), 1)
    assert torch.equal(plain[1].weight, given[1].weight)
    assert given[1].bias.tolist() == [3]


def test_a_users_model_accepts_weights_too(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from torch import nn\ndef build(s, n): return nn.Linear(*s, n)\n")
    save_file({"weight": torch.tensor([[5.0]]), "bias": torch.tensor([0.0])}, tmp_path / "w.safetensors")
    kind = choose(f"{tmp_path}/mine.py:build", MODELS, "model.name")
    model = kind(weights=str(tmp_path / "w.safetensors"))
    assert model.build((1,), 1)(torch.tensor([[2.0]])).tolist() == [[10]]


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"1.wieght": torch.zeros(1)}, r"the model has no tensor '1\.wieght', did you mean '1\.weight'\?"),
        ({"1.bias": torch.zeros(2)}, r"expected '1\.bias' in .* to have the shape \[1\], got \[2\]"),
        ({}, "has no tensors"),
    ],
)
def test_a_file_for_another_model_is_refused(tmp_path: Path, tensors: dict[str, torch.Tensor], message: str) -> None:
    save_file(tensors, tmp_path / "w.safetensors")
    with pytest.raises(ModelError, match=rf"model\.weights: .*{message}"):
        Logistic(weights=str(tmp_path / "w.safetensors")).build((2,), 1)


def test_invalid_weight_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"model\.weights: there is no file .*none"):
        Logistic(weights=str(tmp_path / "none")).build((2,), 1)
    (tmp_path / "w").write_bytes(b"no weights")
    with pytest.raises(ModelError, match=r"model\.weights: .*w cannot be read as a safetensors file"):
        Logistic(weights=str(tmp_path / "w")).build((2,), 1)
