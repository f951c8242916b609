"""MNIST and Fashion-MNIST from their four canonical files, and MNIST by writer."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
import torch
from msgspec import Meta

from fedge.core.errors import DataError
from fedge.data.apportionment import hold_out
from fedge.data.data_plan import Share
from fedge.data.divided_dataset import Divided
from fedge.data.download import Download
from fedge.data.files import Collection, Dir, Source, curl, data_dir, read_files
from fedge.data.idx import read_idx
from fedge.data.partition import Natural
from fedge.data.whole import SamplePool, Whole, without_samples

_CLOTHES = ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
_MAX_BYTES = 1 << 25  # limit for a zipped file; the largest has 26 million bytes
_WRITER = 2  # column of the extended labels


def _sources(url: str, table: str) -> tuple[Source, ...]:
    """Return the sources in a table: name, MD5 of the zipped and of the plain file, SHA-256 of the unzipped content.

    Debian's files share the SHA-256; `-` stands for an unknown MD5.
    """
    found = []
    for name, zipped, plain, sha256 in zip(*[iter(table.split())] * 4, strict=True):
        address = f"{url}/{name}.gz"
        forms = {f"{name}.gz": zipped, name: None if plain == "-" else plain}
        found.append(Source(forms, curl(address), download=Download(address, sha256, _MAX_BYTES)))
    return tuple(found)


_MNIST = """
    train-images-idx3-ubyte f68b3c2dcbeaaa9fbdd348bbdeb94873 6bbc9ace898e44ae57da46a324031adb
    ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db
    train-labels-idx1-ubyte d53e105ee54ea40749a09fcbcd1e9432 a25bea736e30d166cdddb491f175f624
    65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5
    t10k-images-idx3-ubyte 9fb629c4189551a2d022fa330f9573f3 2646ac647ad5339dbf082846283269ea
    0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7
    t10k-labels-idx1-ubyte ec29112dd5afa0611ce80d1b7f02629c 27ae3e4e09519cfbb04c329615203637
    ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2
"""
_WRITERS = """
    qmnist-train-labels-idx2-int 0058f8dd561b90ffdd0f734c6a30e5e4 -
    bb1b6e1ec7b04fd5696f1ed50b5f58f8ef195118edd5c93c81783df9740b8ac5
    qmnist-test-labels-idx2-int 5b5b05890a5e13444e108efe57b788aa -
    92d0ccb8c25f9c6534270fb4be7e1d24a1c6d315edfc8a638bfbd31c70f362dd
"""
_FASHION = """
    train-images-idx3-ubyte 8d4fb7e6c68d591d4c3dfef9ec88bf0d f4a8712d7a061bf5bd6d2ca38dc4d50a
    c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888
    train-labels-idx1-ubyte 25c81989df183df01b3e8a0aad5dffbe 9018921c3c673c538a1fc5bad174d6f9
    bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9
    t10k-images-idx3-ubyte bef4ecab320f06d8554ea6380940ec79 8181f5470baa50b63fa0f6fddb340f0a
    5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b
    t10k-labels-idx1-ubyte bb300cfdad3c16e7a12a480ee83cd310 15d484375f8d13e6eb1aabb0c3f46965
    0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34
"""
MNIST = Collection(("mnist", "."), _sources("https://ossci-datasets.s3.amazonaws.com/mnist", _MNIST))
WRITERS = Collection(
    ("mnist-writers", "mnist", "."),
    _sources("https://raw.githubusercontent.com/facebookresearch/qmnist/master", _WRITERS),
    purpose='partition = "natural"',
)
FASHION = Collection(
    ("fashion-mnist", "fashion_mnist", "FashionMNIST/raw"),
    _sources("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com", _FASHION),
)


class Mnist(Divided, tag="mnist"):
    """60,000 training and 10,000 test images of digits in 10 classes, 1x28x28, values from 0 to 1.

    With partition = "natural" a client is one of 539 writers. The test set has other writers, so the last digits of
    each writer are held out as the client's test set and added to the common one.
    """

    sources: ClassVar[tuple[Collection, ...]] = (MNIST, WRITERS)

    dir: Dir = None
    test_fraction: Annotated[
        Share, Meta(description='For partition = "natural": share of a writer\'s digits that is held out.')
    ] = 0.2

    def whole(self, train: bool = True) -> Whole:
        if isinstance(self.partition, Natural):  # the test set has digits of each training writer
            return self._by_writer(_load(self.sources[0], self.dir, "mnist"))
        return _load(self.sources[0], self.dir, "mnist", train)

    def _by_writer(self, whole: Whole) -> Whole:
        contents = read_files(self.sources[1], data_dir(self.dir), "mnist by writer")
        tables = [read_idx(content, "the labels of QMNIST") for content in contents]
        pools = (whole.train, whole.test)
        for table, pool in zip(tables, pools, strict=True):
            if table.ndim != 2 or not np.array_equal(table[: len(pool.y), 0], pool.y.numpy()):
                raise DataError("the labels of QMNIST do not match these images; get both as published")
        writers = [table[: len(pool.y), _WRITER].astype(np.int64) for table, pool in zip(tables, pools, strict=True)]
        x, y = (torch.cat([whole.train[side], whole.test[side]]) for side in range(2))  # type: ignore[list-item]
        train, held = hold_out(writers[0], self.test_fraction)
        test = np.concatenate([held, np.arange(len(writers[0]), len(y))])
        writer = np.concatenate(writers)
        return whole._replace(
            train=SamplePool(x[train], y[train]),
            test=SamplePool(x[test], y[test]),
            columns={"writer": (writer[train], writer[test])},
        )


class FashionMnist(Divided, tag="fashion_mnist"):
    """60,000 training and 10,000 test images of clothes in 10 classes, 1x28x28, values from 0 to 1."""

    sources: ClassVar[tuple[Collection, ...]] = (FASHION,)

    dir: Dir = None

    def whole(self, train: bool = True) -> Whole:
        return _load(self.sources[0], self.dir, "fashion_mnist", train)._replace(described=_CLOTHES)


def _load(files: Collection, dir: str | None, name: str, train: bool = True) -> Whole:
    if not train:
        files = files._replace(files=files.files[2:])
    contents = read_files(files, data_dir(dir), name)
    arrays = [read_idx(content, source.name) for content, source in zip(contents, files.files, strict=True)]
    *pools, test = (_pool(*pair, name) for pair in zip(arrays[::2], arrays[1::2], strict=True))
    return Whole(pools[0] if pools else without_samples(test), test, num_outputs=10, full_scale=255)


def _pool(images: np.ndarray, labels: np.ndarray, name: str) -> SamplePool:
    if images.shape != (len(labels), 28, 28) or labels.ndim != 1 or labels.max(initial=0) > 9:
        shapes = f"{images.shape} and {labels.shape}"
        raise DataError(f"{name}: expected images of 28x28, each with a class from 0 to 9, got shapes {shapes}")
    return SamplePool(torch.from_numpy(images.copy())[:, None], torch.from_numpy(labels.astype(np.int64)))
