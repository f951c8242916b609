"""Names of classes and clients, stored in a run for its charts only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from fedge.core.errors import FedgeError
from fedge.core.printable import printable
from fedge.runs.files import NAMES, read_bytes

MOST_CLASSES = 1_000
MOST_CLIENTS = 10_000
LONGEST = 60
"""Maximum number of characters of a stored name; longer ones are cut."""

_Name = Annotated[str, msgspec.Meta(max_length=LONGEST)]


class DataNames(msgspec.Struct, frozen=True):
    """Names of classes and clients by number; empty if the data has none, or more than a chart could use.

    All have names or none do: names may be numerals, so a plain number among them would look like a name.
    """

    classes: Annotated[tuple[_Name, ...], msgspec.Meta(max_length=MOST_CLASSES)] = ()
    clients: Annotated[tuple[_Name, ...], msgspec.Meta(max_length=MOST_CLIENTS)] = ()

    @staticmethod
    def of(data: object) -> DataNames:
        """Return the names that the data of a federation defines."""
        return DataNames(
            _bounded(getattr(data, "shown_classes", ()), MOST_CLASSES),
            _bounded(getattr(data, "names", ()), MOST_CLIENTS),
        )

    def class_labels(self, num_classes: int) -> list[str]:
        """Return a label for each class: its name, or its number."""
        return list(self.classes) if len(self.classes) == num_classes else [*map(str, range(num_classes))]

    def client_label(self, client: int) -> str:
        """Return the label of a client: its name, or its number."""
        return self.clients[client] if 0 <= client < len(self.clients) else str(client)


NO_NAMES = DataNames()


def read_names(path: Path) -> DataNames:
    """Return the printable names in a run directory; none if they cannot be read, since no result depends on them."""
    try:
        found = msgspec.json.decode(read_bytes(path / NAMES) or b"{}", type=DataNames)
    except (FedgeError, ValueError, RecursionError):
        return NO_NAMES
    return DataNames(*(tuple(map(printable, names)) for names in (found.classes, found.clients)))


def cut(name: str, longest: int) -> str:
    """Return the name, shortened with an ellipsis to at most `longest` characters."""
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def _bounded(names: Sequence[str], most: int) -> tuple[str, ...]:
    return tuple(cut(printable(name), LONGEST) for name in names) if len(names) <= most else ()
