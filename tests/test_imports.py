"""Allowed imports between packages, the cost of an import, and state in modules."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

import fedge

ROOT = Path(fedge.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
ALLOWED = {
    "core": (),
    "algorithms": ("core",),
    "theory": (),
    "schedules": ("core", "theory"),
    "models": ("core.code_digest", "core.errors", "core.lent", "core.parts", "core.schema"),
    "data": ("core",),
    "client": ("core", "data", "models"),
    "engines": ("core", "data", "client"),
    "edge": ("core",),
    "metrics": ("core",),
    "config": ("core", "algorithms", "data", "models", "edge", "schedules", "metrics"),
    "runs": ("core",),
    "track": ("core", "runs"),
    "report": ("core", "runs", "track"),
    "view": ("core", "runs", "track", "report"),
}
ALLOWED["net"] = (*ALLOWED["config"], "config", "client", "runs")
ALLOWED["experiment"] = tuple(part for part in ALLOWED if part not in ("report", "view"))
ALLOWED["costs"] = (*ALLOWED["experiment"], "experiment")
ALLOWED["sweeps"] = (*ALLOWED["experiment"], "experiment")
ALLOWED["api"] = (*ALLOWED["costs"], "costs", "sweeps", "report")
ALLOWED["algorithm"] = ("core", "algorithms")
ALLOWED["testing"] = (*ALLOWED["experiment"], "experiment", "algorithm")
ALLOWED["fedge"] = (*ALLOWED["api"], "api")  # the package itself re-exports public names
"""Which packages a package may import, besides itself; the top-level package is called `fedge`."""
ALLOWED["cli"] = tuple(ALLOWED)  # anything, and nothing imports it

SMALL = 80  # lines of an algorithm
WITH_CACHES = ("report", "cli")
"""Packages that may have caches in modules: they compute only from arguments and hold no state of a run."""


def imports(path: Path) -> Iterator[str]:
    """Yield the full names of all modules imported anywhere in a file."""
    yield from names_of(ast.walk(ast.parse(path.read_text())), path)


def names_of(nodes: Iterable[ast.AST], path: Path) -> Iterator[str]:
    """Yield the full names of the modules named in import statements among these nodes."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if is_module(name) else str(node.module)


def is_module(name: str) -> bool:
    path = ROOT.parent.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def own_part(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0]
    return "fedge" if first == "__init__.py" else first.removesuffix(".py")


def part_of(module: str) -> str:
    """Return `core.layout` for `fedge.core.layout`, and `fedge` for the package itself."""
    return module.removeprefix("fedge.")


def allows(part: str, other: str) -> bool:
    return any(f"{other}.".startswith(f"{known}.") for known in (part, *ALLOWED[part]))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    part = own_part(path)
    assert part in ALLOWED, f"{part} is new: add what it may import to ALLOWED"
    found = {part_of(name) for name in imports(path) if name.partition(".")[0] == "fedge"}
    wrong = sorted(other for other in found if not allows(part, other))
    assert not wrong, f"{part} must not import {', '.join(wrong)}"


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def graph() -> dict[str, set[str]]:
    """Return the modules that each module imports, without imports inside functions that have a comment."""
    modules = {module_of(path): path for path in FILES}
    return {module: modules.keys() & set(unexplained(path)) for module, path in modules.items()}


def unexplained(path: Path) -> Iterator[str]:
    """Yield what a file imports, without imports inside functions whose reason a comment states."""
    text = path.read_text()
    lines, tree = text.splitlines(), ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside = {id(node) for function in functions for node in ast.walk(function)}
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    yield from names_of((node for node in nodes if id(node) not in inside or "#" not in lines[node.lineno - 1]), path)


def cycle(imported: Mapping[str, Iterable[str]]) -> list[str]:
    """Return modules that import each other in a cycle; empty if there is none."""
    try:
        TopologicalSorter(imported).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_modules_do_not_import_each_other() -> None:
    found = graph()
    assert {"fedge.core.drive", "fedge.core.world"} <= found["fedge.edge.world"]
    assert cycle(found) == []


def test_cycles_are_detected_anywhere_in_a_module(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from fedge.runs import read\n"
        "def f():\n    from fedge.runs import pace\n    from fedge.runs import code  # which takes long\n"
    )
    assert list(unexplained(path)) == ["typing", "fedge.runs.read", "fedge.runs.pace"]
    assert cycle({"a": ["b"], "b": ["c"], "c": []}) == []
    assert set(cycle({"a": ["b"], "b": ["c"], "c": ["b"]})) == {"b", "c"}


def test_a_public_class_name_occurs_once() -> None:
    homes = defaultdict(list)
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module_of(path))
    assert homes["Setup"] == ["fedge.experiment.setup"]
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}


