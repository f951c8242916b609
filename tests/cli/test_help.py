"""Help, version and completion, and that they load nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.main import get_command

from fedge.cli import app
from fedge.cli.errors import EXIT_CODES
from fedge.core import errors

COMMANDS = [command.name for command in app.registered_commands]

HEAVY = (
    "torch",
    "numpy",
    "msgspec",
    "altair",
    "fedge.config",
    "fedge.experiment.start",
    "fedge.runs",
    "fedge.report",
)


def run_python(code: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env={"PATH": "/bin"} | env
    )
    assert not done.stderr
    return done.stdout


def test_help_imports_nothing_heavy():
    code = f"""
import sys
sys.path[:0] = {sys.path!r}
from fedge.cli import main
sys.argv = ["fedge", "--help"]
try:
    main()
except SystemExit as end:
    print("ended with", end.code)
print("heavy:", [name for name in {HEAVY!r} if name in sys.modules])
"""
    said = run_python(code)
    assert "ended with 0" in said
    assert "heavy: []" in said


def test_help_lists_commands_and_exit_codes(fedge):
    said = fedge("--help").output
    for name in COMMANDS:
        assert f"│ {name} " in said
    for code, meaning in EXIT_CODES.items():
        assert f"{code}  {meaning}" in said


def test_exit_codes_match_the_exceptions():
    kinds = [errors.FedgeError, *errors.FedgeError.__subclasses__()]
    assert {kind.exit_code for kind in kinds} | {0, 130, 143} == set(EXIT_CODES)
    assert errors.__doc__ is not None
    for code in range(1, 10):
        assert f"{code}  {EXIT_CODES[code]}\n" in errors.__doc__


def all_commands(command, *names):
    """Yield the words of every command and subcommand."""
    for name, inner in getattr(command, "commands", {}).items():
        yield " ".join((*names, name))
        yield from all_commands(inner, *names, name)


@pytest.mark.parametrize("name", list(all_commands(get_command(app))))
def test_help_of_every_command_has_an_example(fedge, name):
    """The examples are on docs/reference/commands.md, whose commands tests/docs/test_pages.py parses."""
    output = fedge(*name.split(), "--help").output
    examples = output.partition("Examples:")[2].partition("╭")[0].split("\n")
    assert any(line.strip().startswith(f"fedge {name}") for line in examples)


def test_short_help_option(fedge):
    assert fedge("-h").output == fedge("--help").output


def test_version(fedge):
    from fedge import __version__

    assert fedge("--version").output == f"fedge {__version__}\n"


def test_unknown_command_is_a_usage_error(fedge):
    result = fedge("rum")
    assert result.exit_code == 2
    assert "rum" in result.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("fedge res", "resume"),
        ("fedge info mo", "models"),
        ("fedge run ti", "tiny.toml"),
        ("fedge resume ", "runs/first"),
        ("fedge show runs/f", "runs/first"),
        ("fedge show runs/first --y generalisation", "generalisation_gap"),
    ],
)
def test_completion(tmp_path, words, expected):
    (tmp_path / "tiny.toml").touch()
    (tmp_path / "tiny.txt").touch()
    (tmp_path / "runs" / "first").mkdir(parents=True)
    (tmp_path / "runs" / "first" / "config.json").touch()
    code = f"""
import os, sys
sys.path[:0] = {sys.path!r}
os.chdir({str(tmp_path)!r})
from fedge.cli import main
main()
"""
    position = str(words.count(" "))
    said = run_python(code, _FEDGE_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=position)
    assert said.split() == [expected]
