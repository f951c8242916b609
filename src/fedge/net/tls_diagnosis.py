"""Diagnosis of failed connections. gRPC itself reports most failures only as "Socket closed"."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from fedge.core.printable import printable
from fedge.net.address import Address
from fedge.net.certificates import common_name, host_names, is_issued_by
from fedge.net.host_names import parse_ip
from fedge.net.transport import Credentials, DeniedError, LinkError

_TIMEOUT_S = 5.0


def explain(host: str, port: int, credentials: Credentials | None, proxy: str | None) -> LinkError | None:
    """Return why the server cannot be reached, or what is wrong with either side's certificates; None if unknown.

    Connects to the server once more, accepts any certificate in order to inspect it, and sends no data.
    """
    if credentials and (problem := _unusable(credentials)):
        return DeniedError(problem)
    try:
        with _reach(host, port, proxy) as link:
            return _handshake(link, host, f"{host}:{port}", credentials)
    except OSError as error:
        through = f" through {proxy}" if proxy else ""
        return LinkError(f"cannot reach {host}:{port}{through} ({_lower(error.strerror or str(error))})")


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _unusable(credentials: Credentials) -> str | None:
    try:
        key = load_pem_private_key(credentials.key, None)
        own = x509.load_pem_x509_certificate(credentials.certificate)
        authorities = x509.load_pem_x509_certificates(credentials.ca)
    except (ValueError, TypeError) as error:
        return f"cannot read this client's key, certificate or CA certificate: {error}"
    if key.public_key() != own.public_key():
        return "this client's key does not match its certificate; use the directory of `fedge client request`"
    if not _issued(own, authorities):
        return (
            f"this client's certificate was issued by another CA ({_name(own.issuer)}) than its CA certificate "
            f"({_name(authorities[0].subject)}); get both from `fedge pki sign` on the server"
        )
    return _wrong_time(own, "this client's certificate", "`fedge client request`, then `fedge pki sign`")


def _handshake(link: socket.socket, host: str, where: str, credentials: Credentials | None) -> LinkError | None:
    try:
        tls = _context(credentials).wrap_socket(link, server_hostname=host)
    except ssl.SSLEOFError:
        return None
    except ssl.SSLError as error:
        if not credentials:  # neither does this client
            return None
        return DeniedError(f"{where} does not speak TLS ({error.reason}): wrong port, or a server with --insecure?")
    with tls:
        if not credentials:
            return DeniedError(f"{where} requires TLS: drop --insecure and pass --cert DIR")
        try:
            server = x509.load_der_x509_certificate(tls.getpeercert(binary_form=True) or b"")
            problem = _wrong_server(server, credentials.ca, host, where)
        except (ValueError, TypeError) as error:
            problem = f"cannot read the certificate of {where}: {printable(str(error))[:200]}"
        if problem:
            return DeniedError(problem)
        if tls.recv(1):
            return None
    # a gRPC server drops a client whose certificate it rejects, just as it drops all clients when it stops
    return LinkError(
        f"{where} closed the connection after the handshake: it is stopping, or it rejects this client's "
        "certificate, for example because its clock is wrong"
    )


def _wrong_server(server: x509.Certificate, ca: bytes, host: str, where: str) -> str | None:
    authorities = x509.load_pem_x509_certificates(ca)
    if not _issued(server, authorities):
        return (
            f"the certificate of {where} was issued by another CA ({_name(server.issuer)}) than the one that this "
            f"client trusts ({_name(authorities[0].subject)}): wrong server, or its CA was recreated"
        )
    if problem := _wrong_time(server, f"the certificate of {where}", "`fedge pki init` on the server"):
        return problem
    names = host_names(server)
    if not any(_matches(name, host) for name in names):
        return (
            f"the certificate of {where} is not for {host}, but for {printable(', '.join(names[:20])) or 'no host'}: "
            f"connect to one of these, or renew it on the server with `fedge pki init --host {host}`"
        )
    return None


def _wrong_time(certificate: x509.Certificate, whose: str, renew: str) -> str | None:
    now, begin, end = datetime.now(UTC), certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > end:
        return f"{whose} expired on {end:%Y-%m-%d %H:%M} UTC; renew it with {renew}"
    if now < begin:
        return (
            f"{whose} is valid only from {begin:%Y-%m-%d %H:%M} UTC, but this machine's clock shows "
            f"{now:%Y-%m-%d %H:%M} UTC; set the clocks of both machines"
        )
    return None


def _matches(name: str, host: str) -> bool:
    address = parse_ip(host)
    return name.lower() == host.lower().rstrip(".") if address is None else parse_ip(name) == address


def _name(name: x509.Name) -> str:
    return printable(common_name(name) or "unnamed")[:100]


def _issued(certificate: x509.Certificate, authorities: Iterable[x509.Certificate]) -> bool:
    return any(is_issued_by(certificate, authority) for authority in authorities)


def _context(credentials: Credentials | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if credentials:
        with TemporaryDirectory() as folder:  # readable by this user only; ssl accepts files only
            path = Path(folder) / "own.pem"
            path.write_bytes(credentials.key + b"\n" + credentials.certificate)
            context.load_cert_chain(path)
    return context


def _reach(host: str, port: int, proxy: str | None) -> socket.socket:
    """Return a connection to a server; raise an OSError if that fails."""
    if not proxy:
        return socket.create_connection((host, port), _TIMEOUT_S)
    parts = urlsplit(proxy)
    link = socket.create_connection((parts.hostname or "", parts.port or 80), _TIMEOUT_S)
    try:
        _ask_proxy(link, str(Address(host, port)))
    except OSError:
        link.close()
        raise
    return link


def _ask_proxy(link: socket.socket, target: str) -> None:
    link.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        if not (byte := link.recv(1)) or len(head) > 10_000:  # byte by byte: what follows the head is TLS
            raise OSError("no answer from the proxy")
        head += byte
    if head.split(maxsplit=2)[1:2] != [b"200"]:
        raise OSError("the proxy refused to connect")
