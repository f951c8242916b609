"""Certificates for tests of the transport, good and bad."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from fedge.net.transport import Credentials

DAY = timedelta(days=1)


class Authority:
    """A certificate authority that issues any certificate that a test needs."""

    def __init__(self, name: str = "test CA") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        builder = _builder(self._name, self._name, self._key.public_key(), -DAY, 10 * DAY)
        basic = x509.BasicConstraints(ca=True, path_length=0)
        self._certificate = builder.add_extension(basic, critical=True).sign(self._key, SHA256())
        self.pem = self._certificate.public_bytes(Encoding.PEM)

    def issue(
        self,
        name: str,
        hosts: Sequence[str] = (),
        begins: timedelta = -DAY,
        ends: timedelta = DAY,
        ca: bytes | None = None,
    ) -> Credentials:
        """Return a key and a certificate; times are from now. `ca` is the CA to trust; default: this authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_named(name), self._name, key.public_key(), begins, ends)
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        certificate = builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM)
        return Credentials(pem, certificate, ca or self.pem)

    def server(self, *hosts: str, begins: timedelta = -DAY, ends: timedelta = DAY) -> Credentials:
        return self.issue("server", hosts or ("localhost", "127.0.0.1"), begins, ends)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, begins: timedelta, ends: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
    )