def states(tree: ast.Module) -> Iterator[str]:
    """Yield state in a module that outlives a run: cached functions and methods, empty containers, and `global`."""
    methods = (node for part in tree.body if isinstance(part, ast.ClassDef) for node in part.body)
    for node in (*tree.body, *methods):
        if isinstance(node, ast.FunctionDef) and any(is_cache(each) for each in node.decorator_list):
            yield node.name
    for node in tree.body:
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if value and (is_empty(value) or any(is_cache(each) for each in ast.walk(value))):
            yield ast.unparse(node).partition(" ")[0].rstrip(":")
    yield from (name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names)


def is_cache(node: ast.AST) -> bool:
    text = ast.unparse(node.func if isinstance(node, ast.Call) else node)
    return text.rpartition(".")[2] in ("cache", "lru_cache")


def is_empty(node: ast.expr) -> bool:
    """Whether an expression is an empty list, dictionary or set."""
    text = ast.unparse(node)
    return text in ("{}", "[]", "dict()", "list()", "set()") or text.partition("(")[0].endswith(("defaultdict", "Dict"))


def test_caches_belong_to_a_run() -> None:
    checked = [path for path in FILES if own_part(path) not in WITH_CACHES]
    found = {module_of(path): list(states(ast.parse(path.read_text()))) for path in checked}
    # Functions of classes only. The fields of option types never change, and reading them is slow.
    # A user's class under one name must be one class, otherwise equal configurations would not compare equal.
    expected = {"fedge.core.schema": ["fields_of"], "fedge.core.parts": ["_tagged"]}
    assert {module: names for module, names in found.items() if names} == expected


def test_caches_are_detected_anywhere_in_a_module() -> None:
    code = (
        "from functools import cache, lru_cache\nimport functools\n"
        "@cache\ndef a(): ...\n"
        "@functools.lru_cache(maxsize=1)\ndef b(): ...\n"
        "c = lru_cache(print)\n"
        "d: dict[str, int] = {}\n"
        "class E:\n    @cache\n    def f(self): ...\n"
        "def g():\n    global h\n    h = 1\n"
        "def fine():\n    own = {}\n    return lru_cache(print), own\n"
        "TABLE = {1: 2}\n"
    )
    assert list(states(ast.parse(code))) == ["a", "b", "f", "c", "d", "h"]


def test_the_table_in_contributing() -> None:
    text = (ROOT.parents[1] / "CONTRIBUTING.md").read_text("utf-8")
    (table,) = re.findall(r"^\| package \| may import.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    told: dict[str, set[str]] = {}
    for line in table.splitlines():
        parts, others = (re.findall(r"`([^`]+)`", cell) for cell in line.strip("|").split("|"))
        if "anything" in line:
            others = list(ALLOWED.keys() - set(parts))
        if "may import" in line:
            others = [*others, *chain.from_iterable(ALLOWED[other] for other in others)]
        told |= {part: set(others) for part in parts}
    assert told == {part: set(others) for part, others in ALLOWED.items()}


def test_nothing_imports_the_command_line() -> None:
    assert not [part for part in ALLOWED if part != "cli" and allows(part, "cli")]


def test_wrong_imports_are_detected_anywhere_in_a_module(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(
        "from typing import TYPE_CHECKING\n"
        "import fedge.engines.loop\n"
        "if TYPE_CHECKING:\n    from fedge.runs import read\n"
        "def f():\n    from fedge import config\n    from fedge import __version__\n"
    )
    found = {part_of(name) for name in imports(path) if name.startswith("fedge")}
    assert found == {"engines.loop", "runs.read", "config", "fedge"}
    assert [other for other in sorted(found) if allows("core", other)] == []
    assert [other for other in sorted(found) if allows("report", other)] == ["runs.read"]
    assert not allows("models", "core.algorithm")


def test_the_core_needs_torch_numpy_and_msgspec_only() -> None:
    found = {name.partition(".")[0] for path in (ROOT / "core").rglob("*.py") for name in imports(path)}
    assert found - sys.stdlib_module_names == {"fedge", "torch", "numpy", "msgspec"}


def test_import_fedge_is_light() -> None:
    code = "import sys, fedge; print([name for name in ('torch', 'numpy', 'msgspec') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def is_algorithm(path: Path) -> bool:
    """Whether a file defines options with a tag, or a wrapper: a function that returns a `Build`."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef) and any(
            keyword.arg == "tag" and isinstance(keyword.value, ast.Constant) and keyword.value.value
            for keyword in node.keywords
        ):
            return True
        if isinstance(node, ast.FunctionDef) and node.returns and ast.unparse(node.returns) == "Build":
            return True
    return False


def test_an_algorithm_is_a_small_file() -> None:
    files = [path for path in (ROOT / "algorithms").glob("*.py") if is_algorithm(path)]
    lengths = {path.stem: len(path.read_text().splitlines()) for path in files}
    assert {"fedavg", "scaffold", "dynavg", "mtfl", "reduced"} <= lengths.keys()
    assert not {"__init__", "options", "private", "alone"} & lengths.keys()
    assert {name: length for name, length in lengths.items() if length >= SMALL} == {}
