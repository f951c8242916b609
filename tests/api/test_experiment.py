"""Experiments described with Python objects."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedge
from fedge.config import parse, plain

SMALL: dict[str, Any] = {
    "data": "digits",
    "clients": 6,
    "model": "logistic",
    "algorithm": fedge.FedAvg(learning_rate=0.1, local_steps=2),
    "selection": fedge.Uniform(fraction=0.5),
    "engine": "loop",
}


class Net(nn.Module):
    """A user-defined network."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(784, 8)
        self.out = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.out(self.hidden(x.flatten(1)).relu())
        return found


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def experiment(**changes: Any) -> fedge.Experiment:
    return fedge.Experiment(**{**SMALL, **changes})


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_settings_match_an_experiment_file() -> None:
    made = experiment(
        name="mine",
        partition=fedge.Dirichlet(alpha=0.5),
        personal="bn",
        edge={"up_mbps": 2},
        schedule={"learning_rate": fedge.Exp(decay=0.9)},
        target=fedge.TargetOptions(value=0.9),
    )
    partition = {"name": "dirichlet", "alpha": 0.5}
    file = {
        "name": "mine",
        "data": {"name": "digits", "clients": 6, "partition": partition},
        "model": "logistic",
        "algorithm": {"name": "fedavg", "learning_rate": 0.1, "local_steps": 2},
        "selection": {"fraction": 0.5},
        "engine": {"name": "loop"},
        "personal": {"private": "bn"},
        "edge": {"up_mbps": 2},
        "schedule": {"learning_rate": {"name": "exp", "decay": 0.9}},
        "target": {"value": 0.9},
    }
    assert made.config == parse(file)
    assert made.settings == plain(parse(file))


def test_run_matches_one_from_a_file(folder: Path) -> None:
    made = experiment().run(2, progress=False)
    (folder / "file.toml").write_text(
        'rounds = 2\nmodel = "logistic"\n[data]\nname = "digits"\nclients = 6\n'
        "[algorithm]\nname = 'fedavg'\nlearning_rate = 0.1\nlocal_steps = 2\n"
        "[selection]\nfraction = 0.5\n[engine]\nname = 'loop'\n"
    )
    read = fedge.Experiment.from_file("file.toml", name="read").run(progress=False)
    assert same(made.weights, read.weights)
    assert read.config["rounds"] == 2


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"algoritm": "fedavg"}, r"algoritm: unknown setting, did you mean 'algorithm'\?"),
        ({"seeds": [1, 2]}, r"seeds: .*experiment\.run\(seeds=\[1, 2, 3\]\)"),
        ({"algorithm": {"name": "fedavg", "learning_rat": 1}}, r"algorithm\.learning_rat: unknown key, did you mean"),
        ({"selection": {"fraction": 1.5}}, r"selection\.fraction: expected float <= 1\.0, got 1\.5"),
        ({"data": {"name": "digits", "clients": 3}}, r"data\.clients: given twice"),
        ({"data": "digit"}, r"data\.name: unknown name 'digit', did you mean 'digits'"),
        ({"data": {"x": [1], "y": [0]}}, r"data: expected a table with a name, got the keys x, y; .* as \(x, y\)"),
        ({"algorithm": fedge.FedAvg}, r"^algorithm: expected options, got the class FedAvg; write FedAvg\(\)$"),
        ({"model": fedge.Nn}, r"^model: expected options, got the class Nn; write Nn\(\)$"),
        ({"data": 3}, "data: expected the name of a data set"),
        ({"model": 3}, "model: expected a name such as 'mnist_2nn', an nn.Module"),
        ({"model": lambda a, b, c: None}, r"model: expected <lambda> to take no arguments, or"),
        ({"model": lambda: 3}, "model: <lambda> must return an nn.Module, got int"),
        ({"model": nn.Linear(784, 10)}, "does not accept inputs of shape"),
        ({"model": nn.Sequential(nn.Flatten(), nn.Linear(784, 9))}, r"must return a tensor \[2, 10\], got \[2, 9\]"),
    ],
)
def test_invalid_arguments(changes: dict[str, Any], says: str, folder: Path) -> None:
    with pytest.raises(fedge.FedgeError, match=says):
        experiment(**changes).run(1, progress=False)
    assert not (folder / "runs").exists()


