"""`fedge data`"""

from __future__ import annotations

import json
import tomllib
from hashlib import md5, sha256
from pathlib import Path

import pytest

from fedge.data.client_sizes import measure
from fedge.data.download import Download
from fedge.data.files import Collection, Source
from fedge.data.mnist import FashionMnist
from file_site import serving


@pytest.fixture
def files(monkeypatch):
    """A data set of one required and one optional file."""
    needed = Collection(("set",), (Source({"a.bin": md5(b"a").hexdigest()}, "fetch {path}"),))
    extra = Collection(("set",), (Source({"b.bin": None}, "make {path}"),), purpose="more")
    monkeypatch.setattr(FashionMnist, "sources", (needed, extra))


def test_missing_files_are_listed_with_commands_to_get_them(fedge, files, tmp_path):
    result = fedge("data", "get", "fashion_mnist", "--dir", tmp_path)
    assert result.exit_code == 3
    assert result.stdout.splitlines() == [
        f"missing  {tmp_path}/set/a.bin",
        f"         fetch {tmp_path}/set/a.bin",
        f"missing  {tmp_path}/set/b.bin (only for more)",
        f"         make {tmp_path}/set/b.bin",
    ]
    assert "fashion_mnist: missing or wrong: a.bin" in result.stderr
    assert "b.bin" not in result.stderr


def test_files_are_copied_and_checked(fedge, files, tmp_path):
    origin, root = tmp_path / "from", tmp_path / "to"
    origin.mkdir()
    (origin / "a.bin").write_bytes(b"wrong")
    result = fedge("data", "get", "fashion_mnist", "--from", origin, "--dir", root)
    assert (result.exit_code, root.exists()) == (3, False)
    assert "truncated or corrupt" in result.stderr
    (origin / "a.bin").write_bytes(b"a")
    result = fedge("data", "get", "fashion_mnist", "--from", origin, "--dir", root)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"copied {root}/set/a.bin\nok       {root}/set/a.bin\n")
    assert fedge("data", "check", "fashion_mnist", "--dir", root).exit_code == 0
    result = fedge("data", "get", "fashion_mnist", "--from", tmp_path / "none", "--dir", root)
    assert "no such directory" in result.stderr


