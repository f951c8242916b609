"""Build the sdist and from it the wheel, and use both like a user: fresh environment, empty folder, tested versions.

python scripts/check_package.py     # or: make package; takes about two minutes, most of them to install torch
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PARTS = ("fedge/py.typed", "fedge/data/digits.npz", "fedge/data/DIGITS.md", "fedge/cli/templates/", "/licenses/LICENSE")
PARTS += ("fedge/view/static/", "fedge/view/templates/page.html", "fedge/view/templates/parts/")
SOURCES = ("LICENSE", "README.md", "constraints.txt", "pyproject.toml", "src/fedge/__init__.py", "tests/conftest.py")

EXPERIMENT = """\
rounds = 2
data = { name = "digits", clients = 4 }
model = "logistic"
algorithm = { name = "fedavg", local_steps = 2 }
"""


class PackageError(Exception):
    """A built package lacks a file, or the README's commands fail with it."""


def run(*command: str | Path, folder: Path) -> str:
    """Return the output of a command, run in a folder where only the installed package can be imported."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    print("$", *(str(word) for word in command), flush=True)
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """Return the paths of the wheel, built from the sdist, and of the sdist."""
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, folder=folder)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def check_contents(wheel: Path, sdist: Path) -> None:
    """Raise `PackageError` if a file is missing, or if the wheel has an unexpected one."""
    files = zipfile.ZipFile(wheel).namelist()
    if missing := [part for part in PARTS if not any(part in file for file in files)]:
        raise PackageError(f"{wheel.name} lacks {', '.join(missing)}")
    if odd := sorted({file.split("/")[0] for file in files if not file.startswith("fedge")}):
        raise PackageError(f"{wheel.name} has {', '.join(odd)} beside the package")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    if missing := [name for name in SOURCES if name not in names]:
        raise PackageError(f"{sdist.name} lacks {', '.join(missing)}")


def check_use(wheel: Path, folder: Path) -> None:
    """Raise if the command or the Python lines of the README fail in a fresh environment."""
    venv.create(folder / "venv", with_pip=True)
    commands = folder / "venv" / "bin"
    install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt")
    run(commands / "python", *install, wheel, folder=folder)
    version = wheel.name.split("-")[1]
    if (said := run(commands / "fedge", "--version", folder=folder)) != f"fedge {version}\n":
        raise PackageError(f"{wheel.name}: fedge --version prints {said!r}")
    (folder / "tiny.toml").write_text(EXPERIMENT, "utf-8")
    run(commands / "fedge", "run", "tiny.toml", "--quiet", folder=folder)
    if "tiny" not in run(commands / "fedge", "show", "runs/tiny", folder=folder):
        raise PackageError("fedge show does not show the run")
    run(commands / "python", *install, f"{wheel}[page]", folder=folder)  # as in the README
    run(commands / "python", readme(folder), folder=folder)
    if not (folder / "curve.svg").exists():
        raise PackageError("the Python lines of README.md draw no curve.svg")


def readme(folder: Path) -> Path:
    """Write the files that the README shows, and its first lines of Python as a program."""
    text = (ROOT / "README.md").read_text("utf-8")
    for name, content in re.findall(r'^```\w+ title="([^"\n]+)"\n(.*?)^```$', text, re.DOTALL | re.MULTILINE):
        (folder / name).write_text(content, "utf-8")
    lines = re.search(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    if lines is None:
        raise PackageError("README.md has no lines of Python")
    program = folder / "readme.py"
    program.write_text(lines[1], "utf-8")
    return program


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="fedge-package-") as name:
        try:
            wheel, sdist = build(Path(name))
            check_contents(wheel, sdist)
            check_use(wheel, Path(name))
        except (PackageError, subprocess.CalledProcessError) as error:
            sys.exit(str(error))
        DIST.mkdir(exist_ok=True)
        for file in (wheel, sdist):
            shutil.copy(file, DIST)
        print(f"{wheel.name} and {sdist.name} work; they are in {DIST.name}/")


if __name__ == "__main__":
    main()
