from pathlib import Path

import pytest

from fedge.core.anchor import anchor
from fedge.core.errors import ConfigError

BASE = Path("/base")


def test_paths_and_users_functions_become_absolute() -> None:
    raw = {"data": {"name": "a.py:load", "dir": "../d"}, "codec": ["fp16", "sub/b.py:C"], "model": "/c.py:build"}
    assert anchor(raw, BASE) == {
        "data": {"name": "/base/a.py:load", "dir": "/d"},
        "codec": ["fp16", "/base/sub/b.py:C"],
        "model": "/c.py:build",
    }


def test_keys_may_be_paths_of_settings() -> None:
    assert anchor({"data.file": ["x.csv", "/y.csv"], "data.target": "file"}, BASE) == {
        "data.file": ["/base/x.csv", "/y.csv"],
        "data.target": "file",
    }


def test_options_of_users_functions_are_unchanged() -> None:
    raw = {"data": {"options": {"file": "x.csv"}}, "data.options.dir": "d", "data.options": {"dir": "d"}}
    assert anchor(raw, BASE) == raw


def test_other_values_are_unchanged() -> None:
    raw = {"dir": "", "weights": None, "file": 3, "trace": {"every": 2}, "name": "first"}
    assert anchor(raw, BASE) == raw


@pytest.mark.parametrize("text", ["a\0b", "~nobody-has-this-name/x"])
def test_invalid_paths_are_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^data\.dir: expected a path, got "):
        anchor({"data.dir": text}, BASE)
