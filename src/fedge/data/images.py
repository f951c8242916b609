"""Folders of images, one folder per class."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from msgspec import Meta

from fedge.core.errors import DataError
from fedge.core.extras import need
from fedge.data.apportionment import hold_out
from fedge.data.data_plan import Share
from fedge.data.divided_dataset import Divided
from fedge.data.whole import SamplePool, Whole

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")


class Images(Divided, tag="images", kw_only=True):
    """Image files in one folder per class, values from 0 to 1; classes are in alphabetical order.

    Folders `train/CLASS/` and `test/CLASS/` are the two sets. With `CLASS/` only, the last files of each class, by
    name, are for the test.
    """

    folder: Annotated[str, Meta(description="Folder that has the folders of classes.")]
    size: Annotated[int, Meta(ge=1, description="Side in pixels to which images are scaled.")] = 32
    colours: Annotated[Literal["rgb", "grey"], Meta(description="Three channels or one.")] = "rgb"
    test_fraction: Annotated[
        Share, Meta(description="Share of each class for the test, if there is no folder test/.")
    ] = 0.2

    def whole(self, train: bool = True) -> Whole:
        root = Path(self.folder).expanduser()
        if (root / "train").is_dir():
            classes = _folders(root / "train")
            files, test = (_files(root / part, classes) for part in ("train", "test"))
        else:
            classes = _folders(root)
            found = _files(root, classes)
            rows = hold_out(np.array([label for _, label in found]), self.test_fraction)
            files, test = ([found[row] for row in part] for part in rows)
        pools = (self._pool(files if train else []), self._pool(test))
        return Whole(*pools, num_outputs=len(classes), full_scale=255, classes=tuple(classes))

    def _pool(self, files: list[tuple[Path, int]]) -> SamplePool:
        channels = 3 if self.colours == "rgb" else 1
        x = np.empty((len(files), channels, self.size, self.size), np.uint8)
        for row, (path, _) in enumerate(files):
            x[row] = self._read(path)
        return SamplePool(torch.from_numpy(x), torch.tensor([label for _, label in files], dtype=torch.int64))

    def _read(self, path: Path) -> np.ndarray:
        image = need("PIL.Image", "images", "images need", "Pillow")
        try:
            with image.open(path) as opened:
                return pixels(opened, self.colours, self.size)
        except (OSError, ValueError) as error:
            raise DataError(f"{path} cannot be read as an image: {error}; remove or replace it") from error


def pixels(image: Any, colours: str, size: int | None) -> np.ndarray:
    """Return a Pillow image as bytes [channels, height, width], scaled to sides of `size` pixels if it is given."""
    converted = image.convert("RGB" if colours == "rgb" else "L")
    if size is not None:
        converted = converted.resize((size, size), import_module("PIL.Image").Resampling.BILINEAR)
    return np.atleast_3d(np.asarray(converted)).transpose(2, 0, 1)


def _folders(root: Path) -> list[str]:
    names = sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    if not names:
        raise DataError(f"data.folder: expected a folder with one folder per class, got {root}")
    return names


def _files(root: Path, classes: list[str]) -> list[tuple[Path, int]]:
    if root.is_dir() and (unknown := sorted(set(_folders(root)) - set(classes))):
        raise DataError(f"{root} has a class {unknown[0]!r} that is not in the training set; remove its folder")
    found = [
        (path, label)
        for label, name in enumerate(classes)
        for path in sorted((root / name).glob("*"))
        if path.suffix.lower() in SUFFIXES
    ]
    if not found:
        raise DataError(f"{root}: expected image files ({', '.join(SUFFIXES)}) in folders by class, found none")
    return found
