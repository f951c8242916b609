"""The package as users install it: a wheel, outside the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SIX_LINES = """\
import fedge
exp = fedge.Experiment(data="mnist", clients=100, partition=fedge.Dirichlet(alpha=0.5),
                       model="mnist_2nn", algorithm=fedge.FedAvg(learning_rate=0.1, local_epochs=1))
run = exp.run(rounds=50)          # progress bar in terminal and notebook; resume=True continues
run.plot(); run.cost_to(accuracy=0.9)
for record in exp.rounds(50): ... # round by round; callbacks with on_round, on_evaluate, may stop
"""

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the wheel, and all packages of this one except the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(ROOT / "src" / "fedge", source / "src" / "fedge", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source]
    subprocess.run(build, check=True, env=outside(), cwd=folder)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    python = folder / "env" / "bin" / "python"
    (wheel,) = folder.glob("fedge-*.whl")
    subprocess.run([*pip, "--python", python, "install", "--no-deps", wheel], check=True, env=outside(), cwd=folder)
    (packages,) = (folder / "env" / "lib").glob("python*/site-packages")
    # a folder on this path is searched, but .pth files in it, which link to checkouts, are not followed
    (packages / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return python


def outside() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def test_six_lines_from_a_wheel(installed: Path, tmp_path: Path) -> None:
    data = os.environ.get("FEDGE_DATA", "")
    lines = SIX_LINES if data and Path(data, "mnist").is_dir() else SIX_LINES.replace('"mnist"', '"digits"')
    (tmp_path / "six.py").write_text(f"{lines}print(fedge.__file__, len(run.rounds), record['round'])\n")
    done = subprocess.run([installed, "six.py"], cwd=tmp_path, env=outside(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    home, *counts = done.stdout.split()
    assert Path(home).is_relative_to(installed.parents[1])
    assert counts == ["50", "50"]
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"run", "run-2"}


def test_types_are_part_of_the_wheel(installed: Path) -> None:
    code = "import fedge, pathlib; print((pathlib.Path(fedge.__file__).parent / 'py.typed').is_file())"
    done = subprocess.run([installed, "-c", code], env=outside(), capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.strip() == "True"
