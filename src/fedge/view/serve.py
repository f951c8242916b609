"""The web server of the page: its socket, its URL and its shutdown."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from contextlib import suppress
from pathlib import Path

import uvicorn
from starlette.types import Receive, Scope, Send

from fedge.core.errors import ConfigError, NetworkError
from fedge.view.app import make_app
from fedge.view.guard import TOKEN, AccessRules
from fedge.view.workspace import Workspace

PORT = 8765
_NUM_TRIED = 20
_WRONG_HOST = "--host {}: expected a name or address of this machine; choose 127.0.0.1 or 0.0.0.0"


def listen(host: str, port: int | None) -> socket.socket:
    """Return a listening socket; without a port, on the first free one from 8765 on. Raises NetworkError."""
    ports = [port] if port is not None else range(PORT, PORT + _NUM_TRIED)
    for number in ports:
        try:
            return _bind(host, number)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and port is None:
                continue
            raise NetworkError(_told(host, number, error)) from None
        except UnicodeError:  # a label of the name is empty or too long for DNS
            raise NetworkError(_WRONG_HOST.format(host)) from None
    raise NetworkError(f"no free port from {PORT} to {PORT + _NUM_TRIED - 1} on {host}; choose one with --port")


def check_root_path(path: str) -> str:
    """Return the path below which a proxy serves the page, as `/a/b` or empty. Raises ConfigError."""
    if not path.strip("/"):
        return ""
    if not path.startswith("/") or "//" in path or set(path) & set(' "<>\\;%?#'):
        raise ConfigError(f"--root-path: expected a path such as /fedge, got {path!r}")
    return path.rstrip("/")


def rules_of(host: str, port: int, allowed: list[str], root_path: str) -> AccessRules:
    """Return the rules for requests; a server on all interfaces also accepts the machine's own name."""
    names = {host, *allowed}
    if not _is_loopback(host):
        names |= {socket.gethostname(), socket.getfqdn()}
    return AccessRules(frozenset(name.lower() for name in names), root_path, f"fedge-view-{port}")


def address(host: str, port: int, rules: AccessRules) -> str:
    """Return the URL to open, with the token."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}{rules.root_path}/?{TOKEN}={rules.token}"


def serve(folder: Path, listening: socket.socket, rules: AccessRules) -> None:
    """Answer requests until Ctrl-C or SIGTERM; raise the signal again once all connections are closed."""
    workspace = Workspace(folder)
    app = make_app(workspace, rules)

    async def cancellable(scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(asyncio.CancelledError):  # an answer that the shutdown interrupts is not an error
            await app(scope, receive, send)

    config = uvicorn.Config(
        cancellable,
        log_level="error",  # not each request of a stranger that is no HTTP
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
    _Server(config, workspace).run(sockets=[listening])


class _Server(uvicorn.Server):
    """A server that ends its live streams at shutdown; they would never end on their own."""

    def __init__(self, config: uvicorn.Config, workspace: Workspace) -> None:
        super().__init__(config)
        self._news = workspace.news

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._news.close()
        await super().shutdown(sockets)
        if self.force_exit:  # after a second Ctrl-C uvicorn cancels the application, which it would log as an error
            await self.lifespan.shutdown()


def _bind(host: str, port: int) -> socket.socket:
    family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    made = socket.socket(family, kind)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(place)
        made.listen(128)
    except BaseException:
        made.close()
        raise
    return made


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _told(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use; choose another with --port, or drop --port to take a free one"
    if error.errno == errno.EACCES:
        return f"port {port} is not permitted: ports below 1024 need privileges; choose a larger one with --port"
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return _WRONG_HOST.format(host)
    return f"cannot listen on {host}:{port}: {error.strerror or error}; choose others with --host and --port"
