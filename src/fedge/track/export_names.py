"""Names of runs and fields that other tools accept: no control characters, short enough, all distinct."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from fedge.core.printable import printable
from fedge.runs import Run

_MARK = 9  # characters appended to a changed name


def accepted(name: str, max_bytes: int, refused: str = "(?!)") -> str:
    """Return the name if a tool accepts it, otherwise a derived one with a hash, so that distinct names stay distinct.

    `refused` is a pattern of refused characters, in addition to those that are not printable. The result is never empty
    and never begins with a dot.
    """
    fitting = re.sub(refused, "_", printable(name))
    if fitting == name and 0 < len(name.encode()) <= max_bytes and not name.startswith("."):
        return name
    mark = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[: _MARK - 1]
    cut = fitting.encode()[: max_bytes - _MARK].decode(errors="ignore")  # drop a character that was cut in two
    return f"{re.sub(r'^[.]', '_', cut)}-{mark}"


def named_runs(runs: Sequence[Run], max_bytes: int) -> Iterator[tuple[str, Run]]:
    """Yield each run with its path relative to the common parent folder, with every part accepted."""
    parents = [str(run.path.resolve().parent) for run in runs]
    shared = Path(os.path.commonpath(parents))
    for run in runs:
        parts = run.path.resolve().relative_to(shared).parts
        yield "/".join(accepted(part, max_bytes) for part in parts), run
