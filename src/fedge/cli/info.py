"""`fedge info`"""

from typing import Annotated, Literal, get_args

import typer

from fedge.cli.parameters import Format

Part = Literal["models", "datasets", "algorithms", "partitioners"]


def info(
    part: Annotated[Part, typer.Argument(metavar="|".join(get_args(Part)), help="What to list.")],
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="One of them, with its options."),
    ] = None,
    format: Format = "text",
) -> None:
    """List models, data sets, algorithms or partitioners, or describe one.

    Names and options are those of experiment files. Models are measured for
    inputs 1x28x28 and 10 outputs, or else for the inputs that are named.

    Examples:

      fedge info algorithms
      fedge info algorithms scaffold
      fedge info models mnist_2nn --format json
    """
    from fedge.cli.catalogue import brief, full, kinds, page, table
    from fedge.cli.output import say, say_json
    from fedge.core.schema import choose

    known = kinds(part)
    if name is None:
        found = [brief(kind) for kind in known]
        if format == "json":
            say_json(found)
        else:
            say(table(found))
    else:
        chosen = full(choose(name, known, part))
        if format == "json":
            say_json(chosen)
        else:
            say(*page(chosen))
