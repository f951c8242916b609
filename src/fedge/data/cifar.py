"""CIFAR-10 and CIFAR-100 from their python or binary files, with the samples in any order."""

from __future__ import annotations

import io
import pickle
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch

from fedge.core.errors import DataError
from fedge.data.divided_dataset import Divided
from fedge.data.files import AnyOrder, Collection, Dir, Source, data_dir, is_published, read_source, record_digests
from fedge.data.whole import SamplePool, Whole, without_samples

_URL = "https://www.cs.toronto.edu/~kriz"
_PIXELS = 3072  # bytes of an image: 1,024 each for red, green and blue
_PICKLED = b"\x80"  # first byte of a pickle; a record begins with a label, which is smaller
_OBJECTS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_FINE_OBJECTS = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl", "boy",
    "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee", "clock",
    "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish",
    "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion",
    "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom", "oak_tree", "orange",
    "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate", "poppy", "porcupine",
    "possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk",
    "skyscraper", "snail", "snake", "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank",
    "telephone", "television", "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale",
    "willow_tree", "wolf", "woman", "worm",
)  # fmt: skip
_LABELS = {"cifar10": ("labels",), "cifar100": ("coarse_labels", "fine_labels")}


def _files(name: str, archive: str, table: str) -> tuple[Source, ...]:
    """Return the files in a table: python version with its MD5, or binary version, both with a digest for any order."""
    how = f"mkdir -p {{folder}} && curl -L {_URL}/{archive} | tar xz --strip-components 1 -C {{folder}}"
    return tuple(
        Source({file: checksum, f"{file}.bin": None}, how, AnyOrder(digest, partial(_records, name)))
        for file, checksum, digest in map(str.split, table.strip().splitlines())
    )


def _records(name: str, content: bytes) -> np.ndarray:
    """Return rows of label bytes and pixels, as in the binary version."""
    labels = _LABELS[name]
    if content.startswith(_PICKLED):
        batch = _unpickle(content)
        columns = [_entry(batch, label) for label in labels]
        try:
            bytes_of = [np.asarray(column, np.uint8)[:, None] for column in columns]
            return np.concatenate([*bytes_of, np.asarray(_entry(batch, "data"), np.uint8)], axis=1)
        except (ValueError, TypeError, OverflowError, IndexError) as error:
            raise DataError(f"expected a CIFAR batch with one row per label: {error}; get it again") from error
    size = len(labels) + _PIXELS
    if not content or len(content) % size:
        raise DataError(
            f"expected a CIFAR batch, pickled or in records of {size} bytes, got {len(content)} bytes; get it again"
        )
    return np.frombuffer(content, np.uint8).reshape(-1, size)


_CIFAR10 = """
    data_batch_1 c99cafc152244af753f735de768cd75f 0efef7837b228bb74c943a59dd10c52bda8f0160643a850203f95ca68480b095
    data_batch_2 d4bba439e000b95fd0a9bffe97cbabec 6f8061e7522c9cfee0c37f812237187d36269c805577ae091d3623b2f895d150
    data_batch_3 54ebc095f3ab1f0389bbae665268c751 396e9019596f51c48b6f9c21ba995dbc557f47c2679ed742a5750930e29e609e
    data_batch_4 634d18415352ddfa80567beed471001a 0f1060c63175cd67213130fd9fc90f821bc58cbfd6de3651ab76fadf1a886b63
    data_batch_5 482c414d41f54cd18b22e5b47cb7c3cb 0e4153d0f0bdef0371e3ab886103f35ce51735cce16c394eb34554f2e75d38cf
    test_batch 40351d587109b95175f43aff81a1287e 325704b01eb92e1e2a6215ae6a916bb7db7de054af0c496be1c7be2e0fcfbf5f
"""
_CIFAR100 = """
    train 16019d7e3df5f24257cddd939b257f8d 7077d87fc363f92dbf1245f13ba80561d7b33a96c79ad57168d49dc172aaa92b
    test f0ef6b0ae62326f3e7ffdfab6717acfc 96adb3db8da7632dbb350559a17b9f585fab5b17675de5fc8f6761384196b294
"""
CIFAR10 = Collection(
    ("cifar-10-batches-py", "cifar-10-batches-bin", "cifar-10/cifar-10-batches-py", "cifar-10", "cifar10", "."),
    _files("cifar10", "cifar-10-python.tar.gz", _CIFAR10),
)
CIFAR100 = Collection(
    ("cifar-100-python", "cifar-100-binary", "cifar-100/cifar-100-python", "cifar-100", "cifar100", "."),
    _files("cifar100", "cifar-100-python.tar.gz", _CIFAR100),
)


