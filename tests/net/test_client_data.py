"""Data of one client, for every kind of SPEC: bit-equal to the simulated client's."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedge.cli.data_split import split
from fedge.config import load
from fedge.core.errors import ConfigError, DataError
from fedge.data.clients import Clients
from fedge.data.normalise import Scaling
from fedge.data.remote import Remote
from fedge.net.client_data import load_spec

BASE = 'model = "logistic"\nalgorithm = { name = "fedavg", learning_rate = 0.1, local_steps = 1 }\nseed = 5\n'
STATIC = {
    "plain": 'name = "digits"\nclients = 6',
    "normalised": 'name = "digits"\nclients = 6\nnormalise = true\nvalidation = 0.1',
    "noisy": 'name = "digits"\nclients = 6\nnoise = { fraction = 0.5, std = 1.0 }\npartition = "dirichlet"',
    "given": 'name = "digits"\nclients = 6\nnormalise = { mean = 0.3, std = [0.4] }\nshared_fraction = 0.1',
    "oversampled": 'name = "digits"\nclients = 6\noversample = true\npartition = { name = "shards", per_client = 2 }',
    "mixture": 'name = "synthetic"\nclients = 6\nfeatures = 4\nvalidation = 0.2',
    "quadratic": 'name = "synthetic"\nkind = "quadratic"\nclients = 6\nfeatures = 4',
}
CHANGING = {
    "arriving": 'name = "digits"\nclients = 6\ndrift = { name = "arriving", start = 0.2, until = 4 }',
    "label_shift": 'name = "digits"\nclients = 6\npartition = { name = "shards", per_client = 2 }\n'
    'drift = { name = "label_shift", until = 4 }',
    "feature_shift": 'name = "digits"\nclients = 6\ndrift = { name = "feature_shift", degrees = 30, until = 4 }\n'
    "normalise = true",
    "augmented": 'name = "digits"\nclients = 6\naugment = { flip = true, crop = 24 }\nvalidation = 0.1\n'
    "noise = { fraction = 0.5, std = 0.5 }",
}


def write(folder: Path, data: str, base: str = BASE) -> Path:
    path = folder / "e.toml"
    path.write_text(f"{base}[data]\n{data}\n")
    return path


def assert_same(own: Any, simulated: Clients, number: int, rounds: tuple[int, ...] = (1,)) -> None:
    """Check that samples, sizes and facts equal those of the simulated client."""
    assert (own.shape, own.num_outputs, own.task) == (simulated.shape, simulated.num_outputs, simulated.task)
    assert own.sizes[number] == simulated.sizes[number]
    assert own.facts.size == simulated.sizes[number]
    assert own.facts.noisy == (number in simulated.noisy) == (number in own.noisy)
    for round in rounds:
        assert own.num_samples(number, round) == simulated.num_samples(number, round)
        for part in ("train", "test", "validation"):
            ours, theirs = getattr(own, part)(number, round), getattr(simulated, part)(number, round)
            assert [side.dtype for side in ours] == [side.dtype for side in theirs]
            assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True)), (part, round)
    sizes = (len(simulated.test(number, 1)), len(simulated.validation(number, 1)))
    assert (own.facts.test_size, own.facts.validation_size) == sizes


@pytest.mark.parametrize("data", [*STATIC.values(), *CHANGING.values()], ids=[*STATIC, *CHANGING])
def test_client_of_an_experiment_file_has_its_samples_in_every_round(tmp_path: Path, data: str) -> None:
    path = write(tmp_path, data)
    options: Any = load(path).data
    simulated, plan = options.build(5), options.server_part(5).plan
    for number in (0, 3, 5):
        spec = load_spec(f"{path}#{number}")
        assert spec.named == number
        assert_same(spec.load(plan, number), simulated, number, (1, 2, 4, 9))


@pytest.mark.parametrize("data", STATIC.values(), ids=STATIC)
def test_folder_of_a_split_has_the_clients_samples(tmp_path: Path, data: str) -> None:
    path, parts = write(tmp_path, data), tmp_path / "parts"
    split(path, parts)
    options: Any = load(path).data
    simulated, plan = options.build(5), options.server_part(5).plan
    assert sorted(folder.name for folder in parts.iterdir()) == [f"client-000{number}" for number in range(6)]
    for number in range(6):
        spec = load_spec(str(parts / f"client-000{number}"))
        assert spec.named == number
        assert_same(spec.load(plan, number), simulated, number, (1, 7))


@pytest.mark.parametrize("data", CHANGING.values(), ids=CHANGING)
def test_data_that_changes_by_round_is_not_split(tmp_path: Path, data: str) -> None:
    path = write(tmp_path, data)
    with pytest.raises(ConfigError, match=r"data\.(drift|augment): changes samples every round"):
        split(path, tmp_path)


def test_some_clients_are_split_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, parts = write(tmp_path, STATIC["plain"]), tmp_path / "parts"
    for seed in (5, 6):
        split(path, parts, "4, 1", [f"seed={seed}"])
        assert capsys.readouterr().out.count("wrote ") == 2
    assert sorted(folder.name for folder in parts.iterdir()) == ["client-0001", "client-0004"]
    options: Any = load(path).data
    own = load_spec(str(parts / "client-0004")).load(options.server_part(6).plan, 4)
    assert_same(own, options.build(6), 4)
    for wrong in ("6", "x", "1-2", "", "٣"):
        with pytest.raises(ConfigError, match="--clients: expected numbers from 0 to 5"):
            split(path, parts, wrong)


def test_other_partition_is_refused_with_the_differing_setting(tmp_path: Path) -> None:
    path, parts = write(tmp_path, STATIC["plain"]), tmp_path / "parts"
    split(path, parts)
    other: Any = load(path, ["data.partition.name=dirichlet", "data.partition.alpha=0.3"]).data
    for spec in (f"{path}#1", str(parts / "client-0001")):
        with pytest.raises(DataError, match=r"data\.partition.alpha: the server has 0.3, .* has None"):
            load_spec(spec).load(other.server_part(5).plan, 1)
    same: Any = load(path, ["data.dir=/elsewhere"]).data
    load_spec(f"{path}#1").load(same.server_part(6).plan, 1)  # the server's seed determines the partition
    with pytest.raises(DataError, match=r"seed: the server has 6, but .*client-0001 was split with seed 5"):
        load_spec(str(parts / "client-0001")).load(same.server_part(6).plan, 1)


def test_wrong_client_numbers(tmp_path: Path) -> None:
    path = write(tmp_path, STATIC["plain"])
    plan = load(path).data.server_part(5).plan
    with pytest.raises(DataError, match="number 2, but its data belongs to client 3"):
        load_spec(f"{path}#3").load(plan, 2)
    with pytest.raises(DataError, match="#6: expected a client number from 0 to 5"):
        load_spec(f"{path}#6").load(plan, 6)
    for spec in (f"{path}#x", f"{path}#", f"{path}#-1", f"{path}#999999999", f"{path}#٣"):
        with pytest.raises(ConfigError, match=r"FILE\.toml#NUMBER"):
            load_spec(spec)
    own = load_spec(f"{path}#3").load(plan, 3)
    with pytest.raises(DataError, match="expected client 3, whose data this is, got client 0"):
        own.train(0, 1)


def test_parts_with_a_server_without_the_data_set(tmp_path: Path) -> None:
    """A server with "remote" accepts parts of any partition of a data set, and normalises them."""
    path, parts = write(tmp_path, STATIC["noisy"]), tmp_path / "parts"
    split(path, parts)
    simulated = load(path).data.build(5)
    remote = Remote(shape=[1, 28, 28], outputs=10, normalise=True).server_part(5).plan
    for spec in (f"{path}#2", str(parts / "client-0002")):
        own = load_spec(spec).load(remote, 2)
        assert_same(own, simulated, 2)
        scaled = own.scaled(Scaling(mean=0.5, std=2.0))
        assert torch.equal(scaled.test(2, 1).x, (simulated.test(2, 1).x - 0.5) / 2)
        sums = own.moments()
        assert sums["count"] == simulated.sizes[2] * 28 * 28
    normalised = write(tmp_path, STATIC["normalised"])
    split(normalised, parts)
    for spec in (f"{normalised}#2", str(parts / "client-0002")):
        with pytest.raises(DataError, match=r"data\.normalise: the server already normalises inputs"):
            load_spec(spec).load(remote, 2)


def test_parts_of_a_table_keep_column_names(tmp_path: Path) -> None:
    rows = "\n".join(f"{i},{'dog' if i % 2 else 'cat'},{-i}" for i in range(20))
    (tmp_path / "t.csv").write_text(f"a,kind,b\n{rows}\n")
    path, parts = write(tmp_path, 'name = "table"\nfile = "t.csv"\ntarget = "kind"\nclients = 2'), tmp_path / "parts"
    split(path, parts)
    options: Any = load(path).data
    simulated = options.build(5)
    turned = Remote(shape=[2], outputs=2, columns=["b", "a"], classes=["dog", "cat"]).server_part(5).plan
    for spec in (f"{path}#1", str(parts / "client-0001")):
        assert_same(load_spec(spec).load(options.server_part(5).plan, 1), simulated, 1)
        x, y = load_spec(spec).load(turned, 1).train(1, 1)
        assert torch.equal(x, simulated.train(1, 1).x.flip(1))
        assert torch.equal(y, 1 - simulated.train(1, 1).y)
    # another file under the same settings: columns are reordered, unknown ones are refused
    plan = options.server_part(5).plan
    (tmp_path / "t.csv").write_text("b,a,kind\n" + "\n".join(f"{-i},{i},{'cd'[i % 2]}" for i in range(20)))
    with pytest.raises(DataError, match="unknown classes 'c', 'd'; expected 'cat', 'dog'"):
        load_spec(f"{path}#1").load(plan, 1)
    (tmp_path / "t.csv").write_text(f"a,kind,c\n{rows}\n")
    with pytest.raises(DataError, match="columns: missing 'b'; expected 'a', 'b', got 'a', 'c'"):
        load_spec(f"{path}#1").load(plan, 1)