def test_unknown_option_suggests_the_nearest() -> None:
    with pytest.raises(fedge.ConfigError, match=r"FedAvg: algorithm\.lr: unknown key, did you mean 'learning_rate'\?"):
        fedge.FedAvg(lr=0.1)  # type: ignore[call-arg]
    with pytest.raises(fedge.ConfigError, match=r"Uniform: selection\.fractoin: unknown key, did you mean 'fraction'"):
        fedge.Uniform(fractoin=0.1)  # type: ignore[call-arg]


def test_seeds_must_be_a_list() -> None:
    with pytest.raises(fedge.ConfigError, match=r"seeds: expected .*got 3"):
        experiment().run(1, seeds=3)  # type: ignore[call-overload]


def test_repr_names_objects_by_type() -> None:
    x, y = np.ones((100, 1, 28, 28)), np.arange(100) % 10
    made = experiment(data=fedge.Arrays(x, y), model=Net, algorithm="fedavg")
    assert repr(made) == "Experiment('run': Arrays, Net, fedavg)"


def test_a_module_is_copied() -> None:
    net = Net()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    made = experiment(model=net)
    with torch.no_grad():
        net.out.bias.add_(1)  # after the experiment was made
    first = made.run(1, progress=False)
    second = made.run(1, progress=False)
    assert same(first.weights, second.weights)
    assert torch.equal(net.out.bias, before["out.bias"] + 1)
    assert torch.equal(net.hidden.weight, before["hidden.weight"])
    assert not torch.equal(first.weights["hidden.weight"], before["hidden.weight"])
    assert experiment(model=net).settings["model"]["digest"] != made.settings["model"]["digest"]


def test_module_starts_every_seed_and_class_is_drawn_per_seed() -> None:
    start = {}
    for name, model in {"module": Net(), "class": Net}.items():
        still = experiment(model=model, algorithm=fedge.FedAvg(learning_rate=1e-30, local_steps=1), name=name)
        torch.manual_seed(7)
        start[name] = [run.weights["out.bias"] for run in still.run(1, seeds=[1, 2], progress=False)]
        assert torch.initial_seed() == 7
    assert torch.equal(*start["module"])
    assert not torch.equal(*start["class"])
    with_other_state = experiment(model=Net, algorithm=fedge.FedAvg(learning_rate=1e-30, local_steps=1))
    torch.manual_seed(8)
    assert torch.equal(with_other_state.run(1, progress=False).weights["out.bias"], start["class"][0])


def models() -> dict[str, Callable[..., nn.Module] | nn.Module]:
    class Local(Net):
        """Cannot be imported."""

    return {"local class": Local, "lambda": lambda shape, num_outputs: Local(), "module": Local()}


@pytest.mark.parametrize("name", models())
def test_local_objects_work_in_every_engine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda *_, **__: "spawn")
    multiprocessing.set_start_method("spawn", force=True)  # the pool forks anyway
    try:
        torch.manual_seed(1)
        rng = np.random.default_rng(1)
        data = (rng.random((200, 1, 28, 28)), np.arange(200) % 10)
        made = models()[name]
        found = {}
        for engine in ("loop", "block", "pool"):
            one = experiment(model=made, data=data, engine={"name": engine, "workers": 2}, name=engine)
            run = one.run(2, progress=False)
            found[engine] = run.weights
            assert run.environment["engine"]["engine"] == engine
            assert same(dict(run.model.named_parameters()), run.weights)
    finally:
        multiprocessing.set_start_method(None, force=True)
    assert same(found["block"], found["pool"])
    torch.testing.assert_close(found["loop"], found["block"], rtol=1e-4, atol=1e-6)


