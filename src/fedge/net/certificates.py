"""X.509 certificates of the networked runtime: P-256 keys, and one authority that issues all certificates.

Needs the extra `net`. Untrusted bytes (requests, certificates) are checked before they are used.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec

from fedge.core.errors import ConfigError, FedgeError, NetworkError
from fedge.core.printable import printable
from fedge.core.storage import reading
from fedge.net.host_names import check_hosts, parse_ip
from fedge.net.protocol import Name

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:
    raise FedgeError("certificates need cryptography, which is not installed; pip install 'fedge[net]'") from None

AUTHORITY_LIFE = timedelta(days=3652)
LIFE = timedelta(days=365)
"""Validity of a server's or a client's certificate."""
SKEW = timedelta(days=1)
"""Certificates become valid this long before they are issued, since clocks differ."""
WARNING = timedelta(days=30)
"""A certificate that expires within this time is worth a warning."""
MAX_BYTES = 1 << 16
"""Size limit of a file with a request, a key or certificates."""
RESERVED = ("ca", "server")
"""Names that no client may have, since the authority's files use them."""

_DAMAGED = (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion)
"""Exceptions that malformed certificates may raise."""

PrivateKey = ec.EllipticCurvePrivateKey
PublicKey = ec.EllipticCurvePublicKey
Certificate = x509.Certificate


class SigningRequest(NamedTuple):
    """A verified request: its signature proves that the sender has the private key."""

    name: str
    key: PublicKey


def utc_now() -> datetime:
    """Return the current time, in whole seconds as in certificates."""
    return datetime.now(UTC).replace(microsecond=0)


def check_name(name: str) -> str:
    """Return the name if it is valid for a client; raise a ConfigError otherwise."""
    try:
        msgspec.convert(name, Name)
    except msgspec.ValidationError:
        raise ConfigError(
            "a client's name has 1 to 64 letters, digits, '.', '_' and '-', and starts with a letter or a digit; "
            f"got {printable(name[:80])!r}"
        ) from None
    if name.lower() in RESERVED:
        raise ConfigError(f"the client name {name} is reserved: expected a name other than {' and '.join(RESERVED)}")
    return name


def make_key() -> PrivateKey:
    """Return a new P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def encode_key(key: PrivateKey) -> bytes:
    """Return a private key as unencrypted PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def encode_certificates(*certificates: Certificate) -> bytes:
    """Return certificates as concatenated PEM."""
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)


def fingerprint(certificate: Certificate) -> str:
    """Return the SHA-256 of a certificate's DER, in hex."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def key_fingerprint(key: PublicKey) -> str:
    """Return the SHA-256 of a public key, in hex: the same in a request and in every certificate for it."""
    digest = hashes.Hash(hashes.SHA256())
    digest.update(key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo))
    return digest.finalize().hex()


def common_name(subject: x509.Name) -> str | None:
    """Return the common name; None unless there is exactly one."""
    found = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if len(found) == 1 else None


def host_names(certificate: Certificate) -> list[str]:
    """Return the host names and addresses in a server's certificate."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(each.value) for each in names if isinstance(each, x509.DNSName | x509.IPAddress)]


def make_request(name: str, key: PrivateKey) -> bytes:
    """Return a request to sign a client's key, as PEM."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(_named(check_name(name)))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def read_bounded(path: Path) -> bytes:
    """Return the content of a small file; raise a NetworkError if it is missing or larger than MAX_BYTES."""
    with reading(path):
        try:
            with path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise NetworkError(f"expected a file {path}, got: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise NetworkError(f"{path} is too long: expected a request, key or certificate of at most {MAX_BYTES} bytes")
    return data


def read_request(path: Path) -> SigningRequest:
    """Return the name and public key of a client's request; raise a NetworkError if it is invalid."""
    data = read_bounded(path)
    try:
        request = x509.load_pem_x509_csr(data)
        name, key, genuine = common_name(request.subject), request.public_key(), request.is_signature_valid
    except _DAMAGED as error:
        raise NetworkError(
            f"{path} is not a certificate request: expected a file from `fedge client request`, but {_reason(error)}"
        ) from None
    if not genuine:
        raise NetworkError(f"{path}: the signature of the request is invalid; ask the client to send it again")
    if name is None:
        raise NetworkError(f"{path}: expected a request with exactly one common name, the client's name")
    return SigningRequest(check_name(name), _p256(key, path))


def read_key(path: Path) -> PrivateKey:
    """Return the P-256 key in a file; raise a NetworkError if there is none."""
    data = read_bounded(path)
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except _DAMAGED as error:
        raise NetworkError(f"{path} is not a private key: expected unencrypted PEM, but {_reason(error)}") from None
    if not isinstance(key, PrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise NetworkError(f"{path}: expected a P-256 key, as fedge creates it, got another kind")
    return key


def read_certificates(path: Path) -> list[Certificate]:
    """Return the one or more certificates in a file; raise a NetworkError if one cannot be parsed completely."""
    data = read_bounded(path)
    try:
        found = x509.load_pem_x509_certificates(data)
        for each in found:
            host_names(each)
            each.public_key()
    except _DAMAGED as error:
        raise NetworkError(f"{path} is not a certificate: expected PEM, but {_reason(error)}") from None
    return found


def is_issued_by(certificate: Certificate, authority: Certificate) -> bool:
    """Return whether the authority signed the certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (*_DAMAGED, InvalidSignature):
        return False
    return True


def issue_authority(key: PrivateKey, now: datetime) -> Certificate:
    """Return the self-signed certificate of a new authority."""
    subject = _named(f"fedge authority {secrets.token_hex(8)}")
    usage = _usage(digital_signature=False, key_cert_sign=True, crl_sign=True)
    return (
        x509.CertificateBuilder()
        .issuer_name(subject)
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def issue_server(
    ca: Certificate, ca_key: PrivateKey, key: PublicKey, hosts: Sequence[str], now: datetime
) -> Certificate:
    """Return a server's certificate for these names and addresses."""
    addresses = [(parse_ip(host), host) for host in check_hosts(hosts)]
    names = [x509.DNSName(host) if address is None else x509.IPAddress(address) for address, host in addresses]
    return _issue(ca, ca_key, key, "fedge server", names, ExtendedKeyUsageOID.SERVER_AUTH, now)


def issue_client(ca: Certificate, ca_key: PrivateKey, request: SigningRequest, now: datetime) -> Certificate:
    """Return a client's certificate. It is useless for a server: it has the wrong key usage and no host name."""
    names = [x509.UniformResourceIdentifier(f"urn:fedge:client:{request.name}")]
    return _issue(ca, ca_key, request.key, request.name, names, ExtendedKeyUsageOID.CLIENT_AUTH, now)


def _issue(
    ca: Certificate,
    ca_key: PrivateKey,
    key: PublicKey,
    name: str,
    names: Sequence[x509.GeneralName],
    purpose: x509.ObjectIdentifier,
    now: datetime,
) -> Certificate:
    return (
        x509.CertificateBuilder()
        .issuer_name(ca.subject)
        .subject_name(_named(name))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(max(now - SKEW, ca.not_valid_before_utc))
        .not_valid_after(min(now + LIFE, ca.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _usage(digital_signature: bool, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _p256(key: object, path: Path) -> PublicKey:
    if isinstance(key, PublicKey) and isinstance(key.curve, ec.SECP256R1):
        return key
    raise NetworkError(f"{path}: expected a P-256 key, as `fedge client request` creates it, got another kind")


def _reason(error: Exception) -> str:
    return printable(str(error)[:200]) or type(error).__name__
