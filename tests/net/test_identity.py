"""The directory of a client: its key and its certificate."""

from __future__ import annotations

import shutil
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from fedge.core.errors import ConfigError, NetworkError, StorageError
from fedge.net import pki
from fedge.net.certificates import read_request
from fedge.net.identity import load_client, load_server, request_certificate

NOW = datetime(2030, 5, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    pki.init(tmp_path / "pki", ["fl.example.org"], NOW)
    return tmp_path / "pki"


@pytest.fixture
def client(tmp_path: Path, authority: Path) -> Path:
    """Return the directory of a client with a certificate."""
    pki.sign(authority, request_certificate(tmp_path / "a", "a").request, now=NOW)
    return tmp_path / "a"


def test_a_second_request_is_for_the_same_key(tmp_path: Path) -> None:
    first = request_certificate(tmp_path / "deep" / "cert", "clinic-3")
    key = first.key.read_bytes()
    assert request_certificate(tmp_path / "deep" / "cert", "clinic-3") == first
    assert first.key.read_bytes() == key
    assert read_request(first.request).name == "clinic-3"
    assert stat.S_IMODE(first.key.stat().st_mode) == 0o600
    assert stat.S_IMODE(first.key.parent.stat().st_mode) == 0o700


def test_request_for_a_deleted_key_is_replaced(tmp_path: Path) -> None:
    old = request_certificate(tmp_path, "a")
    old.key.unlink()
    new = request_certificate(tmp_path, "a")
    assert new.key_fingerprint != old.key_fingerprint
    pki.init(tmp_path / "pki", ["a"])
    assert pki.sign(tmp_path / "pki", new.request).record.key == new.key_fingerprint


def test_directory_belongs_to_one_client(tmp_path: Path, authority: Path) -> None:
    request_certificate(tmp_path / "a", "a")
    with pytest.raises(ConfigError, match="has the key of a; choose another directory for b"):
        request_certificate(tmp_path / "a", "b")
    with pytest.raises(ConfigError, match="has the keys of ca, server"):
        request_certificate(authority, "b")
    assert not list(tmp_path.rglob("b.*"))


@pytest.mark.parametrize("name", ["", "../a", "a/b", "-a", "a b", "server", "Ca", "x" * 65, "a\n"])
def test_names_that_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"a client's name has|client name .* is reserved"):
        request_certificate(tmp_path / "cert", name)
    assert not (tmp_path / "cert").exists()


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="move the file"):
        request_certificate(tmp_path / "file", "a")


def test_missing_key_and_certificate(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match="fedge client request NAME --cert"):
        load_client(tmp_path)
    request_certificate(tmp_path, "a")
    with pytest.raises(
        NetworkError,
        match=r"no certificate .*a\.crt yet; send .*a\.csr to the server's operator, who runs `fedge pki sign a\.csr`",
    ):
        load_client(tmp_path)


def test_mismatched_certificates(tmp_path: Path, authority: Path, client: Path) -> None:
    other = request_certificate(tmp_path / "b", "b")
    pki.sign(authority, other.request, now=NOW)
    good = (client / "a.crt").read_bytes()
    shutil.copy(other.certificate, client / "a.crt")
    with pytest.raises(NetworkError, match="is the certificate of 'b', but the key belongs to 'a'"):
        load_client(client, NOW)
    again = request_certificate(tmp_path / "again", "a")
    pki.sign(authority, again.request, client / "a.crt", replace=True, now=NOW)
    with pytest.raises(NetworkError, match="was issued for another key than"):
        load_client(client, NOW)
    (client / "a.crt").write_bytes(good[: good.index(b"-----BEGIN", 1)])
    with pytest.raises(NetworkError, match="expected a certificate followed by its authority's"):
        load_client(client, NOW)
    pki.init(tmp_path / "elsewhere", ["a"], NOW)
    foreign = (tmp_path / "elsewhere" / "ca.crt").read_bytes()
    (client / "a.crt").write_bytes(good[: good.index(b"-----BEGIN", 1)] + foreign)
    with pytest.raises(NetworkError, match="was not issued by the authority"):
        load_client(client, NOW)


def test_expired_and_not_yet_valid(authority: Path, client: Path) -> None:
    with pytest.raises(NetworkError, match=r"a\.crt expired on 2031-05-01; send .*`fedge pki sign"):
        load_client(client, NOW + 366 * DAY)
    with pytest.raises(
        NetworkError, match=r"server\.crt expired on 2031-05-01; create a new one with `fedge pki init --pki"
    ):
        load_server(authority, NOW + 366 * DAY)
    with pytest.raises(NetworkError, match="this machine's clock shows 2030-04-29 12:00 UTC; set the clock"):
        load_client(client, NOW - 2 * DAY)
    assert load_client(client, NOW - timedelta(hours=23)).name == "a"


@pytest.mark.parametrize(("days", "notices"), [(334, []), (336, ["29 days"]), (364, ["1 day,"]), (365, ["0 days"])])
def test_expiry_is_announced(authority: Path, client: Path, days: int, notices: list[str]) -> None:
    for found in (load_client(client, NOW + days * DAY), load_server(authority, NOW + days * DAY)):
        assert len(found.notices) == len(notices)
        assert all(
            part in notice and "2031-05-01" in notice for part, notice in zip(notices, found.notices, strict=True)
        )


def test_readable_key_is_announced(client: Path) -> None:
    (client / "a.key").chmod(0o644)
    (notice,) = load_client(client, NOW).notices
    assert "is readable by other users" in notice


def test_a_missing_server_certificate(authority: Path) -> None:
    (authority / "server.crt").unlink()
    with pytest.raises(NetworkError, match=r"server\.crt"):
        load_server(authority, NOW)
    (authority / "server.crt").write_text("damaged")
    pki.init(authority, ["fl.example.org"], NOW)
    assert load_server(authority, NOW).hosts[0] == "fl.example.org"
