import shutil
import sys
from pathlib import Path

import pytest

from fedge.core.errors import ConfigError
from fedge.core.userfile import adopt, describe, load_function, load_object, loaded_files, noting_sources, sources_of


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
    assert problem(reference) == f"data.name: expected path/to/file.py:NAME, got {reference!r}"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert problem(f"{tmp_path}/none.py:load").startswith(f"data.name: there is no file {tmp_path}/none.py")


def test_a_missing_function_is_named_with_the_nearest(tmp_path: Path) -> None:
    path = write(tmp_path, "def load():\n    pass\n")
    assert problem(f"{path}:laod") == f"data.name: {path} defines no 'laod', did you mean 'load'?; it defines load"
    empty = write(tmp_path, "x = 3\n", "empty.py")
    for reference in (empty, f"{empty}:FedAvg"):
        assert problem(reference).endswith("; it defines no class and no function: write one there")


def test_an_object_that_is_not_callable_is_rejected(tmp_path: Path) -> None:
    path = write(tmp_path, "load = 3\n")
    assert problem(f"{path}:load") == f"data.name: 'load' in {path} must be a function, got int"


def test_a_file_that_fails_on_import_names_the_line_and_leaves_no_module(tmp_path: Path) -> None:
    path = write(tmp_path, "a = 1\nb = a / 0\n")
    before = set(sys.modules)
    assert problem(f"{path}:load") == (
        f"data.name: {path} failed on import: ZeroDivisionError: division by zero (line 2 of {path}: b = a / 0)"
    )
    assert set(sys.modules) == before


@pytest.mark.parametrize(
    ("text", "line"),
    [("x = 1\ndef load(:\n", "2 of {path}: def load(:"), ("raise SystemExit(1)\n", "1 of {path}: raise")],
)
def test_a_file_that_is_invalid_or_exits_is_a_config_error(tmp_path: Path, text: str, line: str) -> None:
    path = write(tmp_path, text)
    found = problem(f"{path}:load")
    assert "failed on import" in found
    assert f"(line {line.format(path=path)}" in found


def test_a_file_without_a_name_lists_its_definitions(tmp_path: Path) -> None:
    path = write(tmp_path, "raise SystemExit\ndef _inner(): ...\ndef load(): ...\nclass Net: ...\n")
    expected = f"data.name: expected {path}:NAME, got a file without a name; it defines load, Net"
    assert problem(path) == expected


def test_a_file_is_run_once_for_each_content(tmp_path: Path) -> None:
    """Also if it failed in between, and if only an imported file has changed."""
    texts = "import helper\ndef f(): ...\n", "1 / 0\n", "import helper\ndef f(): ...\n", "import helper\ndef f(): ...\n"
    write(tmp_path, "", "helper.py")
    found: list[object] = []
    for number, text in enumerate(texts):
        path = write(tmp_path, text)
        if number == 3:
            write(tmp_path, "A = 1\n", "helper.py")
        if "/" in text:
            problem(f"{path}:f")
            continue
        found += [load_function(f"{path}:f", "data.name") for _ in range(2)]
    first, again, repaired, same, other, last = found
    assert first is again
    assert repaired is same
    assert other is last
    assert len({first, repaired, other}) == 3


def test_imports_of_other_functions_do_not_count(tmp_path: Path) -> None:
    """The file is already loaded when the second function is loaded."""
    path = write(tmp_path, "import eager\ndef f(): ...\ndef g():\n    import late\n")
    write(tmp_path, "", "eager.py")
    write(tmp_path, "import further\n", "late.py")
    write(tmp_path, "", "further.py")

    def noted(name: str) -> set[str]:
        function, module = load_object(f"{path}:{name}", "data.name")
        assert callable(function)
        with noting_sources() as sources:
            function()
        return {Path(each).stem for each in (*sources_of(module), *sources)}

    for _ in range(2):
        assert noted("g") == {"mine", "eager", "late", "further"}
        assert noted("f") == {"mine", "eager"}


def test_files_of_another_process_are_adopted(tmp_path: Path) -> None:
    """Neither the file nor its imports exist any more."""
    path = write(tmp_path, "import parts.inner\nclass Mine:\n    value = parts.inner.VALUE\n")
    write(tmp_path / "parts", "", "__init__.py")
    write(tmp_path / "parts", "VALUE = 7\n", "inner.py")
    _, module = load_object(f"{path}:Mine", "data.name")
    files = [(file, sources) for file, sources in loaded_files() if file == path]
    for name in [name for name in sys.modules if name.startswith(module.__name__)]:
        del sys.modules[name]
    shutil.rmtree(tmp_path)
    adopt(files)
    assert sys.modules[module.__name__] is not module
    assert sys.modules[module.__name__].Mine.value == 7


