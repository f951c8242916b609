"""What the commands of the networked runtime share."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from fedge.core.errors import ConfigError

if TYPE_CHECKING:
    from fedge.net.address import Address

TERMINATED = 143
"""The exit code of a command that SIGTERM ended in order."""

_PKI = Path("pki")

Listen = Annotated[
    str | None,
    typer.Option("--listen", metavar="HOST:PORT", help="Where clients connect, in place of net.listen."),
]
Pki = Annotated[
    Path | None,
    typer.Option("--pki", metavar="DIR", help="The server's certificates, made by fedge pki init; pki if not given."),
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="No certificates and no encryption; on this machine only, to try it out.")
]


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command in order, as Ctrl-C does."""


@contextmanager
def ending_in_order(how_to_continue: str) -> Iterator[None]:
    """Let SIGTERM end what is done inside like Ctrl-C; whoever ends it is told how to continue.

    A second SIGTERM ends the process at once, which is safe at any moment.
    """

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except KeyboardInterrupt as reason:
        from fedge.cli.output import tell

        ended = isinstance(reason, Terminated)
        tell(f"{'terminated' if ended else 'interrupted'}: {shlex.join(['fedge', *sys.argv[1:]])} {how_to_continue}")
        if ended:
            raise typer.Exit(TERMINATED) from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def refuse_windows() -> None:
    """Raise a ConfigError on Windows."""
    if sys.platform == "win32":
        raise ConfigError(
            "the networked runtime works on Linux and macOS; on Windows run it in WSL 2 (Windows Subsystem for Linux)"
        )


def listening(listen: str | None) -> list[str]:
    """Return the change of settings that `--listen` stands for, which a resumed run keeps."""
    from fedge.net.address import read_address

    return [] if listen is None else [f"net.listen={read_address(listen, '--listen', lowest_port=0)}"]


def secure(listen: str, pki: Path | None, insecure: bool) -> tuple[Address, Path | None]:
    """Return where a server listens, and its certificates; no certificates if it is insecure, on this machine."""
    from fedge.net.address import read_address, resolve_loopback

    address = read_address(listen, "net.listen", lowest_port=0)
    if not insecure:
        return address, pki or _PKI
    if pki is not None:
        raise ConfigError("--pki and --insecure exclude each other; drop one of them")
    return resolve_loopback(address, "net.listen"), None
