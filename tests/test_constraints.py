"""The tested versions: one for every direct dependency, and none in the package's own metadata."""

import re
import tomllib
from pathlib import Path

import fedge

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"].values()
REQUIREMENTS = [text for part in (PROJECT["dependencies"], *EXTRAS) for text in part if not text.startswith("fedge[")]


def name_of(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match is not None
    return match[0]


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    assert all(len(pair) == 2 for pair in pairs)
    return dict(pairs)


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def test_every_direct_dependency_is_pinned() -> None:
    assert sorted(pins()) == sorted({name_of(each) for each in REQUIREMENTS})
    for each in REQUIREMENTS:
        for bound in re.findall(r">=([0-9.]+)", each):
            assert numbers(pins()[name_of(each)]) >= numbers(bound), each


def test_pins_do_not_downgrade_torch() -> None:
    assert [each for each in REQUIREMENTS if name_of(each) == "torch"] == ["torch>=2.6"]


def test_every_install_uses_the_constraints() -> None:
    for file in ("Makefile", ".ci/run"):
        installs = [line for line in (ROOT / file).read_text().splitlines() if "pip install" in line]
        assert all("-c constraints.txt" in line for line in installs), file
    assert "pip install" in (ROOT / "Makefile").read_text()


def test_pre_commit_has_the_same_ruff() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    assert re.findall(r"ruff-pre-commit\n\s+rev: v(\S+)", hooks) == [pins()["ruff"]]


def test_one_version_everywhere() -> None:
    (cited,) = re.findall(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited == fedge.__version__


def test_the_workflow_runs_what_the_script_runs() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert re.findall(r"- run: (.+)", workflow)[-1] == ".ci/run"
