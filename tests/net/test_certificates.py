"""Untrusted requests and certificates: what is used, and what is refused."""

from __future__ import annotations

import base64
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from fedge.core.errors import ConfigError, FedgeError, NetworkError
from fedge.net import certificates
from mutations import mutate, watched

NOW = datetime(2030, 5, 1, 12, tzinfo=UTC)
KEY = certificates.make_key()


def request_of(key: Any = KEY, names: tuple[str, ...] = ("clinic-3",)) -> bytes:
    """Return a request with these common names and an extra extension."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name, _validate=False) for name in names])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, algorithm).public_bytes(serialization.Encoding.PEM)


def armoured(der: bytes, label: str) -> bytes:
    body = base64.encodebytes(der).decode()
    return f"-----BEGIN {label}-----\n{body}-----END {label}-----\n".encode()


def raw(pem: bytes) -> bytes:
    return base64.b64decode(b"".join(line for line in pem.splitlines() if not line.startswith(b"-----")))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "clinic-3.csr"


def test_only_name_and_key_of_a_request_are_used(file: Path) -> None:
    file.write_bytes(request_of())
    asked = certificates.read_request(file)
    assert asked.name == "clinic-3"
    assert certificates.key_fingerprint(asked.key) == certificates.key_fingerprint(KEY.public_key())
    ca_key = certificates.make_key()
    ca = certificates.issue_authority(ca_key, NOW)
    issued = certificates.issue_client(ca, ca_key, asked, NOW)
    assert issued.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    assert certificates.is_issued_by(issued, ca)
    assert not certificates.is_issued_by(issued, certificates.issue_authority(ca_key, NOW))  # another name
    assert not certificates.is_issued_by(issued, certificates.issue_authority(certificates.make_key(), NOW))


@pytest.mark.filterwarnings("ignore:Attribute's length")
@pytest.mark.parametrize(
    ("key", "names", "problem"),
    [
        (KEY, (), "one common name"),
        (KEY, ("a", "b"), "one common name"),
        (KEY, ("../../etc/passwd",), "a client's name has"),
        (KEY, (".hidden",), "a client's name has"),
        (KEY, ("a/b",), "a client's name has"),
        (KEY, ("a\nb",), "a client's name has"),
        (KEY, ("a\x00b",), "a client's name has"),
        (KEY, ("é",), "a client's name has"),
        (KEY, ("x" * 65,), "a client's name has|not a certificate request"),
        (KEY, ("server",), "client name .* is reserved"),
        (KEY, ("CA",), "client name .* is reserved"),
        (rsa.generate_private_key(65537, 2048), ("a",), "expected a P-256 key"),
        (ec.generate_private_key(ec.SECP384R1()), ("a",), "expected a P-256 key"),
        (ed25519.Ed25519PrivateKey.generate(), ("a",), "expected a P-256 key"),
    ],
)
def test_requests_that_are_refused(file: Path, key: Any, names: tuple[str, ...], problem: str) -> None:
    file.write_bytes(request_of(key, names))
    with pytest.raises((NetworkError, ConfigError), match=problem):
        certificates.read_request(file)


def test_the_signature_must_be_of_the_key_in_the_request(file: Path) -> None:
    der = bytearray(raw(request_of()))
    der[-1] ^= 1
    file.write_bytes(armoured(bytes(der), "CERTIFICATE REQUEST"))
    with pytest.raises(NetworkError, match="signature of the request is invalid"):
        certificates.read_request(file)


@pytest.mark.parametrize("data", [b"", b"hello", b"\x00" * 100, b"-----BEGIN CERTIFICATE REQUEST-----\n"])
def test_other_files_are_not_requests(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    with pytest.raises(NetworkError, match=r"clinic-3\.csr is not a certificate request"):
        certificates.read_request(file)
    with pytest.raises(NetworkError, match=r"clinic-3\.csr is not a certificate"):
        certificates.read_certificates(file)
    with pytest.raises(NetworkError, match=r"clinic-3\.csr is not a private key"):
        certificates.read_key(file)


def test_files_that_are_too_long_are_not_read() -> None:
    with watched(), pytest.raises(NetworkError, match="too long"):
        certificates.read_request(Path("/dev/zero"))


def test_missing_files_and_directories_are_named(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match=r"nothing\.csr, got: No such file"):
        certificates.read_request(tmp_path / "nothing.csr")
    with pytest.raises(NetworkError, match="Is a directory"):
        certificates.read_request(tmp_path)


def test_mutated_requests_and_certificates_are_refused_or_read(tmp_path: Path) -> None:
    """Mutations raise no other exceptions, and a mutated request is never accepted with another key."""
    rng = random.Random(16)
    ca = certificates.encode_certificates(certificates.issue_authority(KEY, NOW))
    cases = [
        (request_of(), "CERTIFICATE REQUEST", certificates.read_request),
        (ca, "CERTIFICATE", certificates.read_certificates),
        (certificates.encode_key(KEY), "PRIVATE KEY", certificates.read_key),
    ]
    refused = 0
    for pem, label, read in cases:
        for number in range(700):
            data = mutate(pem, rng) if number % 2 else armoured(mutate(raw(pem), rng), label)
            (tmp_path / "file").write_bytes(data)
            with watched():
                try:
                    read(tmp_path / "file")
                except FedgeError:
                    refused += 1
    assert refused > 1000


def test_validity() -> None:
    ca_key = certificates.make_key()
    ca = certificates.issue_authority(ca_key, NOW)
    assert ca.not_valid_before_utc == NOW - timedelta(days=1)
    assert ca.not_valid_after_utc.year == 2040
    server = certificates.issue_server(ca, ca_key, KEY.public_key(), ["a.example.org"], NOW)
    assert server.not_valid_before_utc == NOW - timedelta(days=1)
    assert server.not_valid_after_utc == NOW + timedelta(days=365)
    late = ca.not_valid_after_utc - timedelta(days=3)
    last = certificates.issue_server(ca, ca_key, KEY.public_key(), ["a.example.org"], late)
    assert last.not_valid_after_utc == ca.not_valid_after_utc


def test_encrypted_key_is_refused(tmp_path: Path) -> None:
    locked = KEY.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    (tmp_path / "a.key").write_bytes(locked)
    with pytest.raises(NetworkError, match="expected unencrypted PEM"):
        certificates.read_key(tmp_path / "a.key")
