"""Access control: checks of every request, and the security headers of every answer.

A browser also runs pages of other sites, and other users of the machine can connect to its ports. Therefore each
request needs a token, `Host` must be a name that no foreign DNS controls, and a request that changes something must
come from our own page.
"""

from __future__ import annotations

import hmac
import ipaddress
from dataclasses import dataclass, field
from hashlib import sha256
from secrets import token_urlsafe
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN = "token"
CSRF_HEADER = "X-Fedge-Token"
PUBLIC = "/static/"
"""Files below this path do not depend on runs and need no token, so that the page about a missing token has its style.
"""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "worker-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_SAFE_METHODS = ("GET", "HEAD")


@dataclass(frozen=True)
class AccessRules:
    """The rules for requests. `hosts` are the names that `Host` may contain besides IP addresses and localhost."""

    hosts: frozenset[str] = frozenset()
    root_path: str = ""
    cookie: str = "fedge-view"  # cookies ignore ports, so two servers on one machine need two names
    token: str = field(default_factory=lambda: token_urlsafe(32))

    @property
    def csrf(self) -> str:
        """The value that our pages send with a request that changes something."""
        return hmac.new(self.token.encode(), b"csrf", sha256).hexdigest()

    def host_problem(self, host: str) -> str | None:
        """Return why a request with this `Host` is refused; None if it is allowed."""
        name = _host_name(host)
        if name is None:
            return "expected a Host header with a host name, got none that can be read"
        if name == "localhost" or name in self.hosts or _is_address(name):
            return None
        return (
            f"the host name {name!r} is not known here, which protects against DNS rebinding; open the page as "
            f"localhost, by its IP address, or start it with --allow-host {name}"
        )

    def knows(self, token: str | None) -> bool:
        return token is not None and hmac.compare_digest(token.encode(), self.token.encode())

    def change_problem(self, headers: Headers) -> str | None:
        """Return why a request may not change anything; None if it may."""
        if not hmac.compare_digest(headers.get(CSRF_HEADER, "").encode(), self.csrf.encode()):
            return f"expected the header {CSRF_HEADER} with the value in the page; reload the page and try again"
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return f"expected a request from this page, got one from {headers['sec-fetch-site']}; use the page itself"
        origin = headers.get("origin")
        if origin is not None and not self._is_own(origin, headers.get("host", "")):
            return f"expected a request from this page, got one from {origin}; use the page itself"
        return None

    def _is_own(self, origin: str, host: str) -> bool:
        """Whether a page of this origin is ours; behind a proxy, `Host` may differ from the page's host."""
        try:
            there = urlsplit(origin)
            return there.netloc == host or there.hostname in self.hosts
        except ValueError:
            return False


class Guard:
    """Refuses requests that break the rules, and replaces a valid token in the URL by a cookie."""

    def __init__(self, app: ASGIApp, rules: AccessRules) -> None:
        self._app, self._rules = app, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        root = self._rules.root_path
        if root and f"{scope['path']}/".startswith(f"{root}/"):  # proxies may keep the prefix or remove it
            scope = {**scope, "path": scope["path"].removeprefix(root) or "/"}

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        answer = self._refusal(scope)
        await (answer or self._app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers, rules = Headers(scope=scope), self._rules
        if problem := rules.host_problem(headers.get("host", "")):
            return _refused(400, problem)
        if scope["path"].startswith(PUBLIC) and scope["method"] in _SAFE_METHODS:
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == TOKEN]
        if given and rules.knows(given[0]) and scope["method"] in _SAFE_METHODS:
            return self._with_cookie(scope, [pair for pair in query if pair[0] != TOKEN])
        if not any(map(rules.knows, _tokens(headers, rules.cookie))):
            return _refused(
                401,
                "this page needs its token: open the address that `fedge view` printed, with ?token=... in it.\n"
                "If you have just done so from another site, reload this page once.",
            )
        if scope["method"] not in _SAFE_METHODS and (problem := rules.change_problem(headers)):
            return _refused(403, problem)
        return None

    def _with_cookie(self, scope: Scope, query: list[tuple[str, str]]) -> Response:
        """Redirect the browser to the same URL without the token, which must not stay in the history or be shared."""
        path = scope["path"].lstrip("/")  # "//host" would redirect to another host
        there = f"{self._rules.root_path}/{path}" + (f"?{urlencode(query)}" if query else "")
        answer = RedirectResponse(there, status_code=303)
        answer.set_cookie(
            self._rules.cookie, self._rules.token, httponly=True, samesite="strict", path=self._rules.root_path or "/"
        )
        return answer


def _tokens(headers: Headers, cookie: str) -> list[str]:
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    found = [bearer.strip()] if scheme.lower() == "bearer" else []
    jar = cookie_parser(headers.get("cookie", ""))  # a cookie of another server on this host may be malformed
    return [*found, *([jar[cookie]] if cookie in jar else [])]


def _host_name(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    """Whether the host is an IP address, which DNS cannot redirect."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _refused(status: int, problem: str) -> Response:
    return PlainTextResponse(f"{problem}\n", status_code=status)
