"""Requests from other sites, other users and other host names."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from fedge.view.guard import CSRF_HEADER, AccessRules

OpenPage = Callable[..., TestClient]
ADDRESSES = ["/", "/compare", "/api/runs", "/api/live", "/api/news", "/export/runs.csv", "/run/0", "/nothing"]


@pytest.mark.parametrize("path", ADDRESSES)
def test_every_page_needs_the_token(runs: Path, open_page: OpenPage, path: str) -> None:
    answer = open_page(runs, trusted=False).get(path)
    assert answer.status_code == 401
    assert "fedge view" in answer.text
    assert "seed-1" not in answer.text


@pytest.mark.parametrize("token", ["", "x", "ä", "a" * 10_000])
def test_a_wrong_token_is_refused(runs: Path, open_page: OpenPage, token: str) -> None:
    client = open_page(runs, trusted=False)
    assert client.get("/", params={"token": token}).status_code == 401
    assert client.get("/", headers={"Cookie": f"fedge-view={token.encode().hex()}"}).status_code == 401


def test_the_token_becomes_a_cookie_and_leaves_the_address(runs: Path, open_page: OpenPage) -> None:
    rules = AccessRules()
    client = open_page(runs, rules, trusted=False)
    answer = client.get("/", params={"token": rules.token, "q": "seed"}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/?q=seed")
    cookie = answer.headers["set-cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Path=/"))
    assert client.get("/").status_code == 200


@pytest.mark.parametrize(
    ("path", "there"),
    [
        ("//evil.example/", "/evil.example/"),
        ("///evil.example", "/evil.example"),
        ("/x/y", "/x/y"),
        ("/?q=&x=1", "/?q=&x=1"),
    ],
)
def test_a_token_leads_to_the_same_address_and_never_to_another_site(
    runs: Path, open_page: OpenPage, path: str, there: str
) -> None:
    rules = AccessRules()
    client = open_page(runs, rules, trusted=False)
    end = f"{'&' if '?' in path else '?'}token={rules.token}"
    answer = client.get(f"http://localhost{path}{end}", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, there)


def test_a_token_is_accepted_only_as_parameter_or_bearer(runs: Path, open_page: OpenPage) -> None:
    rules = AccessRules()
    client = open_page(runs, rules, trusted=False)
    for query in (f"q={rules.token}", f"token=x&token={rules.token}", f"Token={rules.token}"):
        assert client.get(f"/?{query}", follow_redirects=False).status_code == 401, query
    for header in (f"Basic {rules.token}", rules.token, f"Bearer{rules.token}", "Bearer", "Bearer "):
        assert client.get("/", headers={"Authorization": header}).status_code == 401, header
    assert client.get("/", headers={"Cookie": f"other={rules.token}"}).status_code == 401
    for header in (f"bearer {rules.token}", f"BEARER   {rules.token}"):
        assert client.get("/", headers={"Authorization": header}).status_code == 200, header
    assert len(rules.token) >= 43  # 32 random bytes


def test_a_token_in_the_address_changes_nothing(runs: Path, open_page: OpenPage) -> None:
    """Another site can send a form here, but not a header: an address with the token must not suffice to write."""
    rules = AccessRules()
    client = open_page(runs, rules, trusted=False)
    key = key_of(open_page(runs, rules))
    for headers in ({}, {CSRF_HEADER: rules.csrf}):
        answer = client.post(f"/api/notes/{key}?token={rules.token}", json={"tags": ["a"]}, headers=headers)
        assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)
    assert not (runs / "fedge-notes.json").exists()


def test_only_reading_files_of_the_page_needs_no_token(runs: Path, open_page: OpenPage) -> None:
    client = open_page(runs, trusted=False)
    assert client.get("/static/page.css").status_code == 200
    assert client.head("/static/page.css").status_code in (200, 405)
    assert client.post("/static/page.css").status_code == 401
    assert client.get("/staticx").status_code == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "localhost.evil.example", "", "[", "127.0.0.1.nip.io"]
)
def test_a_name_that_others_control_is_refused(page: TestClient, host: str) -> None:
    answer = page.get("/", headers={"Host": host})
    assert answer.status_code == 400
    unreadable = host in ("", "[")
    assert ("expected a Host header" in answer.text) == unreadable
    assert ("--allow-host" in answer.text) != unreadable


@pytest.mark.parametrize("host", ["localhost:9", "127.0.0.1:8765", "[::1]:8765", "192.168.0.7", "lab.example"])
def test_names_that_no_foreign_dns_controls_are_accepted(runs: Path, open_page: OpenPage, host: str) -> None:
    client = open_page(runs, AccessRules(frozenset({"lab.example"})))
    assert client.get("/api/runs", headers={"Host": host}).status_code == 200


HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "worker-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def test_headers_of_every_answer(page: TestClient) -> None:
    for path in ("/", "/api/runs", "/nothing", "/static/main.js", "/export/runs.csv"):
        assert HEADERS.items() <= dict(page.get(path).headers).items(), path
    for refused in (page.get("/", headers={"Host": "evil.example"}), page.get("/", headers={"Authorization": "x"})):
        assert refused.status_code in (400, 401)
        assert HEADERS.items() <= dict(refused.headers).items()


def test_cache_headers(page: TestClient) -> None:
    """Pages hold results and are never stored; files with their version in the address are stored for a year."""
    text = page.get("/").text
    assert page.get("/").headers["cache-control"] == page.get("/api/runs").headers["cache-control"] == "no-store"
    assert page.get("/static/main.js").headers["cache-control"] == "no-cache"
    (script,) = re.findall(r'src="(/static/\w+/main.js)"', text)
    assert page.get(script).headers["cache-control"] == "public, max-age=31536000, immutable"
    assert page.get(script).text == page.get("/static/main.js").text


def key_of(page: TestClient) -> str:
    key: str = page.get("/api/runs?limit=1").json()["rows"][0]["key"]
    return key


def test_a_note_needs_the_header_of_the_page(runs: Path, open_page: OpenPage) -> None:
    rules = AccessRules()
    page = open_page(runs, rules)
    key, good = key_of(page), {CSRF_HEADER: rules.csrf}
    assert page.post(f"/api/notes/{key}", json={"tags": ["a"]}).status_code == 403
    assert page.post(f"/api/notes/{key}", json={"tags": ["a"]}, headers={CSRF_HEADER: "x"}).status_code == 403
    for foreign in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
        assert page.post(f"/api/notes/{key}", json={"tags": ["a"]}, headers=good | foreign).status_code == 403
    assert not (runs / "fedge-notes.json").exists()
    own = good | {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    assert page.post(f"/api/notes/{key}", json={"tags": ["a"]}, headers=own).status_code == 200
    assert page.get(f"/api/notes/{key}").status_code in (404, 405)


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd",
        "/run/../../etc/passwd",
        "/run/%2e%2e%2f%2e%2e", "/api/run/..%2f..%2fetc%2fpasswd", "/export/chart/..%2f..%2fx.svg",
    ],
)  # fmt: skip
def test_no_path_leads_outside(page: TestClient, path: str) -> None:
    answer = page.get(path)
    assert answer.status_code in (400, 404)
    assert "root:" not in answer.text
    assert "make_app" not in answer.text


@pytest.mark.parametrize("path", ["/fedge/", "/"])
def test_below_a_root_path(runs: Path, open_page: OpenPage, path: str) -> None:
    """Proxies keep the prefix or remove it."""
    rules = AccessRules(root_path="/fedge")
    answer = open_page(runs, rules).get(path)
    assert answer.status_code == 200
    text = answer.text
    links = re.findall(r'(?:href|src|action)="([^"#]+)"', text)
    assert links
    assert all(link.startswith("/fedge/") for link in links)


def test_an_origin_is_that_of_the_page(runs: Path, open_page: OpenPage) -> None:
    rules = AccessRules(frozenset({"lab.example"}))
    page = open_page(runs, rules)
    address = f"/api/notes/{key_of(page)}"
    for origin, status in {
        "http://localhost": 200, "https://lab.example": 200, "http://localhost:9": 403, "http://127.0.0.1": 403,
        "http://[": 403, "": 403,
    }.items():  # fmt: skip
        answer = page.post(address, json={}, headers={CSRF_HEADER: rules.csrf, "Origin": origin})
        assert answer.status_code == status, origin


def test_malformed_cookies_of_other_servers_are_ignored(runs: Path, open_page: OpenPage) -> None:
    rules = AccessRules()
    client = open_page(runs, rules, trusted=False)
    cookie = f'a={{"x": 1, [2]}}; b c@=1; fedge-view={rules.token}; =; ;'
    assert client.get("/", headers={"Cookie": cookie}).status_code == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/fedge", 200), ("/fedge/api/runs", 200), ("/api/runs", 200), ("/fedge/fedge/api/runs", 404),
        ("/fedgex/api/runs", 404), ("/x/fedge/api/runs", 404),
    ],
)  # fmt: skip
def test_only_the_whole_prefix_is_removed(runs: Path, open_page: OpenPage, path: str, status: int) -> None:
    assert open_page(runs, AccessRules(root_path="/fedge")).get(path).status_code == status


@pytest.mark.parametrize("path", ["/fedge/compare/", "/compare/", "/api/chart/..%2f", "/api/runs/"])
def test_no_redirect_leads_past_the_root_path(runs: Path, open_page: OpenPage, path: str) -> None:
    """A redirect by the router would name the server behind the proxy."""
    answer = open_page(runs, AccessRules(root_path="/fedge")).get(path, follow_redirects=False)
    assert (answer.status_code, "location" in answer.headers) == (404, False)
    assert "there is no such page" in answer.text


def test_the_cookie_of_a_page_below_a_root_path(runs: Path, open_page: OpenPage) -> None:
    """Browsers do not send it to other applications on the proxy's host."""
    rules = AccessRules(root_path="/fedge", cookie="fedge-view-8765")
    client = open_page(runs, rules, trusted=False)
    for path in ("/fedge/compare", "/compare"):
        answer = client.get(path, params={"token": rules.token}, follow_redirects=False)
        assert answer.headers["location"] == "/fedge/compare"
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"fedge-view-8765={rules.token};")
        assert "Path=/fedge;" in f"{cookie};"
