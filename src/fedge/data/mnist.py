"""MNIST from its four canonical files."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor

from fedge.core.errors import DataError
from fedge.data.clients import Samples
from fedge.data.divided import Divided, DividedClients, Whole
from fedge.data.files import data_dir, find_file, read_checked

SOURCE = "https://ossci-datasets.s3.amazonaws.com/mnist"

CHECKSUMS = {
    "train-images-idx3-ubyte": {
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    },
    "train-labels-idx1-ubyte": {
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    },
    "t10k-images-idx3-ubyte": {
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    },
    "t10k-labels-idx1-ubyte": {
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
}
"""MD5 of each file, as published and unzipped."""


class Mnist(Divided, tag="mnist"):
    """60,000 training and 10,000 test images of digits in 10 classes, 1x28x28, values from 0 to 1."""

    dir: Annotated[
        str | None,
        Meta(description="Where data files are, as such or in mnist/; else FEDGE_DATA, else the user's cache."),
    ] = None

    def build(self, seed: int) -> DividedClients:
        return self.divide(_load(data_dir(self.dir)), seed)


def _load(root: Path) -> Whole:
    folders = [root / "mnist", root]
    found = {file: find_file(folders, forms) for file, forms in CHECKSUMS.items()}
    missing = [f"{file}.gz" for file, path in found.items() if path is None]
    if missing:
        raise DataError(
            f"data.name: mnist needs {', '.join(missing)}, looked for in {folders[0]} and {folders[1]}; "
            f"get each with `curl -L --create-dirs -o {folders[0]}/NAME {SOURCE}/NAME`, "
            "or set data.dir or the environment variable FEDGE_DATA to the directory that has them"
        )
    content = {file: _unzipped(path, CHECKSUMS[file][path.name]) for file, path in found.items() if path}
    train = Samples(_images(content["train-images-idx3-ubyte"]), _labels(content["train-labels-idx1-ubyte"]))
    test = Samples(_images(content["t10k-images-idx3-ubyte"]), _labels(content["t10k-labels-idx1-ubyte"]))
    return Whole(train, test, num_outputs=10, full_scale=255)


def _unzipped(path: Path, checksum: str) -> bytes:
    content = read_checked(path, checksum)
    return gzip.decompress(content) if path.suffix == ".gz" else content


def _images(content: bytes) -> Tensor:
    """Magic, count, height and width of four bytes each, then the pixels."""
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=16).copy()).view(-1, 1, 28, 28)


def _labels(content: bytes) -> Tensor:
    """Magic and count of four bytes each, then the labels."""
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=8).astype(np.int64))
