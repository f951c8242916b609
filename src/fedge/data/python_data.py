"""Data that a Python program passes as an object: arrays, a data set, a table."""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated

import numpy as np
from msgspec import Meta

from fedge.core.errors import DataError
from fedge.core.lent import PYTHON, borrow, explain_missing
from fedge.data.divided_dataset import Divided
from fedge.data.whole import Whole, chunks


class PythonData(Divided, tag=PYTHON, kw_only=True):
    """Samples that a Python program passed to `fedge.Experiment`; experiment files cannot name them."""

    type: Annotated[str, Meta(description="Type of the object, such as Arrays or DataFrame.")]
    digest: Annotated[str, Meta(description="SHA-256 of all samples.")]

    def whole(self, train: bool = True) -> Whole:
        found: Whole | None = borrow(self.digest)
        if found is None:
            raise DataError(explain_missing("data", self.type))
        return found


def digest_samples(whole: Whole) -> str:
    """Return the SHA-256, in hex, of everything that training and evaluation depend on."""
    found = sha256(repr((whole.num_outputs, whole.task, whole.full_scale, whole.words)).encode())
    for pool in (whole.train, whole.test):
        found.update(f"{list(pool.x.shape)} {list(pool.y.shape)} {pool.y.dtype}".encode())
        for part in (*chunks(pool.x), pool.y):
            found.update(np.ascontiguousarray(part.numpy()).data)
    for name, columns in sorted(whole.columns.items()):
        found.update(name.encode())
        for column in columns:
            found.update("\0".join(map(str, column.tolist())).encode())
    return found.hexdigest()
