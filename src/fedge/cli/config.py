"""`fedge config`"""

from typing import Annotated, Literal

import typer

from fedge.cli.parameters import Changes, ExperimentFile


def config(
    file: ExperimentFile,
    changes: Changes = None,
    format: Annotated[
        Literal["toml", "json"], typer.Option("--format", metavar="toml|json", help="Output format.")
    ] = "toml",
) -> None:
    """Check an experiment file and print all its settings, including defaults.

    The TOML output is itself a valid experiment file.

    Examples:

      fedge config first.toml
      fedge config first.toml --set algorithm.name=scaffold > scaffold.toml
    """
    from fedge.cli.output import say_as_is, say_json
    from fedge.config import load, plain
    from fedge.core.schema import without_none

    settings = plain(load(file, changes or ()))
    if format == "json":
        say_json(settings)
    else:
        from tomli_w import dumps

        say_as_is(dumps(without_none(settings)))
