"""The server's certificate authority: a directory with its key, its certificates and their revocations.

    ca.key          the authority's key; needed to sign and renew, never by a running server
    ca.crt          the authority's certificate, which server and clients trust
    server.key      the server's key
    server.crt      the server's certificate, for its names and addresses
    issued.jsonl    a line per client certificate, with the time of its revocation

A certificate is recorded before it is written, so that every existing one can be revoked by its client's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple

from fedge.core.errors import ConfigError, NetworkError, nearest
from fedge.core.storage import write_atomic, writing
from fedge.net.certificates import (
    RESERVED,
    Certificate,
    PrivateKey,
    encode_certificates,
    encode_key,
    fingerprint,
    host_names,
    issue_authority,
    issue_client,
    issue_server,
    key_fingerprint,
    make_key,
    read_bounded,
    read_certificates,
    read_key,
    read_request,
    utc_now,
)
from fedge.net.host_names import LOOPBACK, check_hosts, default_hosts
from fedge.net.identity import CA_CERTIFICATE, SERVER_CERTIFICATE, SERVER_KEY, locked
from fedge.net.issued import ISSUED, Issued, State, mark_revoked, read_issued, state_by_age, write_issued

CA_KEY = "ca.key"


class Established(NamedTuple):
    """The result of `init`."""

    created: bool  # a new authority; otherwise only the server's certificate was renewed
    hosts: list[str]
    server_expires: datetime
    authority_expires: datetime
    authority: str  # fingerprint


class Signed(NamedTuple):
    """A newly issued client certificate."""

    record: Issued
    path: Path
    renewed: bool
    replaced: int  # number of revoked certificates for other keys
    authority: str  # fingerprint


class Listed(NamedTuple):
    """A certificate in an authority's directory."""

    role: Literal["authority", "server", "client"]
    name: str
    state: State
    valid_until: datetime
    fingerprint: str
    hosts: list[str]


def init(folder: Path, hosts: Sequence[str] = (), now: datetime | None = None) -> Established:
    """Create an authority unless it exists, and issue a certificate for its server.

    Without `hosts`, a renewed certificate keeps its hosts, and a new one gets those of this machine. The loopback names
    are always included.
    """
    now, hosts = now or utc_now(), check_hosts(hosts)
    with locked(folder):
        created = not (folder / CA_CERTIFICATE).exists()
        if created:
            _create(folder, now)
        ca, ca_key = _open(folder, now)
        read_issued(folder)
        path = folder / SERVER_CERTIFICATE
        if not hosts:
            hosts = host_names(read_certificates(path)[0]) if path.exists() else default_hosts()
        if not (folder / SERVER_KEY).exists():
            write_atomic(folder / SERVER_KEY, encode_key(make_key()), secret=True)
        key = read_key(folder / SERVER_KEY).public_key()
        server = issue_server(ca, ca_key, key, [*hosts, *LOOPBACK], now)
        write_atomic(path, encode_certificates(server))
    return Established(created, host_names(server), server.not_valid_after_utc, ca.not_valid_after_utc, fingerprint(ca))


def sign(
    folder: Path, request: Path, output: Path | None = None, *, replace: bool = False, now: datetime | None = None
) -> Signed:
    """Issue a certificate for a client's request, and write it to `output` or next to the request.

    A request with the same key renews the certificate. Raises a NetworkError for a revoked key, and for a new key while
    the client has valid certificates for another one, unless `replace` is set: these are then revoked.
    """
    now = now or utc_now()
    asked = read_request(request)
    key = key_fingerprint(asked.key)
    path = output or request.with_name(f"{asked.name}.crt")
    _check_output(folder, path)
    with locked(_existing(folder)):
        ca, ca_key = _open(folder, now)
        issued = read_issued(folder)
        if any(each.key == key and each.revoked for each in issued):
            raise NetworkError(
                f"{request}: the key of {asked.name} was revoked; ask the client to create another one, "
                f"with `fedge client request {asked.name}` and a new directory"
            )
        others = [each for each in issued if each.name == asked.name and each.key != key and not each.revoked]
        if others and not replace:
            raise NetworkError(
                f"{request}: {asked.name} has a certificate for another key ({others[-1].key[:16]}..., but the request "
                f"is for {key[:16]}...); if its user confirms the new key, --replace revokes the old certificate"
            )
        certificate = issue_client(ca, ca_key, asked, now)
        record = Issued(
            asked.name, fingerprint(certificate), key, certificate.not_valid_before_utc, certificate.not_valid_after_utc
        )
        write_issued(folder, [*mark_revoked(issued, others, now), record])
        with writing(path, "sign the request again, or choose another --output"):
            write_atomic(path, encode_certificates(certificate, ca))
    renewed = any(each.name == asked.name and each.key == key for each in issued)
    return Signed(record, path, renewed, len(others), fingerprint(ca))


