"""A running `fedge view`, for tests."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Mapping
from typing import Any

from e2e.command import PATIENCE_S, Process, wait_until
from fedge.view.guard import CSRF_HEADER


class ViewServer:
    """A process that serves the page, once it has printed its address."""

    def __init__(self, process: Process) -> None:
        wait_until(lambda: "token=" in process.out or process.ended)
        found = re.search(r"http://([^/\s]+):(\d+)(\S*)/\?token=(\S+)", process.out)
        assert found is not None, process.err
        self.printed = found[0]
        self.host, self.port, self.root, self.token = found[1], int(found[2]), found[3], found[4]
        self.process = process

    def address(self, path: str = "/", port: int | None = None) -> str:
        """Return the address of a page; `port` is that of a proxy."""
        return f"http://{self.host}:{port or self.port}{self.root}{path}"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def get(self, path: str) -> http.client.HTTPResponse:
        """Return the answer with its headers read, but not its body."""
        return self._ask("GET", path)

    def post(self, path: str, body: Any) -> http.client.HTTPResponse:
        """Send JSON, as the page does."""
        found = re.search(r'name="fedge-csrf" content="(\w+)"', self.get("/").read().decode())
        assert found is not None
        return self._ask("POST", path, json.dumps(body), {CSRF_HEADER: found[1]})

    def _ask(
        self, method: str, path: str, body: str | None = None, more: Mapping[str, str] | None = None
    ) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self.host.strip("[]"), self.port, timeout=PATIENCE_S)
        connection.request(method, f"{self.root}{path}", body, self.headers | dict(more or {}))
        return connection.getresponse()
