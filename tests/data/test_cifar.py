import pickle
import subprocess
import sys
from hashlib import md5, sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedge.core.errors import DataError
from fedge.data.cifar import CIFAR10, CIFAR100, Cifar10, Cifar100
from fedge.data.files import AnyOrder, Collection, Source, data_dir
from fedge.data.partition import Pachinko


def batch(first: int, count: int, **labels: list[int]) -> bytes:
    """Return a batch in which all pixels of image i are i, except for a blue channel of zeros."""
    data = np.repeat(np.arange(first, first + count, dtype=np.uint8)[:, None], 3072, axis=1)
    data[:, 2048:] = 0
    return pickle.dumps({"data": data, "filenames": ["x.png"] * count, **labels}, protocol=3)


def publish(collection: Collection, folder: Path, contents: dict[str, bytes]) -> Collection:
    """Write files, and register their checksums as the published ones."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    files = [Source({s.name: md5(contents[s.name]).hexdigest()}, s.how) for s in collection.files]
    return collection._replace(files=tuple(files))


def small(folder: Path) -> Collection:
    names = [source.name for source in CIFAR10.files]
    return publish(CIFAR10, folder, {name: batch(4 * i, 4, labels=[i, 1, 2, 3]) for i, name in enumerate(names)})


@pytest.mark.parametrize("folder", ["cifar-10-batches-py", "cifar-10/cifar-10-batches-py", "cifar-10", "."])
def test_batches_are_joined_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.setattr(Cifar10, "sources", (small(tmp_path / folder),))
    clients = Cifar10(dir=str(tmp_path), clients=1).build(seed=1)
    assert (clients.shape, clients.num_outputs) == ((3, 32, 32), 10)
    x, y = clients.train(0, 1)
    assert y.tolist() == [0, 1, 2, 3, 1, 1, 2, 3, 2, 1, 2, 3, 3, 1, 2, 3, 4, 1, 2, 3]
    assert torch.equal(x[:, 0, 5, 7], torch.arange(20) / 255)
    assert torch.equal(x[:, 1, 0, 0], torch.arange(20) / 255)
    assert float(x[:, 2].abs().max()) == 0
    assert torch.equal(clients.pooled_test().x[:, 0, 0, 0], torch.arange(20, 24) / 255)


def test_server_needs_only_the_test_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cifar10, "sources", (small(tmp_path),))
    contents = {name: batch(4, 8, fine_labels=[1] * 8, coarse_labels=[2] * 8) for name in ("train", "test")}
    monkeypatch.setattr(Cifar100, "sources", (publish(CIFAR100, tmp_path, contents),))
    made = [kind(dir=str(tmp_path), clients=2) for kind in (Cifar10, Cifar100)]
    simulated = [options.build(1).pooled_test() for options in made]
    for name in ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "train"):
        (tmp_path / name).unlink()
    for options, expected in zip(made, simulated, strict=True):
        part = options.server_part(1)
        assert part.shape == (3, 32, 32)
        assert part.test is not None
        assert all(torch.equal(a, b) for a, b in zip(part.test, expected, strict=True))


def test_wrong_batch_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cifar10, "sources", (small(tmp_path),))
    (tmp_path / "data_batch_3").write_bytes(b"short")
    with pytest.raises(DataError, match=r"data_batch_3 is truncated or corrupt: expected MD5"):
        Cifar10(dir=str(tmp_path)).build(seed=1)


def test_error_about_missing_files_has_a_command(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        Cifar10(dir=str(tmp_path)).build(seed=1)
    said = str(caught.value)
    assert "data.name: cifar10 needs data_batch_1, data_batch_2" in said
    assert said.count("curl -L https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz") == 1


def test_coarse_labels_are_a_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fine, coarse = [0, 1, 2, 3] * 5, [0, 0, 1, 1] * 5
    contents = {name: batch(0, 20, fine_labels=fine, coarse_labels=coarse) for name in ("train", "test")}
    monkeypatch.setattr(Cifar100, "sources", (publish(CIFAR100, tmp_path / "cifar-100-python", contents),))
    clients = Cifar100(dir=str(tmp_path), clients=2, partition=Pachinko(alpha=1e-6)).build(seed=1)
    assert clients.num_outputs == 100
    # Ten samples per client and per coarse class: a client that draws a class gets all of it.
    assert [sorted(set(clients.labels(client, 1).tolist())) for client in range(2)] in (
        [[0, 1], [2, 3]],
        [[2, 3], [0, 1]],
    )


def test_class_names_are_shown_but_never_matched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's file has numbered classes: names in the plan would cause its rejection."""
    contents = {name: batch(0, 4, fine_labels=[0, 1, 2, 3], coarse_labels=[0] * 4) for name in ("train", "test")}
    monkeypatch.setattr(Cifar10, "sources", (small(tmp_path),))
    monkeypatch.setattr(Cifar100, "sources", (publish(CIFAR100, tmp_path / "cifar-100-python", contents),))
    for kind, some in ((Cifar10, {3: "cat", 9: "truck"}), (Cifar100, {0: "apple", 48: "motorcycle", 99: "worm"})):
        options = kind(dir=str(tmp_path), clients=2)  # type: ignore[operator]
        clients = options.build(seed=1)
        assert len(clients.shown_classes) == clients.num_outputs
        assert {label: clients.shown_classes[label] for label in some} == some
        assert (clients.classes, options.server_part(1).plan.classes) == ((), ())


