"""A server whose certificate is renewed while it runs."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from e2e.command import Fedge
from fedge.net import pki
from fedge.net.grpc_server import serve
from fedge.net.identity import (
    SERVER_CERTIFICATE,
    SERVER_KEY,
    RenewedIdentity,
    load_client,
    load_server,
    request_certificate,
)
from fedge.net.transport import Credentials
from net.deployment import Deployment
from net.echo import EchoService, in_loop
from net.scenes import FEDAVG


def serial_number(port: int, folder: Path, ca: bytes) -> object:
    """Return the serial number of the certificate that the server currently presents."""
    context = ssl.create_default_context(cadata=ca.decode())
    context.load_cert_chain(folder / "c0.crt", folder / "c0.key")
    context.set_alpn_protocols(["h2"])
    plain = socket.create_connection(("127.0.0.1", port))
    with plain, context.wrap_socket(plain, server_hostname="localhost") as wrapped:
        return (wrapped.getpeercert() or {})["serialNumber"]


@in_loop
async def test_a_renewed_certificate_needs_no_restart(tmp_path: Path) -> None:
    authority, folder = tmp_path / "pki", tmp_path / "client"
    pki.init(authority)
    pki.sign(authority, request_certificate(folder, "c0").request)
    ca, first = load_client(folder).ca, load_server(authority)
    credentials = Credentials(first.key, first.certificate, first.ca)
    running = await serve(EchoService(), "127.0.0.1", 0, credentials, renew=RenewedIdentity(authority))
    try:
        before = [await asyncio.to_thread(serial_number, running.port, folder, ca) for _ in range(2)]
        pki.init(authority)
        after = await asyncio.to_thread(serial_number, running.port, folder, ca)
        (authority / SERVER_KEY).write_bytes(b"half a key")  # invalid files change nothing
        renewed = RenewedIdentity(authority)
        (authority / SERVER_CERTIFICATE).touch()
        assert renewed() is None
        damaged = await asyncio.to_thread(serial_number, running.port, folder, ca)
    finally:
        await running.stop()
    assert before[0] == before[1] != after == damaged


@pytest.mark.full
def test_fedge_server_uses_a_renewed_certificate(fedge: Fedge, tmp_path: Path) -> None:
    with Deployment(fedge, tmp_path, FEDAVG, secure=True) as deployment:
        assert deployment.pki is not None
        deployment.start_server()
        deployment.start_client(0)
        deployment.wait_for_joins(0)
        folder = tmp_path / "cert-0"
        ca = load_client(folder).ca
        before = serial_number(deployment.port, folder, ca)
        pki.init(deployment.pki)
        assert serial_number(deployment.port, folder, ca) != before
        deployment.start_clients(1, 2)  # they see the new certificate
        deployment.finish()
