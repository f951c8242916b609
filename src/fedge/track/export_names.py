"""Names of runs and fields in the form that another tool accepts: no control characters, short enough, all distinct."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from fedge.core.printable import printable
from fedge.runs import Run

_MARK = 9  # letters of what is appended to a name that had to be changed


def accepted(name: str, max_bytes: int, refused: str = "(?!)") -> str:
    """Return the name if a tool accepts it, or else one made from it, with a hash so that no two names become one.

    `refused` is a pattern of characters beside those that are not printable; no name is empty or begins with a dot.
    """
    fitting = re.sub(refused, "_", printable(name))
    if fitting == name and 0 < len(name.encode()) <= max_bytes and not name.startswith("."):
        return name
    mark = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[: _MARK - 1]
    cut = fitting.encode()[: max_bytes - _MARK].decode(errors="ignore")  # a character may be cut in two
    return f"{re.sub(r'^[.]', '_', cut)}-{mark}"


def named_runs(runs: Sequence[Run], max_bytes: int) -> Iterator[tuple[str, Run]]:
    """Yield each run with its path below the folder that all share, each part of it an accepted name."""
    parents = [str(run.path.resolve().parent) for run in runs]
    shared = Path(os.path.commonpath(parents))
    for run in runs:
        parts = run.path.resolve().relative_to(shared).parts
        yield "/".join(accepted(part, max_bytes) for part in parts), run
