"""`fedge new`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedge.cli.parameters import Format

app = typer.Typer(
    no_args_is_help=True,
    help="""Create a starting point: an algorithm with its test, or an experiment file.

    Existing files are never overwritten.

    Examples:

      fedge new algorithm half_step
      fedge new experiment first
    """,
)

Folder = Annotated[Path, typer.Option("--dir", metavar="DIR", help="Directory to write to.")]


@app.command("algorithm")
def algorithm(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Module name, such as half_step for the class HalfStep.")],
    folder: Folder = Path(),
    format: Format = "text",
) -> None:
    """Write NAME.py, a working example algorithm, and its test, test_NAME.py.

    Experiment files refer to it as `NAME.py:Class`. The test needs pytest and
    takes seconds.

    Examples:

      fedge new algorithm half_step
      pytest test_half_step.py
      fedge run first.toml --set algorithm.name=half_step.py:HalfStep
    """
    from fedge.core.errors import ConfigError

    if not name.isidentifier() or not name.islower():
        raise ConfigError(f"NAME: expected a lower-case Python module name, such as half_step, got {name!r}")
    kind = "".join(word.capitalize() for word in name.split("_"))
    files = {f"{name}.py": "algorithm.py", f"test_{name}.py": "test_algorithm.py"}
    _write(files, {"NAME": name, "CLASS": kind}, folder, format, f"algorithm.name = {name}.py:{kind}")


@app.command("experiment")
def experiment(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the experiment and its file.")],
    folder: Folder = Path(),
    format: Format = "text",
) -> None:
    """Write NAME.toml, a small experiment that trains in seconds.

    It needs no downloads: its data is included in the package.

    Examples:

      fedge new experiment first
      fedge run first.toml
    """
    from fedge.config import parse

    parse({"name": name, "data": "digits", "model": "logistic", "algorithm": "fedavg"})  # raises if the name is invalid
    _write({f"{name}.toml": "experiment.toml"}, {"NAME": name}, folder, format, f"fedge run {folder / name}.toml")


def _write(files: dict[str, str], words: dict[str, str], folder: Path, format: str, then: str) -> None:
    """Write files from templates, replacing each @WORD@; raise a ConfigError if one of them exists."""
    from importlib.resources import files as resources

    from fedge.cli.output import say, say_json
    from fedge.core.errors import ConfigError
    from fedge.core.storage import writing

    paths = {folder / file: template for file, template in files.items()}
    if there := [str(path) for path in paths if path.exists()]:
        raise ConfigError(f"{', '.join(there)}: already exists; choose another name or --dir")
    for path, template in paths.items():
        text = (resources("fedge.cli") / "templates" / f"{template}.txt").read_text("utf-8")
        for word, value in words.items():
            text = text.replace(f"@{word}@", value)
        with writing(path, "try again"):
            folder.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    if format == "json":
        say_json({"files": list(map(str, paths)), "next": then})
    else:
        say(*(f"wrote {path}" for path in paths), f"next: {then}")
