"""`fedge info`"""

from typing import Annotated

import typer

from fedge.cli.parameters import Format

PARTS = ("models", "datasets", "algorithms", "partitioners", "codecs", "schedules", "selections", "metrics")


def complete_part(incomplete: str) -> list[str]:
    """Return the parts that start with `incomplete`."""
    return [part for part in PARTS if part.startswith(incomplete)]


def info(
    part: Annotated[
        str | None,
        typer.Argument(metavar="|".join(PARTS), help="What to list; default: all names.", autocompletion=complete_part),
    ] = None,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Describe this one, with its options.")] = None,
    format: Format = "text",
) -> None:
    """List the available models, data sets, algorithms and other parts, or describe one.

    Names and options are those of experiment files. Model sizes are for
    1x28x28 inputs and 10 outputs unless another input is shown. Codecs are
    lists of stages, as in codec.up; the stages are listed in the order in which
    they apply. Parts from installed packages are listed with the package, or
    with the error if they cannot be loaded. NAME may also be your own code,
    FILE.py:NAME. Without arguments, all names are listed.

    Examples:

      fedge info
      fedge info algorithms
      fedge info algorithms scaffold
      fedge info models mnist_2nn --format json
      fedge info schedules step
      fedge info metrics auc
      fedge info algorithms half_step.py:HalfStep
    """
    from rich.console import Group
    from rich.text import Text

    from fedge.cli.catalogue import describe, listing, names_of, page, table
    from fedge.cli.output import say, say_json
    from fedge.core.errors import ConfigError, nearest

    if part is None:
        names = {known: names_of(known) for known in PARTS}
        if format == "json":
            say_json(names)
        else:
            say(Group(*(Text(f"{known}: {', '.join(listed)}") for known, listed in names.items())))
            say("", "describe one of them: fedge info algorithms scaffold")
        return
    if part not in PARTS:
        owners = [f"; fedge info {known} {part} describes it" for known in PARTS if part in names_of(known)]
        close = "".join(owners) or nearest(part, PARTS)
        raise ConfigError(f"fedge info {part}: expected one of {', '.join(PARTS)}, got {part!r}{close}")
    found = listing(part) if name is None else describe(part, name)
    if format == "json":
        say_json(found)
    elif isinstance(found, list):
        say(table(found))
    else:
        say(*page(found))
