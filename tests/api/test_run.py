"""A run on disk, as a program or a notebook uses it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedge
from fedge.report import run_display
from fedge.report.run_display import NotebookBar, RunPicture


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fedge.Run:
    experiment = fedge.Experiment(data="digits", clients=5, model="logistic", algorithm="fedavg", engine="loop")
    return experiment.run(6, runs=tmp_path_factory.mktemp("runs"), progress=False)


def test_a_missing_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(fedge.RunError, match=r"no run at .*nowhere: expected config\.json in it"):
        fedge.Run(tmp_path / "nowhere")


def test_repeats_are_no_run(tmp_path: Path) -> None:
    experiment = fedge.Experiment(data="digits", clients=5, model="logistic", algorithm="fedavg", engine="loop")
    runs = experiment.run(1, seeds=[1, 2], runs=tmp_path, progress=False)
    with pytest.raises(fedge.RunError, match=r"holds repeats, not one run; fedge\.find_runs\('"):
        fedge.Run(tmp_path / "run")
    assert [each.path for each in fedge.find_runs(tmp_path)] == [each.path for each in runs]
    assert len(fedge.load([runs[0], tmp_path / "run" / "seed-2"], what="summary")) == 2
    assert len(fedge.load(runs)) == 2
    assert fedge.plot([tmp_path], by="algorithm.name").to_dict()["title"]["text"][0].startswith("mean of 2 seeds")


def test_the_trained_model(run: fedge.Run) -> None:
    again = fedge.Run(str(run.path))
    for name, value in again.model.state_dict().items():
        assert torch.equal(run.weights[name], value)
    module = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    assert again.load_into(module) is module
    assert torch.equal(module[1].bias, run.weights["1.bias"])  # type: ignore[arg-type]


def test_statistics_of_normalisation_are_loaded_too(tmp_path: Path) -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 6), nn.BatchNorm1d(6), nn.Linear(6, 10))

    experiment = fedge.Experiment(data="digits", clients=3, model=build, algorithm="fedavg", engine="loop")
    run = experiment.run(1, runs=tmp_path, progress=False)
    module = build()
    run.load_into(module)
    x = torch.rand(5, 1, 28, 28)
    assert torch.equal(module.eval()(x), run.model(x))


@pytest.mark.parametrize(
    ("module", "says"),
    [
        (nn.Linear(784, 10), "'1.weight' was trained, but the module lacks it"),
        (nn.Sequential(nn.Flatten(), nn.Linear(784, 9)), r"expected '1\.weight' to have the shape \[10, 784\], got"),
        (nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.Linear(10, 10)), r"'2\.weight' was not trained"),
    ],
)
def test_a_module_that_does_not_fit_stays_as_it_is(run: fedge.Run, module: nn.Module, says: str) -> None:
    before = [value.clone() for value in module.state_dict().values()]
    with pytest.raises(fedge.ModelError, match=says):
        run.load_into(module)
    assert all(torch.equal(a, b) for a, b in zip(before, module.state_dict().values(), strict=True))


def test_costs_to_a_value(run: fedge.Run) -> None:
    wanted = sorted(record["accuracy"] for record in run.rounds)[2]
    first = next(i for i, record in enumerate(run.rounds) if record["accuracy"] >= wanted)
    found = run.cost_to(accuracy=wanted)
    assert found is not None
    assert found["rounds"] == first + 1
    assert found["bytes_up"] == sum(record["bytes_up"] for record in run.rounds[: first + 1])
    assert run.cost_to(accuracy=1.0) is None
    assert run.cost_to(loss=100) is not None
    with pytest.raises(fedge.ConfigError, match=r"no round has 'acuracy', did you mean 'accuracy'\?"):
        run.cost_to(acuracy=0.9)
    with pytest.raises(fedge.ConfigError, match="expected one metric"):
        run.cost_to()


def test_a_chart_and_a_table(run: fedge.Run, tmp_path: Path) -> None:
    run.plot("loss", "bytes_up", save=tmp_path / "chart.svg")
    assert "upload" in (tmp_path / "chart.svg").read_text()
    np.testing.assert_array_equal(run.to_frame()["accuracy"], [record["accuracy"] for record in run.rounds])
    with pytest.raises(fedge.ConfigError, match=r"kind: expected one of .*'bras', did you mean 'bars'"):
        fedge.plot(run, kind="bras")  # type: ignore[arg-type]
    layout = {"width": "double", "title": "T", "labels": {"accuracy": "A"}, "log": "x", "legend": "none", "seeds": True}
    for chart in (run.plot(**layout), fedge.plot(run, top=3, **layout)):
        spec = chart.to_dict()
        assert (spec["width"], spec["title"]["text"], spec["config"]["legend"]) == (687, ["T"], {"disable": True})
        assert spec["layer"][1]["encoding"]["x"]["scale"]["type"] == "log"
    with pytest.raises(fedge.ConfigError, match="seeds: kind bars takes only"):
        fedge.plot(run, kind="bars", seeds=True)


def test_html_is_escaped(run: fedge.Run, tmp_path: Path) -> None:
    page = run._repr_html_()
    assert "<td>accuracy</td>" in page
    assert "target" not in page  # since none was set
    config = (run.path / "config.json").read_text().replace('"name": "run"', '"name": "<script>"')
    (tmp_path / "config.json").write_text(config)
    assert "<script>" not in fedge.Run(tmp_path)._repr_html_()


def test_a_damaged_model_file(run: fedge.Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((run.path / "config.json").read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(fedge.RunError, match=r"model\.safetensors is damaged"):
        fedge.Run(tmp_path).weights  # noqa: B018


def test_weights_of_a_run_without_their_file(run: fedge.Run, tmp_path: Path) -> None:
    """One that was killed, or is older than such files."""
    expected = run.weights
    (run.path / "model.safetensors").rename(tmp_path / "kept")
    try:
        found = fedge.Run(run.path).weights
    finally:
        (tmp_path / "kept").rename(run.path / "model.safetensors")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_progress_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, data: dict[str, str], raw: bool) -> None:
            shown.append(data["text/html"])

    class Display:
        @staticmethod
        def display(data: dict[str, str], raw: bool, display_id: bool) -> Handle:
            shown.append(data["text/html"])
            return Handle()

    monkeypatch.setattr(run_display, "import_module", lambda name: Display)
    bar = NotebookBar()
    for number in (1, 2):
        bar.show(RunPicture("<runs>", number, 2, "0:01 left", "accuracy 50%"))
    assert [page.partition(">")[0] for page in shown] == ['<progress value="1" max="2"', '<progress value="2" max="2"']
    assert all("&lt;runs&gt;" in page and "accuracy 50%" in page for page in shown)


def test_progress_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = fedge.Experiment(data="digits", clients=5, model="logistic", algorithm="fedavg", engine="loop")
    experiment.run(1, runs=tmp_path)
    assert "run: round 1/1, accuracy" in capsys.readouterr().err
    experiment.run(1, runs=tmp_path, progress=False)
    assert capsys.readouterr().err == ""
