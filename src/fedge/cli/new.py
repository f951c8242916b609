"""`fedge new`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedge.cli.parameters import Format

app = typer.Typer(
    no_args_is_help=True,
    help="""Write a file to start from: an algorithm with its test, or an experiment.

    Files that are there already are never overwritten.

    Examples:

      fedge new algorithm half_step
      fedge new experiment first
    """,
)

Folder = Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where to write it.")]


@app.command("algorithm")
def algorithm(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the file, such as half_step; the class is HalfStep.")],
    folder: Folder = Path(),
    format: Format = "text",
) -> None:
    """Write NAME.py, an algorithm of one's own that works, and test_NAME.py.

    Experiments name it `NAME.py:Class`. The test needs pytest and takes seconds.

    Examples:

      fedge new algorithm half_step
      pytest test_half_step.py
      fedge run first.toml --set algorithm.name=half_step.py:HalfStep
    """
    from fedge.core.errors import ConfigError

    if not name.isidentifier() or not name.islower():
        raise ConfigError(f"NAME: expected a lower-case name of a Python module, such as half_step, got {name!r}")
    kind = "".join(word.capitalize() for word in name.split("_"))
    files = {f"{name}.py": "algorithm.py", f"test_{name}.py": "test_algorithm.py"}
    _write(files, {"NAME": name, "CLASS": kind}, folder, format, f"algorithm.name = {name}.py:{kind}")


@app.command("experiment")
def experiment(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the experiment, and of its file.")],
    folder: Folder = Path(),
    format: Format = "text",
) -> None:
    """Write NAME.toml, an experiment on embedded data that trains in seconds.

    Examples:

      fedge new experiment first
      fedge run first.toml
    """
    from fedge.config import parse

    parse({"name": name, "data": "digits", "model": "logistic", "algorithm": "fedavg"})  # refuses a wrong name
    _write({f"{name}.toml": "experiment.toml"}, {"NAME": name}, folder, format, f"fedge run {folder / name}.toml")


def _write(files: dict[str, str], words: dict[str, str], folder: Path, format: str, then: str) -> None:
    """Write files from templates, all or none; the words between @ are replaced."""
    from importlib.resources import files as resources

    from fedge.cli.output import say, say_json
    from fedge.core.errors import ConfigError
    from fedge.core.storage import writing

    paths = {folder / file: template for file, template in files.items()}
    if there := [str(path) for path in paths if path.exists()]:
        raise ConfigError(f"{', '.join(there)}: exists already and is not overwritten; choose another name or --dir")
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
