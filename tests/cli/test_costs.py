"""`fedge costs`"""

from __future__ import annotations

import json

import pytest

P = 7850  # parameters of the logistic model


def said(fedge, *args):
    return json.loads(fedge("costs", *args, "--format", "json").stdout)


def test_says_what_the_run_will_record(fedge, experiment_file, tmp_path):
    found = said(fedge, experiment_file)
    assert fedge("run", experiment_file, "--runs", tmp_path / "runs", "--quiet").exit_code == 0
    lines = (tmp_path / "runs" / "tiny" / "rounds.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert found["total"].pop("rounds") == len(records) == 3
    for cost, value in found["round"].items():
        assert value == pytest.approx(records[0][cost])
    for cost, value in found["total"].items():
        assert value == pytest.approx(sum(record[cost] for record in records))


def test_numbers_by_hand(fedge, experiment_file):
    found = said(fedge, experiment_file)
    assert found["model"] == {"parameters": P, "tensors": 2, "statistics": 0, "flops_per_sample": 3 * 784 * 10}
    assert (found["clients"], found["cohort"]) == (10, 2)
    client = found["client"]
    assert client["local_steps"] == 2
    assert client["flops"] == 2 * (20 * 3 * 784 * 10 + 2 * P)
    assert 4 * P < client["bytes_up"] < 4 * P + 200
    down_s, compute_s, up_s = (client["bytes_down"] * 8e-6 / 20, 2 * 0.017, client["bytes_up"] * 8e-6 / 5)
    assert client["sim_seconds"] == pytest.approx(down_s + compute_s + up_s)
    assert found["round"]["flops"] == 2 * client["flops"]
    assert found["total"]["flops"] == 3 * found["round"]["flops"]
    assert found["alternatives"][0] == client | {"algorithm": "fedavg", "codec": "", "configured": True}
    assert found["notes"] == []


def test_changes_are_made(fedge, experiment_file):
    found = said(fedge, experiment_file, "--set", "algorithm.name=scaffold", "--set", "seeds=[4,5]")
    assert found["client"]["vectors_up"] == 2
    assert found["alternatives"][0]["algorithm"] == "scaffold"


def test_table_for_people(fedge, experiment_file):
    lines = fedge("costs", experiment_file).stdout.splitlines()
    assert lines[0].startswith(
        "tiny: 7,850 parameters in 2 tensors, 23,520 FLOPs for the gradient of a sample; 2 of 10"
    )
    rows = [line.split() for line in lines]
    assert ["a", "client", "the", "cohort", "3", "rounds"] in rows
    assert ["local", "steps", "2", "4", "12"] in rows
    (configured,) = (row for row in rows if row[:1] == [">"])
    assert configured[1:6] == ["fedavg", "1", "1", "1", "0"]
    (scaffold,) = (row for row in rows if row[:1] == ["scaffold"])
    assert scaffold[1:5] == ["2", "2", "2", "1"]


def test_what_only_training_can_tell_is_said(fedge, experiment_file):
    output = fedge("costs", experiment_file, "--set", "algorithm.name=dynavg").stdout
    assert "\nnote: a round has the exchanges train, pull, renew at most" in output
    assert "dynavg, silent" in output


def test_statistics_of_layers_are_named(fedge, experiment_file):
    output = fedge("costs", experiment_file, "--set", "model.name=mtfl_2nn").stdout
    assert "199,610 parameters in 8 tensors and 400 statistics, " in output


def test_wrong_file(fedge, tmp_path):
    result = fedge("costs", tmp_path / "absent.toml")
    assert result.exit_code == 2
    assert "absent.toml" in result.stderr


def test_chart_of_compression(fedge, tmp_path):
    pytest.importorskip("altair", reason="needs the extra `view`")
    pytest.importorskip("vl_convert", reason="needs the extra `view`")
    file = tmp_path / "first.toml"
    file.write_text('data = "digits"\nmodel = "mnist_2nn"\nalgorithm = "fedavg"\n')
    result = fedge("costs", file, "--chart", tmp_path / "fig.svg")
    assert result.exit_code == 0, result.stderr
    drawn = (tmp_path / "fig.svg").read_text()
    assert all(text in drawn for text in ("CE-FedAvg", "compression ratio", "bits per index"))
