"""JSON files in the format of the LEAF benchmark: samples by user.

    {"users": ["u1", ...], "num_samples": [...], "user_data": {"u1": {"x": [...], "y": [...]}, ...}}

Files are in `train/` and `test/`, or all in `all_data/`; then the last samples of each user are held out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from fedge.core.errors import DataError
from fedge.data.apportionment import hold_out
from fedge.data.files import Collection, Source, read_checked

_FLAGS = "-s niid --sf 1.0 -k 0 -t sample"


def leaf_files(folder: str, instead: dict[str, str | None] | None = None, how: str = "") -> Collection:
    """Return the LEAF files of a data set, and where to find them; `instead` lists alternative files."""
    leaf = (
        f"git clone https://github.com/TalwalkarLab/leaf && cd leaf/data/{folder} && ./preprocess.sh {_FLAGS} "
        "&& mkdir -p {folder} && cp -r data/train data/test {folder}"
    )
    others = instead or {}
    how = f"{how}, or {leaf}" if how else leaf
    return Collection(
        (folder, f"{folder}/data"),
        (
            Source({**others, "train/*.json": None, "all_data/*.json": None}, how),
            Source({**others, "test/*.json": None, "all_data/*.json": None}, how),
        ),
    )


class Users(NamedTuple):
    """Samples with their users."""

    x: list[Any]
    y: list[Any]
    users: np.ndarray

    def take(self, rows: Iterable[int]) -> Users:
        rows = list(rows)
        return Users([self.x[row] for row in rows], [self.y[row] for row in rows], self.users[rows])

    def where(self, keep: Callable[[Any], bool]) -> Users:
        """Return the samples whose inputs satisfy `keep`."""
        return self.take(row for row, x in enumerate(self.x) if keep(x))


def read_leaf(paths: list[list[Path]], test_fraction: float) -> tuple[Users, Users]:
    """Return the training and the test samples; if both have the same files, the last of each user are held out."""
    train = _read(paths[0])
    if paths[0] != paths[1]:
        return train, _read(paths[1])
    rows, held = hold_out(train.users, test_fraction)
    return train.take(rows), train.take(held)


class _Data(msgspec.Struct):
    x: list[Any]
    y: list[Any]


class _File(msgspec.Struct):
    user_data: dict[str, _Data]


def _read(paths: list[Path]) -> Users:
    found = Users([], [], np.empty(0, str))
    users: list[np.ndarray] = []
    for path in paths:
        try:
            data = msgspec.json.decode(read_checked(path), type=_File).user_data
        except msgspec.DecodeError as error:
            raise DataError(f"{path}: expected JSON in LEAF's format: {error}; get it again") from error
        for user, samples in data.items():
            if len(samples.x) != len(samples.y):
                counts = f"{len(samples.x)} inputs and {len(samples.y)} targets"
                raise DataError(f"{path}: expected equal numbers of inputs and targets for user {user!r}, got {counts}")
            found.x.extend(samples.x)
            found.y.extend(samples.y)
            users.append(np.repeat([user], len(samples.y)))
    if not found.y:
        raise DataError(f"{paths[0]}: expected samples of at least one user, got none")
    return found._replace(users=np.concatenate(users))
