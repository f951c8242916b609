"""The record of the certificates issued to clients and of their revocations: `issued.jsonl`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from fedge.core.errors import FedgeError, NetworkError
from fedge.core.storage import reading, stamp_of, write_atomic
from fedge.net.certificates import WARNING
from fedge.runs.files import encode_lines

ISSUED = "issued.jsonl"

State = Literal["valid", "expires soon", "expired", "revoked"]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class Issued(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The record of a client's certificate."""

    name: str
    fingerprint: str  # SHA-256 of the certificate in hex
    key: str  # SHA-256 of its public key in hex
    valid_from: Moment
    valid_until: Moment
    revoked: Moment | None = None

    def state(self, now: datetime) -> State:
        """Return the certificate's state at a time."""
        return "revoked" if self.revoked else state_by_age(self.valid_until, now)


class RevocationList:
    """The revoked certificates. The record is read again whenever it changes, so a server needs no restart.

    If the record can no longer be read, the last known revocations stay in force, and `problem` has the reason.
    """

    def __init__(self, folder: Path) -> None:
        """Read the record; raise a NetworkError if it is missing or damaged."""
        self._folder = folder
        self._seen: tuple[int, ...] = ()
        self._revoked: frozenset[str] = frozenset()
        self.problem: str | None = None
        self._refresh()

    def is_revoked(self, fingerprint: str) -> bool:
        """Return whether the certificate with this fingerprint is revoked. Never raises."""
        try:
            self._refresh()
            self.problem = None
        except FedgeError as error:
            self.problem = str(error)
        return fingerprint in self._revoked

    def _refresh(self) -> None:
        stamp = stamp_of(self._folder / ISSUED)
        if not stamp or stamp != self._seen:
            issued = read_issued(self._folder)  # after the stamp, so that changes in between are read next time
            self._revoked = frozenset(each.fingerprint for each in issued if each.revoked)
            self._seen = stamp


def state_by_age(end: datetime, now: datetime) -> State:
    """Return the state of a certificate that was not revoked."""
    return "expired" if now > end else "expires soon" if end - now <= WARNING else "valid"


def read_issued(folder: Path) -> list[Issued]:
    """Return the issued certificates, oldest first; raise a NetworkError if the record is missing or damaged."""
    path = folder / ISSUED
    with reading(path):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise NetworkError(f"no {path}, which records revocations; restore it from a backup") from None
    try:
        return _DECODER.decode_lines(data)
    except (ValueError, RecursionError) as error:
        raise NetworkError(f"{path} is damaged: {error}; restore it from a backup") from None


def write_issued(folder: Path, issued: Sequence[Issued]) -> None:
    """Replace the record."""
    write_atomic(folder / ISSUED, encode_lines(issued))


def mark_revoked(issued: Sequence[Issued], which: Sequence[Issued], now: datetime) -> list[Issued]:
    """Return the record with these certificates marked as revoked."""
    fingerprints = {each.fingerprint for each in which}
    return [msgspec.structs.replace(each, revoked=now) if each.fingerprint in fingerprints else each for each in issued]


_DECODER = msgspec.json.Decoder(Issued)