def test_data_of_each_client() -> None:
    rng = np.random.default_rng(1)
    sizes = [3, 12, 7]
    pairs = [((rng.random((n, 4)), np.full(n, i)), (rng.random((2, 4)), np.full(2, i))) for i, n in enumerate(sizes)]
    made = experiment(data=fedge.Clients(pairs), clients=None, model="logistic", selection={"count": 3})
    clients = made.config.data
    assert clients.partition == fedge.Natural(column="client")  # type: ignore[union-attr]
    run = made.run(1, progress=False)
    assert [row["client"] for row in run.clients] == [0, 1, 2]
    with pytest.raises(fedge.ConfigError, match=r"clients: fedge\.Clients already defines the clients"):
        experiment(data=fedge.Clients(pairs), clients=3)
    with pytest.raises(fedge.ConfigError, match=r"partition: fedge\.Clients already defines"):
        experiment(data=fedge.Clients(pairs), clients=None, partition="iid")


@pytest.mark.full
def test_run_that_cannot_be_rebuilt_is_recorded_and_rejected(folder: Path) -> None:
    experiment(model=Net, name="own").run(1, progress=False)
    code = "import sys; from fedge.cli import main; sys.argv[0] = 'fedge'; main()"

    def command(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, cwd=folder)

    resumed = command("resume", "runs/own", "--set", "rounds=2")
    assert resumed.returncode == fedge.RunError.exit_code
    assert resumed.stderr == (
        "error: runs/own was started from Python with a model, 'Net', that only that program has; continue it there "
        "with Experiment.run(resume=True)\n"
    )
    shown = command("show", "runs/own")
    assert shown.returncode == 0
    assert "model: Net, which only the Python program that started the run has" in shown.stdout
    assert fedge.load("runs", what="summary")["model.type"].tolist() == ["Net"]
    with pytest.raises(fedge.ModelError, match=r"only in that program; create the model and call run\.load_into"):
        fedge.Run("runs/own").model  # noqa: B018
    with pytest.raises(fedge.RunError, match="continue it there"):
        fedge.resume("runs/own", rounds=2, progress=False)


@pytest.mark.full
def test_weights_load_in_another_process_without_data(folder: Path) -> None:
    x, y = np.random.default_rng(1).random((60, 784)), np.arange(60) % 10
    run = experiment(model=Net, data=(x, y), name="own").run(1, progress=False)
    code = (
        "import fedge\n"
        "from torch import nn\n"
        "class Other(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.hidden, self.out = nn.Linear(784, 8), nn.Linear(8, 10)\n"
        "run = fedge.Run('runs/own')\n"
        "net = run.load_into(Other())\n"
        "print(net.out.bias.sum().item(), run.weights['out.bias'].sum().item())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder)
    assert {float(text) for text in done.stdout.split()} == {run.weights["out.bias"].sum().item()}


def test_resume_continues_the_newest_run_with_the_same_settings() -> None:
    whole = experiment(model=Net, name="whole").run(4, progress=False)
    made = experiment(model=Net, name="parts")
    with made.rounds(4) as rounds:
        for record in rounds:
            if record["round"] == 2:
                break
    assert fedge.Run("runs/parts").status == "unfinished"
    resumed = made.run(4, resume=True, progress=False)
    assert resumed.path == Path("runs/parts")
    assert same(whole.weights, resumed.weights)
    more = made.run(5, resume=True, progress=False)
    assert (more.path, len(more.rounds)) == (resumed.path, 5)
    new = made.run(1, progress=False)
    assert new.path == Path("runs/parts-2")
    newest = made.run(2, resume=True, progress=False)
    assert (newest.path, len(newest.rounds)) == (new.path, 2)
    again = made.run(2, resume=True, progress=False)  # already complete
    assert same(again.weights, newest.weights)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"algorithm": fedge.FedAvg(learning_rate=0.2, local_steps=2)}, r"algorithm\.learning_rate \(0\.1 there, 0\.2"),
        ({"model": nn.Sequential(nn.Flatten(), nn.Linear(784, 10))}, "the model's code, structure or initial weights"),
        ({"data": (np.ones((60, 784)), np.arange(60) % 10)}, "the samples"),
        ({"seed": 5}, r"seed \(1 there, 5 here\)"),
    ],
)
def test_resume_names_the_difference(changes: dict[str, Any], says: str) -> None:
    torch.manual_seed(1)
    kept = {"model": Net, "data": (np.zeros((60, 784)), np.arange(60) % 10), "name": "own"}
    experiment(**kept).run(1, progress=False)
    with pytest.raises(fedge.RunError, match=f"resume: runs/own differs in .*{says}"):
        experiment(**{**kept, **changes}).run(2, resume=True, progress=False)
    assert experiment(**{**kept, **changes, "name": "new"}).run(1, resume=True, progress=False).path.name == "new"


