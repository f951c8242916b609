"""Certificates in real handshakes, with Python's ssl in memory: which are accepted, and which are not."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from fedge.net import pki
from fedge.net.certificates import utc_now
from fedge.net.identity import TlsIdentity, load_client, load_server, request_certificate
from fedge.net.issued import RevocationList

DAY = timedelta(days=1)


def context(identity: TlsIdentity, folder: Path, server: bool) -> ssl.SSLContext:
    file = folder / f"{identity.fingerprint}.pem"
    file.write_bytes(identity.key + identity.certificate)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    made.load_cert_chain(file)
    made.load_verify_locations(cadata=identity.ca.decode())
    return made


def shake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> str:
    """Return the fingerprint that the server sees, once a byte has arrived. Raises the error of either side."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    there = server.wrap_bio(up, down, server_side=True)
    here = client.wrap_bio(down, up, server_hostname=host)
    steps: list[Callable[[], object]] = [here.do_handshake, there.do_handshake, lambda: here.write(b"x")]
    steps += [lambda: there.read(1), lambda: there.write(b"y"), lambda: here.read(1)]
    for _ in range(20):
        for step in list(steps[:2]):
            try:
                step()
            except ssl.SSLWantReadError:
                continue
            steps.remove(step)
        if not steps:
            certificate = there.getpeercert(binary_form=True)
            assert certificate is not None
            return hashlib.sha256(certificate).hexdigest()
    raise AssertionError("the handshake does not end")


class Place:
    """An authority with a server, and clients in directories next to it."""

    def __init__(self, folder: Path, now_days: int = 0) -> None:
        self.folder = folder
        folder.mkdir()
        self.made = utc_now() + now_days * DAY
        pki.init(folder / "pki", ["fl.example.org", "10.0.0.1"], self.made)
        self.server = load_server(folder / "pki", self.made)

    def client(self, name: str, days: int = 0) -> TlsIdentity:
        files = request_certificate(self.folder / name, name)
        now = utc_now() + days * DAY
        pki.sign(self.folder / "pki", files.request, now=now)
        return load_client(self.folder / name, now)

    def connect(self, client: TlsIdentity, host: str = "fl.example.org", server: TlsIdentity | None = None) -> str:
        there = context(server or self.server, self.folder, server=True)
        return shake(there, context(client, self.folder, server=False), host)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "place")


@pytest.mark.parametrize("host", ["fl.example.org", "10.0.0.1", "localhost", "127.0.0.1", "::1"])
def test_server_and_client_authenticate_each_other(place: Place, host: str) -> None:
    client = place.client("a")
    assert place.connect(client, host) == client.fingerprint


def test_wrong_host_name(place: Place) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=r"not valid for 'other\.example\.org'"):
        place.connect(place.client("a"), "other.example.org")
    with pytest.raises(ssl.SSLCertVerificationError, match=r"not valid for '10\.0\.0\.2'"):
        place.connect(place.client("a"), "10.0.0.2")


def test_another_authority(place: Place, tmp_path: Path) -> None:
    other = Place(tmp_path / "other")
    stranger = other.client("a")
    with pytest.raises(ssl.SSLCertVerificationError, match="self-signed certificate in certificate chain"):
        place.connect(stranger)  # the client does not know the server
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        place.connect(stranger._replace(ca=place.server.ca))  # the server does not know the client


def test_no_certificate(place: Place) -> None:
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.load_verify_locations(cadata=place.server.ca.decode())
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        shake(context(place.server, place.folder, server=True), bare, "fl.example.org")


def test_expired(tmp_path: Path) -> None:
    place = Place(tmp_path / "old", now_days=-400)
    old = place.client("a", days=-400)
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate has expired"):
        place.connect(old)  # both have expired, and the client checks first
    pki.init(place.folder / "pki")
    place.server = load_server(place.folder / "pki")
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate has expired"):
        place.connect(old)
    renewed = place.client("a")
    assert place.connect(renewed) == renewed.fingerprint != old.fingerprint


def test_not_yet_valid(place: Place) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="not yet valid"):
        place.connect(place.client("a", days=2))
    client = place.client("b", days=0)
    assert place.connect(client) == client.fingerprint


def test_revoked(place: Place) -> None:
    """The handshake succeeds; the server then looks up the fingerprint."""
    revoked = RevocationList(place.folder / "pki")
    client = place.client("a")
    assert not revoked.is_revoked(place.connect(client))
    pki.revoke(place.folder / "pki", "a")
    assert revoked.is_revoked(place.connect(client))


def test_client_certificate_is_not_accepted_for_a_server(place: Place) -> None:
    """Not even if the client's name is the server's host name."""
    impostor = place.client("fl.example.org")
    with pytest.raises(ssl.SSLCertVerificationError, match="unsuitable certificate purpose"):
        place.connect(place.client("a"), server=impostor)


def test_server_certificate_is_not_accepted_for_a_client(place: Place) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="unsuitable certificate purpose"):
        place.connect(place.server)
