"""`fedge info`"""

from __future__ import annotations

import json

import pytest

from fedge.algorithms import ALGORITHMS
from fedge.core.codecs.chain import CODECS
from fedge.core.schema import tag
from fedge.data import DATASETS, PARTITIONS
from fedge.edge.selection import SELECTIONS
from fedge.models import MODELS
from fedge.schedules import SCHEDULES

PARTS = {
    "models": MODELS,
    "datasets": DATASETS,
    "algorithms": ALGORITHMS,
    "partitioners": PARTITIONS,
    "schedules": SCHEDULES,
    "selections": SELECTIONS,
}


@pytest.mark.parametrize("part", PARTS)
def test_every_entry_has_a_description(fedge, part):
    lines = fedge("info", part).stdout.splitlines()[2:]
    found = json.loads(fedge("info", part, "--format", "json").stdout)
    assert [entry["name"] for entry in found] == [tag(kind) or "FILE.py:FUNCTION" for kind in PARTS[part]]
    for line, entry in zip(lines, found, strict=True):
        assert line.startswith(entry["name"] + " ")
        assert len(entry["description"]) > 10
        assert entry["description"] in line


@pytest.mark.parametrize(
    ("part", "name"), [(part, tag(kind)) for part, kinds in PARTS.items() for kind in kinds if tag(kind)]
)
def test_every_option_has_a_meaning(fedge, part, name):
    found = json.loads(fedge("info", part, name, "--format", "json").stdout)
    assert found["name"] == name
    for option in found["options"]:
        assert option["meaning"], option
        assert "typing" not in option["type"], option


def test_models_show_their_parameter_count(fedge):
    found = json.loads(fedge("info", "models", "mnist_2nn", "--format", "json").stdout)
    # 784 inputs, two hidden layers of 200, 10 outputs, each with its biases
    assert found["num_params"] == 784 * 200 + 200 + 200 * 200 + 200 + 200 * 10 + 10
    assert found["shape"] == [1, 28, 28]
    assert "199,210 trainable parameters for inputs 1x28x28" in fedge("info", "models", "mnist_2nn").stdout


def test_models_for_other_inputs_show_the_input_shape(fedge, monkeypatch):
    monkeypatch.setattr("fedge.cli.catalogue.SHAPES", ((5,), (3, 32, 32)))
    (found,) = (
        entry for entry in json.loads(fedge("info", "models", "--format", "json").stdout) if entry["name"] == "mtfl_cnn"
    )
    assert found["shape"] == [3, 32, 32]  # since it does not accept vectors


def test_options_of_an_algorithm(fedge):
    lines = [line.split() for line in fedge("info", "algorithms", "fedavg").stdout.splitlines()]
    assert lines[0] == ["fedavg"]
    assert ["option", "type", "default", "meaning"] in lines
    (rate,) = (line for line in lines if line[:1] == ["learning_rate"])
    assert rate[1:5] == ["number", ">", "0", "0.1"]


def test_kind_without_options(fedge):
    assert fedge("info", "partitioners", "iid").stdout.endswith("\nno options\n")


def test_a_users_own_function(fedge, tmp_path):
    (tmp_path / "net.py").write_text('def build(shape, num_outputs):\n    """A net of mine."""\n')
    said = fedge("info", "models", f"{tmp_path}/net.py:build").stdout
    assert said.startswith(f"{tmp_path}/net.py:build\nA net of mine.\n")
    assert "Keyword arguments of the function" in said


def test_codecs_are_listed_with_their_syntax(fedge):
    found = json.loads(fedge("info", "codecs", "--format", "json").stdout)
    assert [entry["name"].partition("(")[0] for entry in found] == list(CODECS)
    (sparsify,) = (entry for entry in found if entry["name"] == "sparsify(s)")
    assert sparsify["description"].startswith("drops the smallest changes")
    lines = fedge("info", "codecs").stdout.splitlines()
    assert any(line.startswith("qsgd(bits)   ") for line in lines)


@pytest.mark.parametrize("name", ["sparsify", "sparsify(0.9)"])
def test_one_codec(fedge, name):
    usage, meaning = fedge("info", "codecs", name).stdout.splitlines()
    assert usage == "sparsify(s)"
    assert CODECS["sparsify"] == f"{usage}: {meaning}"


@pytest.mark.parametrize(
    ("part", "name", "nearest"), [("algorithms", "scafold", "scaffold"), ("codecs", "sparsfy(0.9)", "sparsify")]
)
def test_unknown_name_suggests_the_nearest(fedge, part, name, nearest):
    result = fedge("info", part, name)
    assert result.exit_code == 2
    assert f"did you mean '{nearest}'?" in result.stderr


def test_unknown_part(fedge):
    result = fedge("info", "optimisers")
    assert result.exit_code == 2
    assert "partitioners" in result.stderr


def test_entry_points_are_listed_with_their_errors(fedge, tmp_path, monkeypatch):
    code = "from fedge.algorithm import FedAvg\nclass Mine(FedAvg):\n    '''A new one.'''\n"
    (tmp_path / "offered.py").write_text(code)
    info = tmp_path / "offered-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: offered\nVersion: 2.0\n")
    names = "new = offered:Mine\nbroken = offered:Gone\nfedavg = offered:Mine"
    (info / "entry_points.txt").write_text(f"[fedge.algorithms]\n{names}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = json.loads(fedge("info", "algorithms", "--format", "json").stdout)[-3:]
    assert {entry["name"]: entry["description"] for entry in found} == {
        "broken": "error: algorithms: 'broken' of the package offered 2.0 cannot be imported from offered:Gone: "
        "AttributeError: module 'offered' has no attribute 'Gone'",
        "fedavg": "ignored: offered 2.0 uses the name of a built-in",
        "new": "A new one. (offered 2.0)",
    }
    assert fedge("info", "algorithms", "new").stdout.startswith("new\nA new one.\n")


def test_without_arguments_all_names_are_listed(fedge):
    lines = fedge("info").stdout.splitlines()
    found = json.loads(fedge("info", "--format", "json").stdout)
    assert set(PARTS) | {"codecs", "metrics"} == set(found)
    for part, names in found.items():
        assert f"{part}: {', '.join(names)}" in lines
    assert found["algorithms"] == [tag(kind) for kind in ALGORITHMS]
    assert found["codecs"] == list(CODECS)
