"""The web application: routes, static files and error pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from importlib import import_module
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fedge.core.errors import ConfigError, FedgeError, RunError
from fedge.core.printable import printable
from fedge.view.endpoints import Endpoints, JsonAnswer
from fedge.view.guard import AccessRules, Guard
from fedge.view.pages import Pages
from fedge.view.workspace import Workspace

STATIC = Path(__file__).parent / "static"
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_YEAR_S = 365 * 24 * 3600


def make_app(workspace: Workspace, rules: AccessRules) -> Guard:
    """Return the application for one folder of runs; every request passes the guard first."""
    files = StaticFilesInMemory(workspace)
    pages = Pages(workspace, rules, files.version)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        watching = asyncio.create_task(workspace.watcher.run())
        warming = asyncio.create_task(_warm_up(workspace))
        try:
            yield
        finally:
            for task in (watching, warming):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    def failed(request: Request, error: Exception) -> Response:
        status, told = _explain(error)
        if request.url.path.startswith(("/api/", "/export/", "/static/")):
            return JsonAnswer({"error": told}, status_code=status)
        return pages.error(status, told)

    app = Starlette(
        routes=[Route("/static/{name:path}", files.get), *Endpoints(workspace).routes(), *pages.routes()],
        middleware=[Middleware(GZipMiddleware, minimum_size=2_000, compresslevel=5)],
        exception_handlers={HTTPException: failed, FedgeError: failed, Exception: failed},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # it would redirect to the address behind a proxy
    return Guard(app, rules)


class StaticFilesInMemory:
    """Style sheets, scripts and the Vega bundle: only these names are served, so a path cannot reach any other file."""

    def __init__(self, workspace: Workspace) -> None:
        self._files = {file.name: file.read_bytes() for file in sorted(STATIC.iterdir()) if file.suffix in _TYPES}
        self._bundle = workspace.bundle
        digest = sha256(b"".join(self._files.values())).hexdigest()[:12]
        self.version = digest
        """Part of the URL of every file, so that browsers may cache a version forever and never mix two."""

    def get(self, request: Request) -> Response:
        name = request.path_params["name"].removeprefix(f"{self.version}/")
        is_bundle = name == self._bundle.file_name
        if not is_bundle and name not in self._files:
            raise HTTPException(404)
        data = self._bundle.read() if is_bundle else self._files[name]
        fixed = is_bundle or request.path_params["name"].startswith(self.version)
        cached = f"public, max-age={_YEAR_S}, immutable" if fixed else "no-cache"
        return Response(data, media_type=_TYPES[Path(name).suffix], headers={"Cache-Control": cached})


async def _warm_up(workspace: Workspace) -> None:
    """Prepare what the first chart needs once the first page is sent: it takes seconds, and no request waits for it."""
    await workspace.shown.wait()
    with suppress(FedgeError, ImportError):
        await asyncio.to_thread(import_module, "altair")
        await asyncio.to_thread(workspace.bundle.read)


def _explain(error: Exception) -> tuple[int, str]:
    """Return the HTTP status and the message; paths and tracebacks of unexpected errors go to the terminal only."""
    if isinstance(error, HTTPException):
        told = {404: "there is no such page; go back to Runs", 405: "this address cannot be used that way"}
        return error.status_code, told.get(error.status_code, error.detail)
    if isinstance(error, FedgeError):
        status = 400 if isinstance(error, ConfigError) else 404 if isinstance(error, RunError) else 409
        return status, printable(str(error), "\n")
    return (
        500,
        f"the page failed with {type(error).__name__}, which is a defect of Fedge; the terminal shows the details",
    )