class Cifar10(Divided, tag="cifar10"):
    """50,000 training and 10,000 test images of objects in 10 classes, 3x32x32, values from 0 to 1."""

    sources: ClassVar[tuple[Collection, ...]] = (CIFAR10,)

    dir: Dir = None

    def whole(self, train: bool = True) -> Whole:
        *batches, last = _read(self.sources[0], self.dir, "cifar10", train)
        test = _pool([last])
        train_pool = _pool(batches) if batches else without_samples(test)
        return Whole(train_pool, test, num_outputs=10, full_scale=255, described=_OBJECTS)


class Cifar100(Divided, tag="cifar100"):
    """50,000 training and 10,000 test images of objects in 100 classes, 3x32x32, values from 0 to 1.

    The classes come in 20 groups of five, which `pachinko` uses.
    """

    sources: ClassVar[tuple[Collection, ...]] = (CIFAR100,)

    dir: Dir = None

    def whole(self, train: bool = True) -> Whole:
        batches = _read(self.sources[0], self.dir, "cifar100", train)
        *pools, test = (_pool([batch]) for batch in batches)
        coarse = [batch[:, 0].astype(np.int64) for batch in batches]
        return Whole(
            pools[0] if pools else without_samples(test),
            test,
            num_outputs=100,
            full_scale=255,
            described=_FINE_OBJECTS,
            columns={"coarse": (coarse[0] if pools else coarse[-1][:0], coarse[-1])},
        )


def _read(files: Collection, dir: str | None, name: str, train: bool) -> list[np.ndarray]:
    """Return the records of each file; if they are not as published, sorted by SHA-256 so that the order is unique."""
    if not train:
        files = files._replace(files=files.files[-1:])
    found = []
    for source, (path, *_) in zip(files.files, files.find(data_dir(dir), name), strict=True):
        content = read_source(source, path)
        records = _records(name, content)
        if not (path.name == source.name and is_published(source, path, content)):
            digests = record_digests(records)
            records = records[sorted(range(len(records)), key=digests.__getitem__)]
        found.append(records)
    return found


def _pool(batches: list[np.ndarray]) -> SamplePool:
    """Return samples of these records; the last label is the class."""
    records = np.concatenate(batches)
    x = np.ascontiguousarray(records[:, -_PIXELS:]).reshape(-1, 3, 32, 32)
    return SamplePool(torch.from_numpy(x), torch.from_numpy(records[:, -_PIXELS - 1].astype(np.int64)))


def _entry(batch: dict[str, Any], name: str) -> Any:
    if name not in batch:
        raise DataError(f"expected a CIFAR batch with {name!r}, got one with {sorted(map(str, batch))}; get it again")
    return batch[name]


class _Arrays(pickle.Unpickler):
    """Unpickles arrays and plain values only; raises an UnpicklingError for anything else."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.empty(0).__reduce__()[0]  # the same function, whatever its module is called in this numpy
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        raise pickle.UnpicklingError(f"it refers to {module}.{name}")


def _unpickle(content: bytes) -> dict[str, Any]:
    try:
        batch = _Arrays(io.BytesIO(content), encoding="latin1").load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, IndexError, KeyError) as error:
        raise DataError(f"expected a CIFAR batch, a pickled dictionary of arrays; {error}; get it again") from error
    if not isinstance(batch, dict):
        raise DataError(f"expected a CIFAR batch, a pickled dictionary, got {type(batch).__name__}; get it again")
    return batch