def revoke(folder: Path, name: str, now: datetime | None = None) -> list[Issued]:
    """Revoke all certificates issued to a client so far; return those that were not revoked already."""
    with locked(_existing(folder)):
        issued = read_issued(folder)
        if not any(each.name == name for each in issued):
            if name.lower() in RESERVED:
                raise ConfigError(f"{name}: only certificates of clients can be revoked; see docs/certificates.md")
            close = nearest(name, {each.name for each in issued})
            raise NetworkError(f"no certificate was issued to {name!r}{close}; `fedge pki list` lists the clients")
        valid = [each for each in issued if each.name == name and not each.revoked]
        if valid:
            write_issued(folder, mark_revoked(issued, valid, now or utc_now()))
    return valid


def list_certificates(folder: Path, all: bool = False, now: datetime | None = None) -> list[Listed]:
    """Return the certificates of authority, server, and clients by name: each client's newest, or all."""
    now = now or utc_now()
    (ca, *_) = read_certificates(_existing(folder) / CA_CERTIFICATE)
    found = [
        Listed(
            "authority", "ca", state_by_age(ca.not_valid_after_utc, now), ca.not_valid_after_utc, fingerprint(ca), []
        )
    ]
    if (folder / SERVER_CERTIFICATE).exists():
        (server, *_) = read_certificates(folder / SERVER_CERTIFICATE)
        end = server.not_valid_after_utc
        found.append(Listed("server", "server", state_by_age(end, now), end, fingerprint(server), host_names(server)))
    issued = read_issued(folder)
    shown = issued if all else {each.name: each for each in issued}.values()
    clients = sorted(shown, key=lambda each: (each.name, each.valid_until))
    return found + [
        Listed("client", each.name, each.state(now), each.valid_until, each.fingerprint, []) for each in clients
    ]


def _existing(folder: Path) -> Path:
    if not (folder / CA_CERTIFICATE).exists():
        raise NetworkError(
            f"no certificate authority in {folder}: pass its directory as --pki, or create one with `fedge pki init`"
        )
    return folder


def _create(folder: Path, now: datetime) -> None:
    """Create an authority. Its certificate is written last: before that, nothing can have been issued."""
    if (folder / ISSUED).exists() and read_issued(folder):
        raise NetworkError(
            f"{folder} has issued certificates, but {CA_CERTIFICATE} is missing; restore it from a backup"
        )
    if not (folder / CA_KEY).exists():
        write_atomic(folder / CA_KEY, encode_key(make_key()), secret=True)
    write_atomic(folder / ISSUED, b"")
    write_atomic(folder / CA_CERTIFICATE, encode_certificates(issue_authority(read_key(folder / CA_KEY), now)))


def _open(folder: Path, now: datetime) -> tuple[Certificate, PrivateKey]:
    """Return the authority's certificate and key; raise a NetworkError unless they match and are valid."""
    (ca, *_) = read_certificates(folder / CA_CERTIFICATE)
    if not (folder / CA_KEY).exists():
        raise NetworkError(f"no {folder / CA_KEY}: sign and renew on the machine that has the authority's key")
    key = read_key(folder / CA_KEY)
    if ca.public_key() != key.public_key():
        raise NetworkError(f"{folder / CA_KEY} is not the key of {folder / CA_CERTIFICATE}; restore it from a backup")
    if now > ca.not_valid_after_utc:
        raise NetworkError(
            f"the authority in {folder} expired on {ca.not_valid_after_utc:%Y-%m-%d}; create one in another directory"
        )
    if now < ca.not_valid_before_utc:
        raise NetworkError(
            f"the authority in {folder} is valid from {ca.not_valid_before_utc:%Y-%m-%d}, but this machine's clock "
            f"shows {now:%Y-%m-%d}; set the clock"
        )
    return ca, key


def _check_output(folder: Path, path: Path) -> None:
    """Raise a ConfigError unless the output is a new file or a client's certificate."""
    if path.is_dir() or not path.parent.is_dir():
        raise ConfigError(f"--output: expected a file in an existing directory, got {path}")
    own = {(folder / name).resolve() for name in (CA_KEY, CA_CERTIFICATE, SERVER_KEY, SERVER_CERTIFICATE, ISSUED)}
    if path.resolve() in own or (path.exists() and not read_bounded(path).startswith(b"-----BEGIN CERTIFICATE-----")):
        raise ConfigError(f"{path} exists and is not a client's certificate; choose another --output")
