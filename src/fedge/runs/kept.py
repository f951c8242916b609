"""Private state of clients: a file of rows of equal size, one row for each client that took part.

The file is copy-on-write against the last checkpoint: a row that it refers to is never overwritten. Its client gets
another row, and the old one becomes free once the next checkpoint is durable. The checkpoint is therefore complete at
every moment, and the next one does not copy unchanged rows.

The file is read and written by system calls, not mapped into memory: on a full disk, writing to a map kills the
process with SIGBUS, while a call fails with ENOSPC. Space is allocated before it is used, so that this happens at a
defined place.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from fedge.core.errors import RunError, TrainingError
from fedge.core.layout import Tree
from fedge.core.placement import aligned, arrange, dtype_name, end_of
from fedge.core.storage import reading, writing

_GROWTH_BYTES = 1 << 20


class KeptStore:
    """The clients' private state between rounds, with the names, shapes and dtypes of a template."""

    def __init__(self, template: Tree, path: Path | None, then: str = "run again") -> None:
        """Open the store; without a path, in a temporary file.

        `then` is the advice in disk errors: what to do once the problem is solved.
        """
        self._template = {name: value.detach().clone() for name, value in template.items()}
        self._placements = arrange(self._template)  # in a row
        self._row_bytes = aligned(end_of(self._placements))
        self._path, self._then = path or Path(tempfile.gettempdir()), then
        self._file: IO[bytes] | None = None
        if self._row_bytes:
            with writing(self._path, then):
                self._file = _open(path)
        self._capacity = self._count_rows()  # rows that the file has room for
        self._num_rows = 0  # rows handed out so far, free or in use
        self._row_of: dict[int, int] = {}
        self._free: list[int] = []
        self._fresh: set[int] = set()  # rows that no checkpoint can refer to: they may be overwritten
        self._stale: list[int] = []  # rows that no client uses any more, but a checkpoint may refer to
        self._num_settled = 0  # stale rows to which the checkpoint being written does not refer

    def read(self, client: int) -> Tree:
        """Return a copy of a client's state; the template's values if it was never written."""
        number = self._row_of.get(client)
        if number is None:
            return {name: value.clone() for name, value in self._template.items()}
        row = self._read_row(number)
        return {place.name: place.view(row) for place in self._placements}

    def write(self, client: int, tree: Tree) -> None:
        self._check(client, tree)
        if not self._row_bytes:
            return
        row = torch.zeros(self._row_bytes, dtype=torch.uint8)
        for place in self._placements:
            place.view(row).copy_(tree[place.name].detach())
        old = self._row_of.get(client)
        with writing(self._path, self._then):
            if old is not None and old in self._fresh:
                self._write_row(old, row)
                return
            new = self._take_row()
            try:
                self._write_row(new, row)
            except OSError:
                self._free.append(new)
                raise
        self._row_of[client] = new
        self._fresh.add(new)
        if old is not None:
            self._stale.append(old)

    def index(self) -> Tree:
        """Return the index of rows for a checkpoint. From now on these rows are not overwritten."""
        if not self._row_bytes:
            return {}
        self._fresh.clear()
        self._num_settled = len(self._stale)
        return {
            "clients": torch.tensor(list(self._row_of), dtype=torch.int64),
            "rows": torch.tensor(list(self._row_of.values()), dtype=torch.int64),
            "row_bytes": torch.tensor([self._row_bytes], dtype=torch.int64),
        }

    def flush(self) -> None:
        """Make all rows durable. Call it before writing the checkpoint that refers to them."""
        if self._file is not None:
            with writing(self._path, self._then):
                os.fsync(self._file.fileno())

    def committed(self) -> None:
        """Free the rows to which only earlier checkpoints refer. Call it once the checkpoint is durable."""
        self._free += self._stale[: self._num_settled]
        del self._stale[: self._num_settled]
        self._num_settled = 0

    def restore(self, index: Tree) -> None:
        """Go back to the rows of a checkpoint. Raises RunError if they do not fit, or if the file is too short."""
        found = int(index["row_bytes"]) if index else 0
        if found != self._row_bytes:
            raise RunError(
                f"{self._path}: expected {self._row_bytes} bytes of private state for each client, "
                f"the checkpoint has {found}; resume with the algorithm and the fedge that started the run"
            )
        if not index:
            return
        clients, rows = index["clients"].tolist(), index["rows"].tolist()
        num_rows, capacity = max(rows, default=-1) + 1, self._count_rows()
        if num_rows > capacity:
            raise RunError(
                f"{self._path} is damaged: expected at least {num_rows} rows of {self._row_bytes} bytes, "
                f"got {capacity}; put back a copy of the run directory, or start the run again"
            )
        used = set(rows)
        self._num_rows, self._capacity = num_rows, capacity
        self._row_of = dict(zip(clients, rows, strict=True))
        self._free = [row for row in range(num_rows) if row not in used]
        self._fresh.clear()
        self._stale.clear()
        self._num_settled = 0

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _check(self, client: int, tree: Tree) -> None:
        expected, found = _forms(self._template), _forms(tree)
        if expected != found:
            raise TrainingError(
                f"client {client}: its private state changed names, shapes or dtypes: expected {expected}, "
                f"got {found}; `keep` and `final` of the algorithm must agree"
            )

    def _take_row(self) -> int:
        if self._free:
            return self._free.pop()
        if self._num_rows == self._capacity:
            num_rows = max(1, _GROWTH_BYTES // self._row_bytes)
            os.posix_fallocate(self._fd, self._capacity * self._row_bytes, num_rows * self._row_bytes)
            self._capacity += num_rows
        self._num_rows += 1
        return self._num_rows - 1

    def _read_row(self, number: int) -> Tensor:
        row = torch.empty(self._row_bytes, dtype=torch.uint8)
        done, memory = 0, row.numpy().data
        with reading(self._path):
            while done < self._row_bytes:
                count = os.preadv(self._fd, [memory[done:]], number * self._row_bytes + done)
                if count == 0:
                    raise RunError(f"{self._path} is damaged: it ends before the end of row {number}")
                done += count
        return row

    def _write_row(self, number: int, row: Tensor) -> None:
        done, memory = 0, row.numpy().data
        while done < self._row_bytes:
            done += os.pwrite(self._fd, memory[done:], number * self._row_bytes + done)

    def _count_rows(self) -> int:
        return os.fstat(self._fd).st_size // self._row_bytes if self._row_bytes else 0

    @property
    def _fd(self) -> int:
        assert self._file is not None, "a template without values needs no file"
        return self._file.fileno()


def _forms(tree: Tree) -> dict[str, str]:
    return {name: f"{dtype_name(value.dtype)}{list(value.shape)}" for name, value in tree.items()}


def _open(path: Path | None) -> IO[bytes]:
    if path is None:
        return tempfile.TemporaryFile(buffering=0)
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)