def test_changed_code_makes_a_different_model() -> None:
    def one() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))

    def two() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(784, 10))

    two.__name__ = one.__name__
    digests = [experiment(model=each).settings["model"]["digest"] for each in (one, one, two)]
    assert digests[0] == digests[1] != digests[2]


def test_several_seeds() -> None:
    runs = experiment().run(2, seeds=[3, 4], progress=False)
    assert isinstance(runs, fedge.Runs)
    assert [run.path for run in runs] == [Path("runs/run/seed-3"), Path("runs/run/seed-4")]
    assert runs.plot().to_dict()["title"]["text"][0].startswith("mean of 2 seeds")
    assert "<td>2</td>" in runs._repr_html_()
    assert len(runs.to_frame("summary")) == 2
    more = experiment().run(3, seeds=[3, 4], resume=True, progress=False)
    assert [len(run.rounds) for run in more] == [3, 3]
    assert [run.path for run in more] == [run.path for run in runs]


def test_a_sweep_of_an_experiment() -> None:
    with pytest.warns(UserWarning, match=r"failed: .*count.*selection\.count: expected at most"):
        runs = fedge.sweep(experiment(model=Net), name="counts", rounds=1, progress=False, selection={"count": [2, 9]})
    assert [run.config["selection"]["count"] for run in runs] == [2]
    with (
        pytest.raises(fedge.FedgeError, match="all runs of the sweep failed"),
        pytest.warns(UserWarning, match="failed"),
    ):
        fedge.sweep(experiment(model=Net), name="bad", rounds=1, progress=False, selection={"count": [8, 9]})


def test_functions_take_an_experiment() -> None:
    run = fedge.run(experiment(model=Net), rounds=1, progress=False)
    assert isinstance(run, fedge.Run)
    assert run.summary is not None
    assert run.summary["rounds"] == 1
    assert set(run.weights) == set(Net().state_dict())


class Halved(fedge.FedAvg, tag="halved"):
    """FedAvg with half the learning rate, in a class that exists only in this program."""

    factor: float = 0.5

    def build(self, layout: Any) -> Any:
        return fedge.FedAvg(learning_rate=self.learning_rate, local_steps=self.local_steps).build(layout)


def test_an_algorithm_of_this_program(folder: Path) -> None:
    algorithm = Halved(learning_rate=0.1, local_steps=2, factor=0.25)
    made = experiment(algorithm=algorithm, name="own")
    name = made.settings["algorithm"]["name"]
    assert name.startswith("python:Halved@")
    assert made.settings["algorithm"]["factor"] == 0.25
    run = made.run(2, progress=False)
    assert same(run.weights, experiment(name="built-in").run(2, progress=False).weights)
    assert same(dict(run.model.named_parameters()), run.weights)
    assert len(made.run(3, resume=True, progress=False).rounds) == 3
    assert len(fedge.sweep(made, name="s", progress=False, rounds=1, **{"algorithm.factor": [0.1, 0.2]})) == 2
    with pytest.raises(fedge.ConfigError, match=r"algorithm\.name: 'Halved@\w+' was defined in Python, and only the"):
        fedge.resume("runs/own", rounds=4, progress=False)