def records(rows: list[list[int]]) -> bytes:
    """Return records of the binary version: labels, then an image with equal pixels."""
    return b"".join(bytes(labels) + bytes([value]) * 3072 for *labels, value in rows)


def in_any_order(name: str, rows: list[list[int]]) -> tuple[Source, ...]:
    """Return a digest derived by hand: SHA-256 of the sorted SHA-256 of each record."""
    digests = sorted(sha256(records([row])).digest() for row in rows)
    order = AnyOrder(sha256(b"".join(digests)).hexdigest(), CIFAR100.files[0].any_order.records)
    return (Source({name: "0" * 32, f"{name}.bin": None}, "", order),)


ROWS = [[0, 1, 10], [0, 2, 20], [1, 3, 30], [0, 2, 20]]  # coarse, fine, pixels; one is duplicated


def test_samples_are_accepted_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = (*in_any_order("train", ROWS), *in_any_order("test", ROWS[:1]))
    monkeypatch.setattr(Cifar100, "sources", (CIFAR100._replace(files=files),))
    (tmp_path / "test.bin").write_bytes(records(ROWS[:1]))
    found = []
    for order in ([0, 1, 2, 3], [3, 2, 0, 1]):
        (tmp_path / "train.bin").write_bytes(records([ROWS[row] for row in order]))
        found.append(Cifar100(dir=str(tmp_path)).whole())
        assert [finding.status for finding in Cifar100.sources[0].check(tmp_path)] == ["ok", "ok"]
    first, second = found
    assert torch.equal(first.train.x[torch.arange(4)], second.train.x[torch.arange(4)])
    pairs = zip(first.columns["coarse"][0], first.train.y, first.train.x[:, 0, 0, 0], strict=True)
    assert sorted([int(a), int(b), int(c)] for a, b, c in pairs) == sorted(ROWS)


