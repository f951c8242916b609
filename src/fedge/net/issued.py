"""The record of the certificates that an authority has issued to clients: `issued.jsonl`, and which are revoked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from fedge.core.errors import FedgeError, NetworkError
from fedge.core.storage import reading, write_atomic
from fedge.net.certificates import WARNING
from fedge.runs.files import encode_lines

ISSUED = "issued.jsonl"

State = Literal["valid", "expires soon", "expired", "revoked"]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class Issued(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A client's certificate, as it is recorded."""

    name: str
    fingerprint: str  # SHA-256 of the certificate in hex
    key: str  # SHA-256 of its public key in hex
    valid_from: Moment
    valid_until: Moment
    revoked: Moment | None = None

    def state(self, now: datetime) -> State:
        """Return whether it can be used, at a time."""
        return "revoked" if self.revoked else state_by_age(self.valid_until, now)


class RevocationList:
    """Which certificates are revoked, as the authority's directory has it at each question: no restart is needed.

    If the record can no longer be read, the answers stay as they were, and `problem` tells why.
    """

    def __init__(self, folder: Path) -> None:
        """Read the record; a NetworkError if it is missing or damaged."""
        self._folder = folder
        self._seen: tuple[int, ...] = ()
        self._revoked: frozenset[str] = frozenset()
        self.problem: str | None = None
        self._refresh()

    def is_revoked(self, fingerprint: str) -> bool:
        """Whether the certificate with this fingerprint was revoked. Never raises."""
        try:
            self._refresh()
            self.problem = None
        except FedgeError as error:
            self.problem = str(error)
        return fingerprint in self._revoked

    def _refresh(self) -> None:
        path = self._folder / ISSUED
        try:
            found = path.stat()
        except OSError:  # reading it tells why
            stamp: tuple[int, ...] = ()
        else:
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        if not stamp or stamp != self._seen:
            issued = read_issued(self._folder)  # after the stamp: what changes in between is read again
            self._revoked = frozenset(each.fingerprint for each in issued if each.revoked)
            self._seen = stamp


def state_by_age(end: datetime, now: datetime) -> State:
    """Return the state of a certificate that was not revoked."""
    return "expired" if now > end else "expires soon" if end - now <= WARNING else "valid"


def read_issued(folder: Path) -> list[Issued]:
    """Return what was issued, oldest first; a NetworkError if the record is missing or damaged."""
    path = folder / ISSUED
    with reading(path):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise NetworkError(f"there is no {path}, which records what was revoked; put back a copy of it") from None
    try:
        return _DECODER.decode_lines(data)
    except (ValueError, RecursionError) as error:
        raise NetworkError(f"{path} is damaged: {error}; put back a copy of it") from None


def write_issued(folder: Path, issued: Sequence[Issued]) -> None:
    """Replace the record."""
    write_atomic(folder / ISSUED, encode_lines(issued))


def mark_revoked(issued: Sequence[Issued], which: Sequence[Issued], now: datetime) -> list[Issued]:
    """Return the record with some of its certificates revoked."""
    fingerprints = {each.fingerprint for each in which}
    return [msgspec.structs.replace(each, revoked=now) if each.fingerprint in fingerprints else each for each in issued]


_DECODER = msgspec.json.Decoder(Issued)
