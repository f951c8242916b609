"""A client's part of a divided data set as a folder: `manifest.json` and `samples.safetensors`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import torch
from msgspec import Meta, Struct
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from fedge.core.errors import DataError, StorageError
from fedge.core.printable import printable
from fedge.core.registered import Task
from fedge.core.storage import hash_file
from fedge.data.clients import Clients, Samples
from fedge.data.data_plan import Outputs, Shape, Size
from fedge.data.own_data import FixedClient

MANIFEST, SAMPLES = "manifest.json", "samples.safetensors"
PARTS = ("train", "test", "validation")
_MAX_MANIFEST_BYTES = 1 << 24
_MAX_NAMES = 100_000


class Manifest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Description of a slice and of the data set that it belongs to."""

    format: Annotated[int, Meta(ge=1, le=1)] = 1
    number: Size
    num_clients: Annotated[int, Meta(ge=1)]
    seed: Size
    settings: dict[str, Any]  # of the data set, without paths
    shape: Shape
    num_outputs: Outputs
    task: Task
    noisy: bool
    words: bool
    classes: Annotated[tuple[str, ...], Meta(max_length=_MAX_NAMES)] = ()
    columns: Annotated[tuple[str, ...], Meta(max_length=_MAX_NAMES)] = ()
    sizes: dict[str, Size]
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]  # of the samples' file


def folder_name(number: int) -> str:
    """Return the name of a client's folder."""
    return f"client-{number:04}"


def write_slice(target: Path, clients: Clients, number: int, seed: int, settings: dict[str, Any]) -> Path:
    """Write the samples of a client whose data never changes to a folder in `target`, and return the folder."""
    parts = (clients.train(number, 1), clients.test(number, 1), clients.validation(number, 1))
    tensors: dict[str, Tensor] = {}
    for part, samples in zip(PARTS, parts, strict=True):
        tensors |= {f"x_{part}": samples.x.contiguous(), f"y_{part}": samples.y.contiguous()}
    folder = target / folder_name(number)
    partial = folder.with_name(f"{folder.name}.part")  # an incomplete folder must not look complete
    with _writing(folder):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        save_file(tensors, partial / SAMPLES)
        manifest = Manifest(
            number=number,
            num_clients=len(clients.sizes),
            seed=seed,
            settings=settings,
            shape=clients.shape,
            num_outputs=clients.num_outputs,
            task=clients.task,
            noisy=number in clients.noisy,
            words=not parts[0].x.is_floating_point(),
            classes=getattr(clients, "classes", ()),
            columns=getattr(clients, "features", ()),
            sizes={part: len(samples) for part, samples in zip(PARTS, parts, strict=True)},
            sha256=hash_file(partial / SAMPLES),
        )
        (partial / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
        shutil.rmtree(folder, ignore_errors=True)
        partial.replace(folder)
    return folder


def read_slice(folder: Path, manifest: Manifest) -> FixedClient:
    """Return the samples in a folder; a DataError that names file and tensor if they do not match `manifest`."""
    path = folder / SAMPLES
    try:
        if (found := hash_file(path)) != manifest.sha256:
            raise DataError(f"{path} is truncated or corrupt: expected SHA-256 {manifest.sha256}, got {found}")
        tensors = load_file(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}; ask for the folder again") from error
    except SafetensorError as error:
        raise DataError(f"{path}: expected a safetensors file: {error}") from error
    expected = {f"{side}_{part}" for part in PARTS for side in "xy"}
    if set(tensors) != expected:
        raise DataError(f"{path}: expected the tensors {', '.join(sorted(expected))}, got {_few(tensors)}")
    train, test, validation = (_samples(tensors, part, manifest, path) for part in PARTS)
    return FixedClient(manifest.shape, manifest.num_outputs, manifest.task, (train, test, validation), manifest.noisy)


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest in a slice's folder; a DataError that names file and field if it is invalid."""
    path = folder / MANIFEST
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}; ask for the folder again") from error
    if len(content) > _MAX_MANIFEST_BYTES:
        raise DataError(f"{path}: expected at most {_MAX_MANIFEST_BYTES} bytes, got more")
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{path}: {printable(str(error)[:300])}; expected a manifest written by `fedge data split`"
        ) from None
    if manifest.number >= manifest.num_clients:
        raise DataError(f"{path}: number must be below num_clients, {manifest.num_clients}, got {manifest.number}")
    if set(manifest.sizes) != set(PARTS):
        raise DataError(f"{path}: sizes must have {', '.join(PARTS)}, got {_few(manifest.sizes)}")
    if manifest.classes and len(manifest.classes) != manifest.num_outputs:
        raise DataError(f"{path}: classes must name {manifest.num_outputs} outputs, got {len(manifest.classes)} names")
    return manifest


def _samples(tensors: dict[str, Tensor], part: str, manifest: Manifest, path: Path) -> Samples:
    (x, y), count = (tensors[f"{side}_{part}"] for side in "xy"), manifest.sizes[part]
    number = torch.int64 if manifest.words else torch.float32
    _check_form(x, f"{path}: x_{part}", (count, *manifest.shape), number)
    if manifest.words and count and x.min() < 0:
        raise DataError(f"{path}: x_{part}: indexes of words must be at least 0, got {int(x.min())}")
    if manifest.task != "classes":
        _check_form(y, f"{path}: y_{part}", (count, manifest.num_outputs), torch.float32)
        if manifest.task == "labels" and not torch.isin(y, torch.tensor([0.0, 1.0])).all():
            raise DataError(f"{path}: y_{part}: labels must be 0 or 1, got other values")
        return Samples(x, y)
    _check_form(y, f"{path}: y_{part}", (count,), torch.int64)
    if count and not 0 <= int(y.min()) <= int(y.max()) < manifest.num_outputs:
        found = f"{int(y.min())} to {int(y.max())}"
        raise DataError(f"{path}: y_{part}: classes must be from 0 to {manifest.num_outputs - 1}, got {found}")
    return Samples(x, y)


def _check_form(found: Tensor, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if found.shape != shape or found.dtype != dtype:
        raise DataError(f"{name}: expected {dtype} of shape {list(shape)}, got {found.dtype} of {list(found.shape)}")
    if found.is_floating_point() and not found.isfinite().all():
        raise DataError(f"{name}: expected finite numbers, got NaN or infinity")


def _few(names: dict[str, Any]) -> str:
    shown = sorted(names)[:8]
    return ", ".join(map(ascii, shown)) or "none"


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise StorageError(f"{folder} cannot be written: {error}; free space, or choose another folder") from error
