"""Options and signal handling shared by the commands of the networked runtime."""

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
"""The exit code of a command that shut down cleanly on SIGTERM."""

_PKI = Path("pki")

Listen = Annotated[
    str | None, typer.Option("--listen", metavar="HOST:PORT", help="Address to listen on; overrides net.listen.")
]
Pki = Annotated[
    Path | None, typer.Option("--pki", metavar="DIR", help="Directory created by fedge pki init; default: pki.")
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Use no certificates and no encryption; only for trials on this machine.")
]


class Terminated(KeyboardInterrupt):
    """SIGTERM, which shuts a command down cleanly, as Ctrl-C does."""


@contextmanager
def ending_in_order(continuing: str) -> Iterator[None]:
    """Make SIGTERM end the block like Ctrl-C; after either, print the command for `continuing`, such as "resume".

    A second SIGTERM kills the process at once, which is safe at any moment.
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
        command = shlex.join(["fedge", *sys.argv[1:]])
        tell(f"{'terminated' if ended else 'interrupted'}; to {continuing}: {command}")
        if ended:
            raise typer.Exit(TERMINATED) from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def refuse_windows() -> None:
    """Raise a ConfigError on Windows."""
    if sys.platform == "win32":
        raise ConfigError(
            "the networked runtime requires Linux or macOS; on Windows run it in WSL 2 (Windows Subsystem for Linux)"
        )


def listening(listen: str | None) -> list[str]:
    """Return `--listen` as a change of settings, which a resumed run keeps; empty if it is not given."""
    from fedge.net.address import read_address

    return [] if listen is None else [f"net.listen={read_address(listen, '--listen', lowest_port=0)}"]


def secure(listen: str, pki: Path | None, insecure: bool) -> tuple[Address, Path | None]:
    """Return the address to listen on and the certificate directory; None as directory with `--insecure`.

    Raise a ConfigError for an insecure server that other machines could reach.
    """
    from fedge.net.address import read_address, resolve_loopback

    address = read_address(listen, "net.listen", lowest_port=0)
    if not insecure:
        return address, pki or _PKI
    if pki is not None:
        raise ConfigError("--pki and --insecure exclude each other; drop one of them")
    return resolve_loopback(address, "net.listen"), None