def test_files_are_downloaded(fedge, tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(b"a" * 100_000) as site:
        how, digest = f"curl {site.url}", md5(site.content).hexdigest()
        download = Download(site.url, sha256(site.content).hexdigest(), 200_000)
        monkeypatch.setattr(
            FashionMnist, "sources", (Collection(("set",), (Source({"a.bin": digest}, how, download=download),)),)
        )
        get = ("data", "get", "fashion_mnist", "--dir", tmp_path)
        result = fedge(*get, "--dry-run")
        assert (result.exit_code, site.asked) == (3, [])
        assert result.stdout == f"missing  {tmp_path}/set/a.bin\n         {how}\n"
        site.cuts = [50_000, 0, 0, 0]
        result = fedge(*get)
        assert (result.exit_code, result.stdout) == (9, "")
        assert "got 50,000 bytes so far, run the command again to continue" in result.stderr
        result = fedge(*get)
        assert (result.exit_code, site.asked[-1]) == (0, "bytes=50000-")
        assert result.stdout == f"downloaded {tmp_path}/set/a.bin\nok       {tmp_path}/set/a.bin\n"
        assert result.stderr == ""
        site.asked.clear()
        assert json.loads(fedge(*get, "--format", "json").stdout)[0]["status"] == "ok"
        assert site.asked == []  # already present


def test_all_data_sets_are_checked(fedge, files, tmp_path):
    result = fedge("data", "check", "--dir", tmp_path)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == f"data directory {tmp_path}"
    assert "missing  mnist           `fedge data get mnist` downloads it" in result.stdout
    assert "missing  cifar10         `fedge data get cifar10` explains how to get it" in result.stdout
    assert "digits" not in result.stdout
    (tmp_path / "set").mkdir()
    (tmp_path / "set/a.bin").write_bytes(b"a")  # b.bin is optional
    result = fedge("data", "check", "--dir", tmp_path)
    assert (result.exit_code, "ok       fashion_mnist\n" in result.stdout) == (0, True)
    (tmp_path / "set/a.bin").write_bytes(b"b")
    result = fedge("data", "check", "--dir", tmp_path, "--format", "json")
    assert result.exit_code == 3
    assert "missing or wrong files of fashion_mnist; `fedge data check fashion_mnist` lists them" in result.stderr
    found = {entry["name"]: entry for entry in json.loads(result.stdout)}
    assert (found["mnist"]["status"], found["fashion_mnist"]["status"]) == ("missing", "wrong")
    assert [file["status"] for file in found["fashion_mnist"]["files"]] == ["wrong", "missing"]


def test_wrong_file_is_reported(fedge, files, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set/a.bin").write_bytes(b"wrong")
    result = fedge("data", "check", "fashion_mnist", "--dir", tmp_path, "--format", "json")
    assert result.exit_code == 3
    first, second = json.loads(result.stdout)
    assert (first["status"], first["path"]) == ("wrong", f"{tmp_path}/set/a.bin")
    assert "expected MD5" in first["problem"]
    assert (second["status"], second["purpose"]) == ("missing", "more")


def test_unknown_data_sets_and_those_without_files(fedge):
    result = fedge("data", "check", "mnits")
    assert result.exit_code == 2
    assert "did you mean 'mnist'?" in result.stderr
    result = fedge("data", "get", "digits")
    assert result.exit_code == 2
    assert "digits is not read from published files" in result.stderr


def test_the_data_of_an_experiment_is_checked(fedge, experiment_file):
    assert fedge("data", "check", experiment_file).stdout == (
        "ok: 10 clients with 1438 training samples of shape 1x28x28\n"
    )
    found = json.loads(fedge("data", "check", experiment_file, "--format", "json").stdout)
    assert found == {"clients": 10, "samples": 1438, "shape": [1, 28, 28]}
    experiment_file.write_text(experiment_file.read_text().replace("clients = 10", "clients = 2000"))
    result = fedge("data", "check", experiment_file)
    assert result.exit_code == 3
    assert "2000 clients cannot share 1438 training samples" in result.stderr


def test_clients_are_listed(fedge, experiment_file):
    changes = ("--set", "data.partition={name='classes', k=1}")
    said = fedge("data", "show", experiment_file, *changes, "--limit", 3).stdout.splitlines()
    assert said[0].split() == ["client", "train", "test", "classes", "most", "frequent"]
    rows = [line.split() for line in said[2:5]]
    assert [row[0] for row in rows] == ["0", "1", "2"]
    assert [row[3] for row in rows] == ["1", "1", "1"]
    assert all(row[-1] == "100%" for row in rows)
    assert said[-1].startswith("10 clients, 1,438 training samples of shape 1x28x28;")


def test_named_classes_and_clients_are_shown_by_name(fedge, tmp_path):
    (tmp_path / "t.csv").write_text("ward,a,kind\n" + "north,1,ill\nsouth,2,healthy\n" * 5)
    (tmp_path / "e.toml").write_text(
        'name = "x"\nrounds = 1\nseed = 1\n[data]\nname = "table"\nfile = "t.csv"\ntarget = "kind"\n'
        'partition = { name = "natural", column = "ward" }\n[model]\nname = "logistic"\n'
        '[algorithm]\nname = "fedavg"\nlearning_rate = 0.1\nlocal_steps = 1\n'
    )
    said = fedge("data", "show", tmp_path / "e.toml").stdout.splitlines()
    assert [line.split() for line in said[2:4]] == [
        ["north", "4", "1", "1", "ill:", "100%"],
        ["south", "4", "1", "1", "healthy:", "100%"],
    ]
    found = json.loads(fedge("data", "show", tmp_path / "e.toml", "--format", "json").stdout)
    assert (found["class_names"], found["client_names"]) == (["healthy", "ill"], ["north", "south"])


def test_clients_as_json(fedge, experiment_file):
    found = json.loads(fedge("data", "show", experiment_file, "--format", "json", "--limit", 0).stdout)
    assert (found["clients"], found["samples"], found["outputs"]) == (10, 1438, 10)
    assert len(found["shown"]) == 10
    assert sum(client["train"] for client in found["shown"]) == 1438
    assert all(sum(client["classes"]) == client["train"] for client in found["shown"])


def test_partition_is_that_of_the_experiment(fedge, experiment_file):
    from fedge.config import parse

    given = fedge("data", "show", experiment_file, "--set", "seeds=[7, 8]", "--format", "json", "--limit", 1)
    clients = parse(tomllib.loads(experiment_file.read_text())).data.build(7)
    (first,) = measure(clients, [0])
    assert json.loads(given.stdout)["shown"][0]["classes"] == first.classes


def test_a_regression_has_no_classes(fedge, tmp_path):
    file = tmp_path / "line.toml"
    file.write_text(
        '[data]\nname = "synthetic"\nkind = "quadratic"\nclients = 3\n[model]\nname = "linear"\n'
        '[algorithm]\nname = "fedavg"\n'
    )
    said = fedge("data", "show", file).stdout
    assert said.splitlines()[2].split() == ["0", "100", "20", "–", "–"]


def test_chart_is_saved(fedge, experiment_file, tmp_path):
    pytest.importorskip("vl_convert")
    assert fedge("data", "show", experiment_file, "--chart", tmp_path / "division.svg").exit_code == 0
    drawn = Path(tmp_path / "division.svg").read_text()
    assert "training samples per client" in drawn
    result = fedge("data", "show", experiment_file, "--chart", tmp_path / "division.txt")
    assert result.exit_code == 2


def test_data_of_a_later_round(fedge, tmp_path):
    """Half of the samples arrive from the second round on; in the eleventh all have arrived."""
    file = tmp_path / "drift.toml"
    file.write_text(
        'model = "logistic"\nalgorithm = "fedavg"\n[data]\nname = "digits"\nclients = 1\n'
        'drift = { name = "arriving", start = 0.5, until = 11 }\n'
    )
    counts = []
    for number in ("1", "6", "11"):
        result = fedge("data", "show", file, "--round", number, "--format", "json")
        assert result.exit_code == 0, result.stderr
        counts.append(json.loads(result.stdout)["samples"])
    total = counts[-1]
    # half of them at first; half of the rest, rounded either way, after half of the rounds
    assert counts[0] == (total + 1) // 2
    assert abs(counts[1] - 0.75 * total) <= 1
