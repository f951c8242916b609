import sys
from pathlib import Path

import pytest

from fedge.core.errors import ConfigError
from fedge.core.userfile import describe, load_function


def write(folder: Path, text: str, name: str = "mine.py") -> str:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return str(folder / name)


def problem(reference: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_function(reference, "data.name")
    assert len(caught.value.problems) == 1
    return caught.value.problems[0]


def test_a_function_is_found_by_path_and_name(tmp_path: Path) -> None:
    path = write(tmp_path, "def double(x):\n    return 2 * x\n")
    assert load_function(f"{path}:double", "data.name")(21) == 42


def test_a_relative_path_starts_at_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "def one():\n    return 1\n")
    monkeypatch.chdir(tmp_path)
    assert load_function("mine.py:one", "data.name")() == 1


def test_files_of_one_name_do_not_replace_each_other(tmp_path: Path) -> None:
    first = load_function(write(tmp_path / "a", "def where():\n    return 'a'\n") + ":where", "data.name")
    second = load_function(write(tmp_path / "b", "def where():\n    return 'b'\n") + ":where", "data.name")
    assert (first(), second()) == ("a", "b")
    assert sys.modules[first.__module__] is not sys.modules[second.__module__]


def test_an_edited_file_is_read_again(tmp_path: Path) -> None:
    write(tmp_path, "def value():\n    return 1\n")
    assert load_function(f"{tmp_path}/mine.py:value", "data.name")() == 1
    write(tmp_path, "def value():\n    return 'another'\n")
    assert load_function(f"{tmp_path}/mine.py:value", "data.name")() == "another"


def test_a_dataclass_may_live_in_the_file(tmp_path: Path) -> None:
    # With postponed annotations dataclasses looks the module up by name, which fails if it is not registered.
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\n\n"
    path = write(tmp_path, text + "@dataclass\nclass Point:\n    x: int\n")
    assert load_function(f"{path}:Point", "data.name")(3).x == 3


@pytest.mark.parametrize("reference", ["mine.py", "mine.txt:load", "mine.py:", ":load", "mine.py:a b"])
def test_a_reference_of_another_form_is_refused(reference: str) -> None:
    assert problem(reference) == f"data.name: expected path/to/file.py:function, got {reference!r}"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert problem(f"{tmp_path}/none.py:load").startswith(f"data.name: there is no file {tmp_path}/none.py")


def test_a_missing_function_is_named_with_the_nearest(tmp_path: Path) -> None:
    path = write(tmp_path, "def load():\n    pass\n")
    assert problem(f"{path}:laod") == f"data.name: {path} defines no 'laod', did you mean 'load'?"


def test_what_is_not_callable_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "load = 3\n")
    assert problem(f"{path}:load") == f"data.name: 'load' in {path} must be a function, got int"


def test_a_file_that_fails_on_import_says_where_and_leaves_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, "a = 1\nb = a / 0\n")
    before = set(sys.modules)
    assert problem(f"{path}:load") == (
        f"data.name: {path} failed on import: ZeroDivisionError: division by zero (line 2 of {path})"
    )
    assert set(sys.modules) == before


@pytest.mark.parametrize("text", ["def load(:\n", "raise SystemExit(1)\n"])
def test_a_broken_or_leaving_file_is_a_config_error(tmp_path: Path, text: str) -> None:
    assert "failed on import" in problem(write(tmp_path, text) + ":load")


def test_describe_names_the_line_that_raised(tmp_path: Path) -> None:
    path = write(tmp_path, "def fail():\n    x = []\n    return x[1]\n")
    with pytest.raises(IndexError) as caught:
        load_function(f"{path}:fail", "data.name")()
    assert describe(caught.value, f"{path}:fail") == f"IndexError: list index out of range (line 3 of {path})"
