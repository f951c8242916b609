"""CIFAR-10 and CIFAR-100 from their canonical python files."""

from __future__ import annotations

import io
import pickle
from typing import Any, ClassVar

import numpy as np
import torch

from fedge.core.errors import DataError
from fedge.data.divided_dataset import Divided
from fedge.data.files import Collection, Dir, Source, data_dir, read_files
from fedge.data.whole import SamplePool, Whole, without_samples

_URL = "https://www.cs.toronto.edu/~kriz"


def _files(archive: str, checksums: dict[str, str]) -> tuple[Source, ...]:
    how = f"mkdir -p {{folder}} && curl -L {_URL}/{archive} | tar xz --strip-components 1 -C {{folder}}"
    return tuple(Source({name: checksum}, how) for name, checksum in checksums.items())


CIFAR10 = Collection(
    ("cifar-10-batches-py", "cifar-10/cifar-10-batches-py", "cifar-10", "cifar10", "."),
    _files(
        "cifar-10-python.tar.gz",
        {
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
        },
    ),
)
CIFAR100 = Collection(
    ("cifar-100-python", "cifar-100/cifar-100-python", "cifar-100", "cifar100", "."),
    _files(
        "cifar-100-python.tar.gz",
        {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
    ),
)


class Cifar10(Divided, tag="cifar10"):
    """50,000 training and 10,000 test images of objects in 10 classes, 3x32x32, values from 0 to 1."""

    sources: ClassVar[tuple[Collection, ...]] = (CIFAR10,)

    dir: Dir = None

    def whole(self, train: bool = True) -> Whole:
        *batches, last = _read(self.sources[0], self.dir, "cifar10", train)
        test = _pool([last], "labels")
        return Whole(
            _pool(batches, "labels") if batches else without_samples(test), test, num_outputs=10, full_scale=255
        )


class Cifar100(Divided, tag="cifar100"):
    """50,000 training and 10,000 test images of objects in 100 classes, 3x32x32, values from 0 to 1.

    The classes come in 20 groups of five, which `pachinko` uses.
    """

    sources: ClassVar[tuple[Collection, ...]] = (CIFAR100,)

    dir: Dir = None

    def whole(self, train: bool = True) -> Whole:
        batches = _read(self.sources[0], self.dir, "cifar100", train)
        *pools, test = (_pool([batch], "fine_labels") for batch in batches)
        coarse = [np.array(_entry(batch, "coarse_labels"), np.int64) for batch in batches]
        return Whole(
            pools[0] if pools else without_samples(test),
            test,
            num_outputs=100,
            full_scale=255,
            columns={"coarse": (coarse[0] if pools else coarse[-1][:0], coarse[-1])},
        )


def _read(files: Collection, dir: str | None, name: str, train: bool) -> list[dict[str, Any]]:
    if not train:
        files = files._replace(files=files.files[-1:])
    return [_unpickle(content) for content in read_files(files, data_dir(dir), name)]


def _pool(batches: list[dict[str, Any]], labels: str) -> SamplePool:
    """Rows of 1,024 red, green and blue bytes each."""
    x = np.concatenate([_entry(batch, "data") for batch in batches]).reshape(-1, 3, 32, 32)
    y = np.concatenate([_entry(batch, labels) for batch in batches]).astype(np.int64)
    return SamplePool(torch.from_numpy(x), torch.from_numpy(y))


def _entry(batch: dict[str, Any], name: str) -> Any:
    if name not in batch:
        raise DataError(f"expected a CIFAR batch with {name!r}, got one with {sorted(map(str, batch))}; get it again")
    return batch[name]


class _Arrays(pickle.Unpickler):
    """Reads arrays and plain values; a pickle that asks for anything else is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.empty(0).__reduce__()[0]  # the same function, whatever this numpy calls its module
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _unpickle(content: bytes) -> dict[str, Any]:
    try:
        batch = _Arrays(io.BytesIO(content), encoding="latin1").load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, IndexError, KeyError) as error:
        raise DataError(f"expected a CIFAR batch, a pickled dictionary of arrays; {error}; get it again") from error
    if not isinstance(batch, dict):
        raise DataError(f"expected a CIFAR batch, a pickled dictionary, got {type(batch).__name__}; get it again")
    return batch
