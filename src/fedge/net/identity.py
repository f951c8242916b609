"""The identity of a server or a client: its key, its certificate and the authority that both sides trust.

A client's directory holds its key, `NAME.key`, which never leaves it; its certificate request, `NAME.csr`; and
`NAME.crt` from the server's operator, with the client's certificate followed by the authority's.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from fedge.core.errors import ConfigError, FedgeError, NetworkError
from fedge.core.storage import stamp_of, write_atomic, writing
from fedge.net.certificates import (
    WARNING,
    Certificate,
    check_name,
    common_name,
    encode_certificates,
    encode_key,
    fingerprint,
    host_names,
    is_issued_by,
    key_fingerprint,
    make_key,
    make_request,
    read_certificates,
    read_key,
    utc_now,
)
from fedge.net.transport import Credentials

CA_CERTIFICATE = "ca.crt"
SERVER_KEY = "server.key"
SERVER_CERTIFICATE = "server.crt"
LOCK = "lock"

_AGAIN = "try again"


class TlsIdentity(NamedTuple):
    """What one side of a connection presents, and the authority that it trusts, as PEM."""

    name: str
    key: bytes
    certificate: bytes
    ca: bytes
    fingerprint: str  # of the certificate: SHA-256 in hex
    ca_fingerprint: str
    expires: datetime
    hosts: tuple[str, ...]  # names and addresses of a server; empty for a client
    notices: tuple[str, ...]  # warnings: certificate expires soon, key readable by others

    @property
    def credentials(self) -> Credentials:
        """What a connection needs of it."""
        return Credentials(self.key, self.certificate, self.ca)


class RequestFiles(NamedTuple):
    """The files of `request_certificate` in a client's directory."""

    name: str
    key: Path
    request: Path
    certificate: Path  # where it belongs; it may not exist yet
    key_fingerprint: str


def load_server(folder: Path, now: datetime | None = None) -> TlsIdentity:
    """Return the server's identity from its authority's directory, without reading the authority's key.

    Raises NetworkError if a file is missing, damaged, mismatched or expired.
    """
    if not (folder / CA_CERTIFICATE).exists():
        raise NetworkError(f"no {CA_CERTIFICATE} in {folder}; create it with `fedge pki init --pki {folder}`")
    renewal = f"create a new one with `fedge pki init --pki {folder}`"
    (ca, *_) = read_certificates(folder / CA_CERTIFICATE)
    (certificate, *_) = read_certificates(folder / SERVER_CERTIFICATE)
    return _identity("server", folder / SERVER_KEY, folder / SERVER_CERTIFICATE, certificate, ca, renewal, now)


class RenewedIdentity:
    """Detects a renewed server certificate, so that it is used without a restart."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = self._stamp()

    def __call__(self) -> Credentials | None:
        """Return the new credentials if the certificate was renewed, else None. Never raises."""
        stamp = self._stamp()
        if stamp == self._seen:
            return None
        try:
            found = load_server(self._folder)
        except (FedgeError, OSError):  # half written: checked again when the next client connects
            return None
        self._seen = stamp
        return found.credentials

    def _stamp(self) -> tuple[int, ...]:
        return stamp_of(self._folder / SERVER_CERTIFICATE)


def load_client(folder: Path, now: datetime | None = None) -> TlsIdentity:
    """Return the identity of the client whose key and certificate are in a directory.

    Raises NetworkError if a file is missing, damaged, mismatched or expired.
    """
    name = _owner(folder)
    if name is None:
        raise NetworkError(f"no key in {folder}; create one with `fedge client request NAME --cert {folder}`")
    path = folder / f"{name}.crt"
    request = (
        f"send {folder / name}.csr to the server's operator, who runs `fedge pki sign {name}.csr`, and put the "
        f"returned {path.name} into {folder}"
    )
    if not path.exists():
        raise NetworkError(f"no certificate {path} yet; {request}")
    certificate, *rest = read_certificates(path)
    if len(rest) != 1:
        raise NetworkError(f"{path}: expected a certificate followed by its authority's, as from `fedge pki sign`")
    if common_name(certificate.subject) != name:
        raise NetworkError(
            f"{path} is the certificate of {common_name(certificate.subject)!r}, but the key belongs to {name!r}; "
            f"{request}"
        )
    return _identity(name, folder / f"{name}.key", path, certificate, rest[0], request, now)


def request_certificate(folder: Path, name: str) -> RequestFiles:
    """Create a key, unless the directory has one, and a request to sign it; idempotent.

    Raises a ConfigError if the name is invalid or the directory has another client's key.
    """
    check_name(name)
    with locked(folder):
        owner = _owner(folder)
        if owner not in (None, name):
            raise ConfigError(f"{folder} has the key of {owner}; choose another directory for {name} with --cert")
        files = [folder / f"{name}.{suffix}" for suffix in ("key", "csr", "crt")]
        if owner is None:
            write_atomic(files[0], encode_key(make_key()), secret=True)
        key = read_key(files[0])
        write_atomic(files[1], make_request(name, key))  # always: an existing one may be for a deleted key
    return RequestFiles(name, files[0], files[1], files[2], key_fingerprint(key.public_key()))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on a directory; a new directory is readable by its owner only."""
    with writing(folder, _AGAIN):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)


def end_notice(what: str, end: datetime, now: datetime) -> str | None:
    """Return a warning if a certificate expires soon, else None."""
    days = (end - now).days
    return None if end - now > WARNING else f"{what} expires in {days} day{'s' * (days != 1)}, on {end:%Y-%m-%d}"


def _owner(folder: Path) -> str | None:
    """Return the name of the client whose key is in a directory; None if there is no key."""
    names = sorted(path.stem for path in folder.glob("*.key"))
    if len(names) > 1:
        raise ConfigError(f"{folder} has the keys of {', '.join(names)}; expected a separate directory per client")
    return check_name(names[0]) if names else None


def _identity(
    name: str, key_path: Path, path: Path, certificate: Certificate, ca: Certificate, remedy: str, now: datetime | None
) -> TlsIdentity:
    now = now or utc_now()
    key = read_key(key_path)
    if certificate.public_key() != key.public_key():
        raise NetworkError(f"{path} was issued for another key than {key_path}; {remedy}")
    if not is_issued_by(certificate, ca):
        raise NetworkError(f"{path} was not issued by the authority {fingerprint(ca)}; {remedy}")
    for each, what in ((certificate, str(path)), (ca, f"the authority of {path}")):
        if now > each.not_valid_after_utc:
            raise NetworkError(f"{what} expired on {each.not_valid_after_utc:%Y-%m-%d}; {remedy}")
        if now < each.not_valid_before_utc:
            raise NetworkError(
                f"{what} is valid from {each.not_valid_before_utc:%Y-%m-%d %H:%M} UTC, "
                f"but this machine's clock shows {now:%Y-%m-%d %H:%M} UTC; set the clock"
            )
    end = min(certificate.not_valid_after_utc, ca.not_valid_after_utc)
    notice = end_notice(str(path), end, now)
    notices = [f"{notice}; {remedy}"] if notice else []
    if key_path.stat().st_mode & 0o077:
        notices.append(f"{key_path} is readable by other users of this machine; run `chmod 600 {key_path}`")
    return TlsIdentity(
        name,
        encode_key(key),
        encode_certificates(certificate),
        encode_certificates(ca),
        fingerprint(certificate),
        fingerprint(ca),
        end,
        tuple(host_names(certificate)),
        tuple(notices),
    )