def test_describe_names_the_line_that_raised(tmp_path: Path) -> None:
    path = write(tmp_path, "def fail():\n    x = []\n    return x[1]\n")
    with pytest.raises(IndexError) as caught:
        load_function(f"{path}:fail", "data.name")()
    assert (
        describe(caught.value, f"{path}:fail") == f"IndexError: list index out of range (line 3 of {path}: return x[1])"
    )


# ---------------------------------------------------------------- imports from the file's folder


def call(folder: Path, name: str = "f") -> object:
    return load_function(f"{folder}/mine.py:{name}", "data.name")()


@pytest.mark.parametrize(
    "text",
    [
        "import helper\ndef f():\n    return helper.VALUE\n",
        "from helper import VALUE\ndef f():\n    return VALUE\n",
        "def f():\n    import helper\n    return helper.VALUE\n",
        "import parts.inner\ndef f():\n    return parts.inner.VALUE\n",
        "import parts.inner as inner\ndef f():\n    return inner.VALUE\n",
        "from parts import outer\ndef f():\n    return outer.VALUE\n",
        "from parts.outer import VALUE\ndef f():\n    return VALUE\n",
    ],
)
def test_a_file_imports_modules_of_its_folder(text: str, tmp_path: Path) -> None:
    write(tmp_path, text)
    write(tmp_path, "import further\nVALUE = further.VALUE\n", "helper.py")
    write(tmp_path, "VALUE = 7\n", "further.py")
    write(tmp_path / "parts", "", "__init__.py")
    write(tmp_path / "parts", "VALUE = 7\n", "inner.py")
    write(tmp_path / "parts", "import helper\nfrom .inner import VALUE\nassert helper.VALUE == VALUE\n", "outer.py")
    before = list(sys.path)
    assert call(tmp_path) == 7
    assert sys.path == before
    assert not {"helper", "further", "parts", "parts.inner"} & set(sys.modules)
    with pytest.raises(ModuleNotFoundError):
        import helper  # noqa: F401


def test_helpers_of_one_name_do_not_replace_each_other(tmp_path: Path) -> None:
    found = []
    for name in ("a", "b"):
        write(tmp_path / name, "import helper\ndef f():\n    return helper.VALUE\n")
        write(tmp_path / name, f"VALUE = {name!r}\n", "helper.py")
        found.append(load_function(f"{tmp_path / name}/mine.py:f", "data.name"))
    assert [each() for each in found] == ["a", "b"]


def test_an_edited_helper_is_read_again(tmp_path: Path) -> None:
    """Even if it has the same size as before and was written in the same second."""
    write(tmp_path, "import helper, parts.inner\ndef f():\n    return helper.VALUE, parts.inner.VALUE\n")
    for value in (1, 2):
        write(tmp_path, f"VALUE = {value}\n", "helper.py")
        write(tmp_path / "parts", "", "__init__.py")
        write(tmp_path / "parts", f"VALUE = {value}\n", "inner.py")
        assert call(tmp_path) == (value, value)


def test_a_helper_is_read_once_by_a_file(tmp_path: Path) -> None:
    write(tmp_path, "import helper\nfrom other import helper as same\ndef f():\n    return helper is same\n")
    write(tmp_path, "", "helper.py")
    write(tmp_path, "import helper\n", "other.py")
    assert call(tmp_path) is True


def test_a_helper_that_fails_leaves_no_module(tmp_path: Path) -> None:
    path = write(tmp_path, "import helper\n")
    write(tmp_path, "import further\n1 / 0\n", "helper.py")
    write(tmp_path, "", "further.py")
    before = set(sys.modules)
    assert "failed on import: ZeroDivisionError: division by zero (line 1 of" in problem(f"{path}:f")
    assert set(sys.modules) == before


def test_sources_are_noted_with_what_they_import(tmp_path: Path) -> None:
    texts = {"mine.py": "import helper, json\nf = print\n", "helper.py": "import parts.inner\n", "beside.py": ""}
    for name, text in texts.items():
        write(tmp_path, text, name)
    write(tmp_path / "parts", "", "__init__.py")
    write(tmp_path / "parts", "A = 1\n", "inner.py")
    sources = sources_of(load_object(f"{tmp_path}/mine.py:f", "data.name")[1])
    assert {str(Path(path).relative_to(tmp_path)): text.decode() for path, text in sources.items()} == {
        "mine.py": texts["mine.py"],
        "helper.py": texts["helper.py"],
        "parts/__init__.py": "",
        "parts/inner.py": "A = 1\n",
    }
