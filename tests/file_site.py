"""A web server on loopback that serves one file and misbehaves on request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass
class Site:
    """The server's content, its behaviour and the requests it received."""

    content: bytes
    ranges: bool = True
    shift: int = 0  # error of the start position in Content-Range
    says_length: bool = True
    cuts: list[int] = field(default_factory=list)  # numbers of bytes after which the next answers break off
    before: Callable[[Site], None] = lambda site: None  # called before each answer
    redirect: str = ""
    status: int = 0
    asked: list[str | None] = field(default_factory=list)  # the Range header of each request
    url: str = ""


@contextmanager
def serving(content: bytes) -> Iterator[Site]:
    """Serve this content under `Site.url`."""
    found = Site(content)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append(self.headers["Range"])
            found.before(found)
            if found.redirect and self.path != "/moved":
                self.send_response(302)
                self.send_header("Location", found.redirect)
                self.end_headers()
                return
            if found.status:
                self.send_error(found.status)
                return
            start = int(self.headers["Range"][6:-1]) if found.ranges and self.headers["Range"] else 0
            if start >= len(found.content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(found.content)}")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header(
                    "Content-Range", f"bytes {start + found.shift}-{len(found.content) - 1}/{len(found.content)}"
                )
            if found.says_length:
                self.send_header("Content-Length", str(len(found.content) - start))
            self.end_headers()
            cut = found.cuts.pop(0) if found.cuts else None
            self.wfile.write(found.content[start:][:cut])

        def log_message(self, *given: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}/a.bin"
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
