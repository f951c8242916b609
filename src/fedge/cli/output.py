"""Output: results on stdout, as text or JSON; messages on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from fedge.cli.errors import abandon_stdout
from fedge.core.errors import StorageError
from fedge.core.printable import printable
from fedge.report.clean_text import Clean
from fedge.runs.files import encode_pretty

_UNBOUNDED = 10_000
"""Width in columns for files and pipes: tables wrap only to fit a terminal."""


def say(*parts: RenderableType) -> None:
    """Print text and tables to stdout."""
    width = None if sys.stdout.isatty() else _UNBOUNDED
    console = Console(width=width, highlight=False, markup=False)
    with _writing():
        for part in parts:
            if isinstance(part, str):
                console.print(printable(part, "\n\t"), soft_wrap=True)
            else:
                console.print(Clean(part), soft_wrap=isinstance(part, Text))


def say_json(value: object) -> None:
    """Print a value as JSON to stdout."""
    say_as_is(encode_pretty(value).decode())


def say_as_is(text: str) -> None:
    """Print formatted text to stdout, without wrapping."""
    with _writing():
        typer.echo(printable(text, "\n\t"), nl=False)


def warn(text: str) -> None:
    """Print a warning to stderr."""
    tell(f"warning: {text}")


def tell(text: str) -> None:
    """Print a message to stderr."""
    typer.echo(printable(text, "\n\t"), err=True)


def working(what: str) -> AbstractContextManager[object]:
    """Show on a terminal's stderr what takes time, while it lasts."""
    # asked of the stream itself, as Rich takes a pipe for a terminal where FORCE_COLOR is set
    return Console(stderr=True).status(what) if sys.stderr.isatty() else nullcontext()


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise  # the reader closed the pipe
    except OSError as error:
        abandon_stdout()
        raise StorageError(f"cannot write the result: {error.strerror}; redirect it elsewhere") from None
