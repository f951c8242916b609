"""Who may import whom, and how much an import costs."""

import ast
import subprocess
import sys
from collections.abc import Iterator
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
    "models": ("core.errors", "core.schema", "core.userfile"),
    "data": ("core",),
    "client": ("core", "data", "models"),
    "engines": ("core", "data", "client"),
    "edge": ("core",),
    "config": ("core", "algorithms", "data", "models", "edge", "schedules"),
    "runs": ("core",),
    "report": ("core", "runs"),
}
ALLOWED["experiment"] = tuple(part for part in ALLOWED if part != "report")
ALLOWED["costs"] = (*ALLOWED["experiment"], "experiment")
ALLOWED["sweeps"] = (*ALLOWED["experiment"], "experiment")
ALLOWED["fedge"] = (*ALLOWED["experiment"], "experiment", "report")  # the package itself: names that it lends
"""What a part may import, beside itself; by its first name below the package, the package itself as `fedge`."""
ALLOWED["cli"] = tuple(ALLOWED)  # anything, and nothing imports it

SMALL = 80  # lines: an algorithm reads like its paper


def imports(path: Path) -> Iterator[str]:
    """Full names of all modules that a file imports, wherever in the file it does."""
    for node in ast.walk(ast.parse(path.read_text())):
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
    """`core.layout` of `fedge.core.layout`; `fedge` of the package itself."""
    return module.removeprefix("fedge.")


def allows(part: str, other: str) -> bool:
    return any(f"{other}.".startswith(f"{known}.") for known in (part, *ALLOWED[part]))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    part = own_part(path)
    assert part in ALLOWED, f"{part} is new: say in ALLOWED what it may import"
    found = {part_of(name) for name in imports(path) if name.partition(".")[0] == "fedge"}
    wrong = sorted(other for other in found if not allows(part, other))
    assert not wrong, f"{part} must not import {', '.join(wrong)}"


def test_nothing_imports_the_command_line() -> None:
    assert not [part for part in ALLOWED if part != "cli" and allows(part, "cli")]


def test_a_wrong_import_is_seen_wherever_it_stands(tmp_path: Path) -> None:
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
    """Defines options with a tag, or a wrapper: a function that returns a `Build`."""
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
