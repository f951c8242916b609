"""Slice folders, also from untrusted senders."""

import random
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

from fedge.core.errors import DataError, StorageError
from fedge.data.digits import Digits
from fedge.data.slices import MANIFEST, SAMPLES, read_manifest, read_slice, write_slice
from fedge.data.synthetic import Synthetic


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    clients = Digits(clients=100, validation=0.2).build(1)
    return write_slice(tmp_path, clients, 3, 1, {"name": "digits"})


def load(folder: Path) -> Any:
    return read_slice(folder, read_manifest(folder))


def change(folder: Path, **fields: Any) -> None:
    """Change fields of the manifest."""
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes()) | fields
    (folder / MANIFEST).write_bytes(msgspec.json.encode(manifest))


def replace(folder: Path, **tensors: torch.Tensor | None) -> None:
    """Change tensors and the checksum, as a malicious sender would."""
    changed = load_file(folder / SAMPLES) | tensors
    save_file({name: value for name, value in changed.items() if value is not None}, folder / SAMPLES)
    change(folder, sha256=sha256((folder / SAMPLES).read_bytes()).hexdigest())


def test_valid_folder(folder: Path) -> None:
    assert folder.name == "client-0003"
    assert sorted(path.name for path in folder.iterdir()) == [MANIFEST, SAMPLES]
    manifest = read_manifest(folder)
    assert (manifest.number, manifest.num_clients, manifest.seed) == (3, 100, 1)
    assert len(load(folder).train(0, 1)) == manifest.sizes["train"] > 0


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"number": -1}, "number"),
        ({"number": 100}, "number must be below num_clients, 100, got 100"),
        ({"number": "3"}, "number"),
        ({"format": 2}, "format"),
        ({"shape": []}, "shape"),
        ({"shape": [1, -28, 28]}, "shape"),
        ({"shape": [1, 28, 29]}, r"x_train: expected torch.float32 of shape \[\d+, 1, 28, 29\]"),
        ({"num_outputs": 0}, "num_outputs"),
        ({"num_outputs": 2}, "y_train: classes must be from 0 to 1, got"),
        ({"task": "guess"}, "task"),
        ({"task": "values"}, "y_train: expected torch.float32"),
        ({"words": True}, "x_train: expected torch.int64"),
        ({"classes": ["a"]}, "classes must name 10 outputs, got 1"),
        ({"sizes": {"train": 3}}, "sizes must have train, test, validation, got 'train'"),
        ({"sizes": {"train": 3, "test": 1, "validation": 1}}, "x_train: expected .* of shape"),
        ({"sizes": {"train": -3, "test": 1, "validation": 1}}, "sizes"),
        ({"sha256": "0" * 64}, "truncated or corrupt"),
        ({"settings": 3}, "settings"),
        ({"more": 3}, "more"),
        ({"\x1b[2J": 3}, r"\\u001b\[2J"),
    ],
    ids=str,
)
def test_fields_of_the_manifest(folder: Path, fields: dict[str, Any], problem: str) -> None:
    change(folder, **fields)
    with pytest.raises(DataError, match=problem) as raised:
        load(folder)
    assert str(folder) in str(raised.value)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda old: {"x_train": old["x_train"] * torch.nan}, "x_train: expected finite numbers, got NaN"),
        (lambda old: {"x_test": old["x_test"].double()}, "x_test: expected torch.float32"),
        (lambda old: {"x_validation": old["x_validation"][1:]}, "x_validation: expected"),
        (lambda old: {"y_train": old["y_train"] - 10}, "y_train: classes must be from 0 to 9"),
        (lambda old: {"y_train": old["y_train"] * 2**60}, "y_train: classes must be from 0 to 9"),
        (lambda old: {"y_test": None}, "expected the tensors x_test, .* got"),
        (lambda old: {"\x1b[31m": old["y_test"]}, r"got '\\x1b\[31m'"),
    ],
)
def test_tensors(folder: Path, make: Callable[[dict[str, torch.Tensor]], dict[str, Any]], problem: str) -> None:
    replace(folder, **make(load_file(folder / SAMPLES)))
    with pytest.raises(DataError, match=problem):
        load(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b"{}", b" " * (1 << 24) + b"{}"])
def test_invalid_manifests(folder: Path, content: bytes) -> None:
    (folder / MANIFEST).write_bytes(content)
    with pytest.raises(DataError, match=MANIFEST):
        read_manifest(folder)


@pytest.mark.parametrize(
    "content", [b"", b"\x00" * 8, b"\xff" * 16, (1 << 40).to_bytes(8, "little") + b"{}", b"\x02" + b"\0" * 7 + b"{}"]
)
def test_invalid_sample_files(folder: Path, content: bytes) -> None:
    (folder / SAMPLES).write_bytes(content)
    with pytest.raises(DataError, match="truncated or corrupt"):
        load(folder)
    change(folder, sha256=sha256(content).hexdigest())
    with pytest.raises(DataError, match=SAMPLES):
        load(folder)


def test_missing_files(folder: Path) -> None:
    (folder / SAMPLES).unlink()
    with pytest.raises(DataError, match=r"samples\.safetensors cannot be read"):
        load(folder)
    (folder / MANIFEST).unlink()
    with pytest.raises(DataError, match=r"manifest\.json cannot be read"):
        load(folder)


def test_mutated_bytes_are_rejected_or_harmless(folder: Path) -> None:
    """Any change raises a DataError or has no effect."""
    rng = random.Random(1)
    for name in (MANIFEST, SAMPLES):
        whole = (folder / name).read_bytes()
        refused = 0
        for _ in range(300):
            changed = bytearray(whole[: rng.choice([len(whole), rng.randrange(len(whole))])])
            for _ in range(rng.randrange(1, 5)):
                if changed:
                    changed[rng.randrange(min(len(changed), 2000))] = rng.randrange(256)
            (folder / name).write_bytes(changed)
            try:
                load(folder)
            except DataError:
                refused += 1
        (folder / name).write_bytes(whole)
        assert refused > 200
    load(folder)


def test_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="client-0000 cannot be written"):
        write_slice(tmp_path / "file", Synthetic(clients=2).build(1), 0, 1, {})


def test_writing_again_replaces_the_folder(tmp_path: Path) -> None:
    for seed in (1, 2):
        folder = write_slice(tmp_path, Synthetic(clients=2).build(seed), 0, seed, {})
    (tmp_path / "client-0000.part").mkdir()
    (tmp_path / "client-0000.part" / "left over").touch()
    write_slice(tmp_path, Synthetic(clients=2).build(2), 0, 2, {})
    assert [path.name for path in tmp_path.iterdir()] == ["client-0000"]
    assert torch.equal(load(folder).train(0, 1).x, Synthetic(clients=2).build(2).train(0, 1).x)
