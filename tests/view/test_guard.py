"""Requests that other sites, other users and other names of this machine could send."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from fedge.view.guard import CSRF_HEADER, AccessRules

OpenPage = Callable[..., TestClient]
ADDRESSES = ["/", "/compare", "/api/runs", "/api/live", "/api/news", "/export/runs.csv", "/run/0", "/nothing"]


@pytest.mark.parametrize("path", ADDRESSES)
def test_nothing_is_told_without_the_token(runs: Path, open_page: OpenPage, path: str) -> None:
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


def test_a_token_does_not_lead_to_another_site(runs: Path, open_page: OpenPage) -> None:
    rules = AccessRules()
    client = open_page(runs, rules, trusted=False)
    answer = client.get(f"http://localhost//evil.example/?token={rules.token}", follow_redirects=False)
    assert answer.headers["location"].startswith("/evil.example")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "localhost.evil.example", "", "[", "127.0.0.1.nip.io"]
)
def test_a_name_that_others_control_is_refused(page: TestClient, host: str) -> None:
    answer = page.get("/", headers={"Host": host})
    assert answer.status_code == 400
    assert "Host" in answer.text or "host name" in answer.text


@pytest.mark.parametrize("host", ["localhost:9", "127.0.0.1:8765", "[::1]:8765", "192.168.0.7", "lab.example"])
def test_names_that_nobody_else_controls(runs: Path, open_page: OpenPage, host: str) -> None:
    client = open_page(runs, AccessRules(frozenset({"lab.example"})))
    assert client.get("/api/runs", headers={"Host": host}).status_code == 200


def test_headers_of_every_answer(page: TestClient) -> None:
    for path in ("/", "/api/runs", "/nothing", "/static/main.js"):
        headers = page.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"


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
    """Proxies pass the prefix on, or remove it."""
    rules = AccessRules(root_path="/fedge")
    text = open_page(runs, rules).get(path).text
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


def test_odd_cookies_of_other_servers_do_no_harm(runs: Path, open_page: OpenPage) -> None:
    rules = AccessRules()
    client = open_page(runs, rules, trusted=False)
    cookie = f'a={{"x": 1, [2]}}; b c@=1; fedge-view={rules.token}; =; ;'
    assert client.get("/", headers={"Cookie": cookie}).status_code == 200
