"""`fedge info`"""

from typing import Annotated, Literal, get_args

import typer

from fedge.cli.parameters import Format

Part = Literal["models", "datasets", "algorithms", "partitioners", "codecs", "schedules", "selections"]


def info(
    part: Annotated[Part, typer.Argument(metavar="|".join(get_args(Part)), help="What to list.")],
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="One of them, with its options."),
    ] = None,
    format: Format = "text",
) -> None:
    """List models, data sets, algorithms, partitioners, codecs, schedules or selections, or describe one.

    Names and options are those of experiment files. Models are measured for
    inputs 1x28x28 and 10 outputs, or else for the inputs that are named. Codecs
    are the stages that codec.up and its like are made of, in this order. What
    installed packages add is listed with the package, or with its error. NAME
    may be that of a part of your own, FILE.py:NAME.

    Examples:

      fedge info algorithms
      fedge info algorithms scaffold
      fedge info models mnist_2nn --format json
      fedge info schedules step
      fedge info algorithms half_step.py:HalfStep
    """
    from fedge.cli.catalogue import describe, listing, page, table
    from fedge.cli.output import say, say_json

    found = listing(part) if name is None else describe(part, name)
    if format == "json":
        say_json(found)
    elif isinstance(found, list):
        say(table(found))
    else:
        say(*page(found))