@pytest.mark.parametrize(
    "rows",
    [
        [[0, 1, 10], [0, 2, 20], [1, 3, 30]],  # the duplicate is missing
        [[0, 1, 10], [0, 2, 20], [1, 3, 30], [0, 1, 10]],  # another one is duplicated
        [[0, 1, 10], [0, 2, 20], [1, 4, 30], [0, 2, 20]],  # another class
        [[0, 1, 10], [0, 2, 20], [1, 3, 31], [0, 2, 20]],  # other pixels
    ],
)
def test_different_samples_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[list[int]]) -> None:
    files = (*in_any_order("train", ROWS), *in_any_order("test", ROWS[:1]))
    monkeypatch.setattr(Cifar100, "sources", (CIFAR100._replace(files=files),))
    (tmp_path / "test.bin").write_bytes(records(ROWS[:1]))
    (tmp_path / "train.bin").write_bytes(records(rows))
    with pytest.raises(DataError, match=r"train\.bin is truncated or corrupt: expected the published file, or its"):
        Cifar100(dir=str(tmp_path)).whole()
    (tmp_path / "train.bin").write_bytes(b"\1" * 100)
    with pytest.raises(DataError, match=r"in records of 3074 bytes, got 100 bytes"):
        Cifar100(dir=str(tmp_path)).whole()


class Evil:
    def __reduce__(self) -> Any:
        return print, ("gotcha",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps({"data": Evil()}), "it refers to builtins.print"),
        (pickle.dumps([1]), "a pickled dictionary, got list"),
        (pickle.dumps({"labels": [1]}), "expected a CIFAR batch with 'data', got one with"),
        (b"\x80 but no pickle", "a pickled dictionary of arrays"),
        (b"neither", "pickled or in records of 3073 bytes, got 7 bytes"),
    ],
)
def test_only_arrays_are_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], content: bytes, message: str
) -> None:
    contents = dict.fromkeys((source.name for source in CIFAR10.files), content)
    monkeypatch.setattr(Cifar10, "sources", (publish(CIFAR10, tmp_path, contents),))
    with pytest.raises(DataError, match=message):
        Cifar10(dir=str(tmp_path)).build(seed=1)
    assert capsys.readouterr().out == ""


@pytest.mark.full
def test_published_batches(tmp_path: Path) -> None:
    packed = data_dir(None) / "cifar-10"
    if not (packed / "unpack_cifar10.py").is_file():
        pytest.skip("needs CIFAR-10 in its packed form: set FEDGE_DATA")
    subprocess.run([sys.executable, packed / "unpack_cifar10.py", packed / "packed", tmp_path], check=True)
    for source in CIFAR10.files:
        content = (tmp_path / source.name).read_bytes()
        assert source.any_order is not None
        assert source.any_order.matches(content)
        assert source.any_order.matches(source.any_order.records(content)[::-1].tobytes())  # the binary version
    clients = Cifar10(dir=str(tmp_path)).build(seed=1)
    labels = torch.cat([clients.labels(client, 1) for client in range(100)])
    assert labels.bincount().tolist() == [5000] * 10
    assert clients.pooled_test().y.bincount().tolist() == [1000] * 10
    means = torch.stack([clients.train(client, 1).x.mean((0, 2, 3)) for client in range(100)]).mean(0)
    assert means.tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=5e-5)


@pytest.mark.full
def test_sorted_binary_records(tmp_path: Path) -> None:
    packed = data_dir(None) / "cifar-100"
    if not (packed / "unpack_cifar100.py").is_file():
        pytest.skip("needs CIFAR-100 in its packed form: set FEDGE_DATA")
    subprocess.run([sys.executable, packed / "unpack_cifar100.py", packed / "packed", tmp_path], check=True)
    assert [finding.status for finding in CIFAR100.check(tmp_path)] == ["ok", "ok"]
    whole = Cifar100(dir=str(tmp_path)).whole()
    assert whole.train.y.bincount().tolist() == [500] * 100
    assert whole.test.y.bincount().tolist() == [100] * 100
    assert np.bincount(whole.columns["coarse"][0]).tolist() == [2500] * 20
    means = whole.train.x[torch.arange(50_000)].float().mean((0, 2, 3)) / 255
    assert means.tolist() == pytest.approx([0.5071, 0.4865, 0.4409], abs=5e-5)
    content = bytearray((tmp_path / "test.bin").read_bytes())
    content[5000] ^= 1
    (tmp_path / "test.bin").write_bytes(content)
    assert [finding.status for finding in CIFAR100.check(tmp_path)] == ["ok", "wrong"]
