"""Typical mistakes in settings, and the advice in their error messages."""

from pathlib import Path

import pytest

from fedge import config as configuration
from fedge.config import load, parse
from fedge.core.errors import ConfigError

FILE = """
rounds = 3
data = { name = "digits", clients = 5 }
model = "logistic"
algorithm = { name = "fedavg", learning_rate = 0.1, local_epochs = 1 }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "first.toml"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("edge.up_mbps=5Mbps", "edge.up_mbps: expected a number or a table, got '5Mbps'; drop the unit 'Mbps'"),
        ("edge.deadline_s=30s", "drop the unit 's': edge.deadline_s=30"),
        ("selection.fraction=10%", "write selection.fraction=0.1"),
        ("algorithm.learning_rate=0,1", "write algorithm.learning_rate=0.1"),
        ("seeds=3", "seeds: expected array, got 3; write seeds=[1, 2, 3], or seed=3"),
        ("seed=[1,2]", "to repeat a run, set seeds"),
        ("name=my run", "got 'my run'; write name=my-run"),
        ("rounds=1.5", "rounds: expected int, got 1.5; write a whole number"),
        ("personal.private=nothing", "expected one of 'bn', 'bn_params', 'bn_stats', 'none', or a list, got 'nothing'"),
        ("evaluate.user_accuracy=yes", "write evaluate.user_accuracy=true"),
        ("codec.up=fp16", 'write codec.up=["fp16"]'),
        ("data.dir=5", 'write it in quotes: data.dir="5"'),
        ("algorithm.learning_rate=[0.1,0.2]", "`fedge sweep` runs a file with several values"),
        ("rounds={start=1,stop=3,step=1}", "`fedge sweep` runs a file with several values"),
        ("algorithm.name=['fedavg','scaffold']", "`fedge sweep` runs a file with several values"),
        ("algorithm.lr=0.1", "algorithm.lr: unknown key, did you mean 'learning_rate'?"),
        ("lr=0.1", "lr: unknown key, did you mean 'algorithm.learning_rate'?"),
        ("num_clients=3", "did you mean 'data.clients'?"),
        ("num_rounds=3", "did you mean 'rounds'?"),
        ("algorithm.batchsize=3", "did you mean 'batch_size'?"),
        ("data.alpha=0.5", "did you mean 'data.partition.alpha'?"),
        ("selection.clients=5", "did you mean 'count'?"),
        ("device=cuda", "did you mean 'engine.device'?"),
        ("model.hidden=16", 'for a network of another size, write a function: model.name="my_file.py:build"'),
        ("data=MNIST", "did you mean 'mnist'?"),
        ("engine=pool", "engine: expected a table, got 'pool'; set engine.name"),
        ("target=0.9", "target: expected a table, got 0.9; set target.metric, target.value"),
        ("algorithm.local_steps=5", "(--set algorithm.local_epochs= unsets)"),
        ("algorithm.lr=", "algorithm.lr: unknown key, did you mean 'learning_rate'?"),
        ("nothing.at_all=", "nothing: unknown key"),
    ],
)
def test_invalid_settings_get_advice(file, change: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(file, [change])
    assert told in str(error.value)


def test_a_python_file_without_a_name_gets_a_list_of_its_contents(file, tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text("def build(shape, num_outputs): ...\nclass Net: ...\n")
    with pytest.raises(ConfigError, match=r"my\.py:NAME, got a file without a name; it defines build, Net$"):
        load(file, [f"model.name={tmp_path / 'my.py'}"])


def test_whole_floats_are_integers(file) -> None:
    found = load(file, ["rounds=1e3", "seeds=[1.0, 2e0]"])
    assert (found.rounds, found.seeds) == (1000, [1, 2])
    assert type(found.rounds) is int
    assert all(type(seed) is int for seed in found.seeds or ())
    assert type(load(file, ["algorithm.learning_rate=1.0"]).algorithm.learning_rate) is float


def test_an_assignment_without_a_value_unsets(file) -> None:
    found = load(file, ["algorithm.local_steps=5", "algorithm.local_epochs="])
    assert (found.algorithm.local_steps, found.algorithm.local_epochs) == (5, None)
    assert load(file, ["rounds="]).rounds == 100
    assert load(file, ["algorithm.batch_size="]).algorithm.batch_size == 20
    assert load(file, ["target.value="]).target is None
    with pytest.raises(ConfigError, match="data: is required"):
        load(file, ["data="])
    raw = configuration.load_raw(file)
    changed = configuration.change(raw, {"algorithm.local_epochs": None, "algorithm.local_steps": 2})
    assert parse(changed).algorithm.local_steps == 2
