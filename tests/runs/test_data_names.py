"""Names of classes and clients in a run directory: bounded when they are written, untrusted when they are read."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedge.runs.data_names import LONGEST, MOST_CLASSES, MOST_CLIENTS, NO_NAMES, DataNames, read_names
from fedge.runs.directory import RunDirectory
from fedge.runs.read import Run
from hostile import LABELS


def data(classes: Any = (), clients: Any = ()) -> SimpleNamespace:
    return SimpleNamespace(shown_classes=classes, names=clients)


def test_names_are_written_and_read(tmp_path: Path) -> None:
    names = DataNames.of(data(["cat", "dog"], ("north", "süd")))
    RunDirectory.create(tmp_path / "named", {"name": "x"}, {}, names=names).close()
    assert json.loads((tmp_path / "named" / "names.json").read_text("utf-8")) == {
        "classes": ["cat", "dog"],
        "clients": ["north", "süd"],
    }
    assert Run(tmp_path / "named").names == names
    RunDirectory.create(tmp_path / "plain", {"name": "x"}, {}, names=DataNames.of(object())).close()
    assert not (tmp_path / "plain" / "names.json").exists()
    assert Run(tmp_path / "plain").names == NO_NAMES


def test_too_many_names_for_charts_are_omitted() -> None:
    full = DataNames.of(data(["c"] * MOST_CLASSES, ["k"] * MOST_CLIENTS))
    assert (len(full.classes), len(full.clients)) == (MOST_CLASSES, MOST_CLIENTS)
    assert DataNames.of(data(["c"] * (MOST_CLASSES + 1), ["k"] * (MOST_CLIENTS + 1))) == NO_NAMES


def test_long_and_hostile_names_are_cut_and_escaped(tmp_path: Path) -> None:
    """A folder's name may contain anything but a slash, even bytes that are not text."""
    names = DataNames.of(data([*LABELS, "caf\udce9", "x" * 1000]))
    assert all(len(name) <= LONGEST for name in names.classes)
    assert names.classes[-2:] == ("caf\\udce9", "x" * (LONGEST - 1) + "…")
    assert not any(ord(letter) < 32 or letter in "\u202e\x9b" for name in names.classes for letter in name)
    RunDirectory.create(tmp_path, {"name": "x"}, {}, names=names).close()
    assert read_names(tmp_path) == names


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"classes": "cat"}',
        b'{"classes": [1]}',
        b'{"classes": ["' + b"x" * (LONGEST + 1) + b'"]}',
        b'{"classes": [' + b'"c",' * MOST_CLASSES + b'"c"]}',
        b'{"clients": [' + b'"k",' * MOST_CLIENTS + b'"k"]}',
        b"[" * 100_000,
    ],
    ids=range(10),
)
def test_a_damaged_file_means_no_names(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "names.json").write_bytes(content)
    assert read_names(tmp_path) == NO_NAMES


def test_names_read_from_disk_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "names.json").write_text(json.dumps({"classes": ["\x1b[2Jcat"], "clients": ["\u202edog"], "more": 1}))
    assert read_names(tmp_path) == DataNames(("\\u001b[2Jcat",), ("\\u202edog",))


def test_labels() -> None:
    names = DataNames(("cat", "dog"), ("north",))
    assert names.class_labels(2) == ["cat", "dog"]
    assert names.class_labels(3) == ["0", "1", "2"]
    assert [names.client_label(client) for client in (0, 1, -1)] == ["north", "1", "-1"]
