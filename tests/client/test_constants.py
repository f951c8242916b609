"""Frozen weights and buffers of a model are part of its digest, and training never changes them."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from federation import Federation, dense, mixed, normed
from fedge.algorithms.fedavg import FedAvg
from fedge.api.functions import run
from fedge.client.network import Network
from fedge.core.errors import ModelError
from fedge.data.clients import Samples

SAMPLES = Samples(torch.randn(2, 8, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1]))


class Scaled(nn.Module):
    """A linear model whose inputs are scaled by a buffer."""

    def __init__(self, scale: float = 2.0, name: str = "scale") -> None:
        super().__init__()
        self.layer, self._name = nn.Linear(8, 3), name
        self.register_buffer(name, torch.full((8,), scale))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x * getattr(self, self._name))  # type: ignore[no-any-return]


class Averaging(Scaled):
    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.scale.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return super().forward(x)


class Hidden(Scaled):
    """Changes its buffer in a way that torch's version counter misses."""

    def forward(self, x: Tensor) -> Tensor:
        self.scale.data.add_(1)
        return super().forward(x)


class Replacing(Scaled):
    def forward(self, x: Tensor) -> Tensor:
        self.scale = self.scale + 1
        return super().forward(x)


class Renewing(Scaled):
    """Replaces its buffer by an equal copy in every call."""

    def forward(self, x: Tensor) -> Tensor:
        self.scale = self.scale.clone()
        return super().forward(x)


class Teaching(nn.Module):
    """Moves frozen weights towards the trained ones."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.teacher = nn.Linear(8, 3), nn.Linear(8, 3).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.teacher.weight.lerp_(self.layer.weight, 0.1)
        return self.layer(x) + self.teacher(x)  # type: ignore[no-any-return]


def spectral() -> nn.Module:
    return nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(8, 3)))


CHANGING: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "spectral": (spectral, "0.parametrizations.weight.0._u"),
    "averaging": (Averaging, "scale"),
    "replacing": (Replacing, "scale"),
    "teaching": (Teaching, "teacher.weight"),
}


@pytest.mark.parametrize(("make", "name"), [*CHANGING.values(), (Hidden, "scale")], ids=[*CHANGING, "hidden"])
def test_a_trial_finds_changing_constants(make: Callable[[], nn.Module], name: str) -> None:
    with pytest.raises(ModelError, match=f"^model: '{name}' changes during training"):
        Network(make, 1, "classes").try_out(SAMPLES)


@pytest.mark.parametrize(("make", "name"), CHANGING.values(), ids=CHANGING)
@pytest.mark.parametrize("engine", ["loop", "wire"])
def test_training_refuses_changing_constants(engine: str, make: Callable[[], nn.Module], name: str) -> None:
    """Even if the first change comes long after the trial."""
    federation = Federation(FedAvg().build, mixed((4, 4)), engine, make=make, dtype=torch.float32)
    with pytest.raises(ModelError, match=f"^model: '{name}' changes during training"):
        federation.rounds(1)


@pytest.mark.parametrize(
    ("make", "constants"), [(dense, set()), (normed, set()), (Scaled, {"scale"}), (Renewing, {"scale"})]
)
def test_a_trial_changes_neither_constants_nor_weights(make: Callable[[], nn.Module], constants: set[str]) -> None:
    network = Network(make, 1, "classes")
    before = {name: value.clone() for name, value in (network.constants.tree() | network.variables).items()}
    assert before.keys() == constants | {"x", "stats"}
    network.try_out(SAMPLES)
    after = network.constants.tree() | network.variables
    assert all(torch.equal(value, before[name]) for name, value in after.items())
    assert network.constants.digests == Network(make, 1, "classes").constants.digests


MODEL = """
from torch import nn, zeros

class Averaging(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(784, 10)
        self.register_buffer("average", zeros(784))

    def forward(self, x):
        x = x.flatten(1)
        if self.training:
            self.average.mul_(0.9).add_(0.1 * x.mean(0))
        return self.layer(x - self.average)

class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.other = nn.Linear(784, 10), nn.Linear(3, 3, bias=False)

    def forward(self, x):
        return self.layer(x.flatten(1))

class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(784, 10)

    def forward(self, x):
        return self.layer(x.flatten(1) if not self.training else x)

class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.other = nn.Linear(784, 10), nn.LazyLinear(10)

    def forward(self, x):
        return self.layer(x.flatten(1)) + (self.other(x.flatten(1)) if self.training else 0)

def build(shape, num_outputs, kind):
    return globals()[kind]()
"""


@pytest.mark.parametrize("engine", ["auto", "loop", "wire", "block", "pool"])
@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("Averaging", "'average' changes during training"),
        ("Unused", "expected every parameter to affect the output, but other.weight does not"),
        ("Broken", r"a training step on 2 samples failed for inputs of shape \(.*\): RuntimeError: "),
        ("Lazy", "other.weight has no shape yet: its layer is lazy; give the layer its input size"),
    ],
)
def test_an_invalid_user_model_is_refused_before_anything_is_written(
    kind: str, problem: str, engine: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(MODEL)
    model = {"name": f"{tmp_path}/mine.py:build", "options": {"kind": kind}}
    raw = {"data": {"name": "digits", "clients": 4}, "model": model, "algorithm": {"name": "fedavg"}, "rounds": 1}
    with pytest.raises(ModelError, match=f"^model: {problem}"):
        run(raw, runs=tmp_path / "runs", **{"engine.name": engine})
    assert not (tmp_path / "runs").exists()


# ---------------------------------------------------------------- digests


def digest_of(make: Callable[[], nn.Module], seed: int = 1) -> str:
    return Network(make, seed, "classes").digest()


def test_the_digest_covers_names_shapes_and_constants() -> None:
    assert digest_of(Scaled) == digest_of(Scaled, seed=2)  # weights are sent
    others = [
        lambda: Scaled(3.0),
        lambda: Scaled(name="factor"),
        lambda: nn.Linear(8, 3),
        lambda: nn.Linear(8, 4),
        normed,
    ]
    assert len({digest_of(Scaled), *map(digest_of, others)}) == 6


def test_the_digest_covers_frozen_weights() -> None:
    """Here they are initialised at random."""
    assert digest_of(Teaching) == digest_of(Teaching)
    assert digest_of(Teaching) != digest_of(Teaching, seed=2)


def test_constants_by_name() -> None:
    found = Network(Scaled, 1, "classes").constants.tree()
    assert {name: value.tolist() for name, value in found.items()} == {"scale": [2.0] * 8}
    assert list(Network(Teaching, 1, "classes").constants.tree()) == ["teacher.weight", "teacher.bias"]
    assert Network(normed, 1, "classes").constants.tree() == {}
