"""The authority's directory: create, sign, renew, replace, revoke, list; crashes, damage and concurrent processes."""

from __future__ import annotations

import multiprocessing
import shutil
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")

from fedge.core.errors import ConfigError, NetworkError, StorageError
from fedge.net import identity, pki
from fedge.net.certificates import fingerprint, read_certificates
from fedge.net.identity import load_client, load_server, request_certificate
from fedge.net.issued import RevocationList, read_issued

NOW = datetime(2030, 5, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pki.init(tmp_path / "pki", ["fl.example.org"], NOW)
    return tmp_path / "pki"


@pytest.fixture
def request_by(tmp_path: Path) -> Callable[..., Path]:
    """Create a client's request; another `place` means another key."""

    def make(name: str, place: str = "") -> Path:
        return request_certificate(tmp_path / f"{name}{place}", name).request

    return make


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_file_modes(folder: Path, request_by: Callable[..., Path]) -> None:
    client = request_by("a").parent
    assert [mode(path) for path in (folder, client)] == [0o700, 0o700]
    keys = [folder / "ca.key", folder / "server.key", client / "a.key"]
    assert [mode(key) for key in keys] == [0o600] * 3


def test_init_again_renews_the_server_and_nothing_else(folder: Path, request_by: Callable[..., Path]) -> None:
    pki.sign(folder, request_by("a"), now=NOW)
    before = content(folder)
    done = pki.init(folder, now=NOW + 300 * DAY)
    assert not done.created
    assert done.hosts == ["fl.example.org", "localhost", "127.0.0.1", "::1"]
    after = content(folder)
    assert {name for name in before if before[name] != after[name]} == {"server.crt"}
    assert before.keys() == after.keys()
    server = load_server(folder, NOW + 600 * DAY)
    assert server.expires == NOW + 665 * DAY
    assert load_client(request_by("a").parent, NOW + DAY).ca == server.ca
    assert pki.init(folder, ["10.0.0.9"], NOW).hosts == ["10.0.0.9", "localhost", "127.0.0.1", "::1"]


def test_init_without_hosts_uses_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pki, "default_hosts", lambda: ["lab7", "localhost", "10.1.2.3"])
    assert pki.init(tmp_path / "pki", (), NOW).hosts == ["lab7", "localhost", "10.1.2.3", "127.0.0.1", "::1"]


def test_invalid_host_changes_nothing(folder: Path) -> None:
    before = content(folder)
    with pytest.raises(ConfigError, match="--host"):
        pki.init(folder, ["fl.example.org:8443"], NOW + DAY)
    assert content(folder) == before


@pytest.mark.parametrize("crash_at", range(5))
def test_init_after_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash_at: int) -> None:
    """Whichever of the five files was written last, the next call completes the directory and keeps every key."""
    folder, write, written = tmp_path / "pki", pki.write_atomic, []

    def crash(path: Path, *args: Any, **options: Any) -> None:
        if len(written) == crash_at:
            raise KeyboardInterrupt
        written.append(path.name)
        write(path, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(pki, "write_atomic", crash)
        patch.setattr("fedge.net.issued.write_atomic", crash)
        with pytest.raises(KeyboardInterrupt):
            pki.init(folder, ["a"], NOW)
    assert written == ["ca.key", "issued.jsonl", "ca.crt", "server.key"][:crash_at]
    kept = {name: data for name, data in content(folder).items() if name.endswith((".key", ".crt"))}
    pki.init(folder, ["a"], NOW)
    assert kept.items() <= content(folder).items()
    assert load_server(folder, NOW).hosts[0] == "a"


def test_sign_gives_the_client_an_identity(folder: Path, request_by: Callable[..., Path]) -> None:
    request = request_by("clinic-3")
    done = pki.sign(folder, request, now=NOW)
    assert done.path == request.with_name("clinic-3.crt")
    assert not done.renewed
    found = load_client(request.parent, NOW)
    assert (found.name, found.fingerprint, found.expires) == ("clinic-3", done.record.fingerprint, NOW + 365 * DAY)
    assert found.ca_fingerprint == done.authority == load_server(folder, NOW).ca_fingerprint
    assert found.notices == ()
    assert found.hosts == ()


def test_name_is_read_from_the_request_not_the_file_name(
    folder: Path, request_by: Callable[..., Path], tmp_path: Path
) -> None:
    elsewhere = tmp_path / "inbox"
    elsewhere.mkdir()
    shutil.copy(request_by("a"), elsewhere / "b.csr")
    assert pki.sign(folder, elsewhere / "b.csr", now=NOW).path == elsewhere / "a.crt"


def test_renewal_keeps_name_and_key(folder: Path, request_by: Callable[..., Path]) -> None:
    request = request_by("a")
    first = pki.sign(folder, request, now=NOW)
    second = pki.sign(folder, request, now=NOW + 340 * DAY)
    assert second.renewed
    assert (second.record.name, second.record.key) == (first.record.name, first.record.key)
    assert load_client(request.parent, NOW + 700 * DAY).fingerprint == second.record.fingerprint
    assert [each.state(NOW + 341 * DAY) for each in read_issued(folder)] == ["expires soon", "valid"]


def test_another_key_needs_replace(folder: Path, request_by: Callable[..., Path]) -> None:
    pki.sign(folder, request_by("a"), now=NOW)
    pki.sign(folder, request_by("b"), now=NOW)
    stranger = request_by("a", "-elsewhere")
    before = content(folder)
    with pytest.raises(NetworkError, match=r"certificate for another key .* --replace"):
        pki.sign(folder, stranger, now=NOW + 500 * DAY)  # also after the old one has expired
    assert content(folder) == before
    assert not stranger.with_name("a.crt").exists()
    assert pki.sign(folder, stranger, replace=True, now=NOW).replaced == 1
    assert [(each.name, bool(each.revoked)) for each in read_issued(folder)] == [
        ("a", True),
        ("b", False),
        ("a", False),
    ]
    assert not pki.sign(folder, stranger, now=NOW).replaced


def test_revoked_key_stays_refused(folder: Path, request_by: Callable[..., Path]) -> None:
    request = request_by("a")
    pki.sign(folder, request, now=NOW)
    pki.revoke(folder, "a", NOW)
    for replace in (False, True):
        with pytest.raises(NetworkError, match="the key of a was revoked"):
            pki.sign(folder, request, replace=replace, now=NOW)
    assert not pki.sign(folder, request_by("a", "-2"), now=NOW).renewed


def test_revocation_is_noticed_without_a_restart(folder: Path, request_by: Callable[..., Path]) -> None:
    revoked = RevocationList(folder)
    requests = [request_by("a"), request_by("b")]
    first, other = (pki.sign(folder, request, now=NOW).record.fingerprint for request in requests)
    renewed = pki.sign(folder, requests[0], now=NOW).record.fingerprint
    assert not any(map(revoked.is_revoked, (first, other, renewed)))
    assert {each.fingerprint for each in pki.revoke(folder, "a", NOW)} == {first, renewed}
    assert [revoked.is_revoked(each) for each in (first, other, renewed)] == [True, False, True]
    assert pki.revoke(folder, "a", NOW) == []


def test_unreadable_record_keeps_known_revocations(folder: Path, request_by: Callable[..., Path]) -> None:
    mark = pki.sign(folder, request_by("a"), now=NOW).record.fingerprint
    pki.revoke(folder, "a", NOW)
    revoked = RevocationList(folder)
    record = (folder / "issued.jsonl").read_bytes()
    for damage in (lambda: (folder / "issued.jsonl").write_bytes(record[:-20]), (folder / "issued.jsonl").unlink):
        damage()
        assert revoked.is_revoked(mark)
        assert not revoked.is_revoked("0" * 64)
        assert "issued.jsonl" in (revoked.problem or "")
        with pytest.raises(NetworkError, match=r"issued\.jsonl"):
            RevocationList(folder)
    (folder / "issued.jsonl").write_bytes(record)
    assert revoked.is_revoked(mark)
    assert revoked.problem is None


@pytest.mark.parametrize("line", [b"{}", b"[", b"\xff", b'{"name": 1}', b"[" * 100_000, b"null"])
def test_a_damaged_record_is_an_error_for_every_command(
    folder: Path, request_by: Callable[..., Path], line: bytes
) -> None:
    pki.sign(folder, request_by("a"), now=NOW)
    damaged = (folder / "issued.jsonl").read_bytes() + line + b"\n"
    (folder / "issued.jsonl").write_bytes(damaged)
    calls: list[Callable[[], object]] = [
        lambda: pki.init(folder, now=NOW),
        lambda: pki.sign(folder, request_by("b"), now=NOW),
        lambda: pki.revoke(folder, "a", NOW),
        lambda: pki.list_certificates(folder, now=NOW),
    ]
    for call in calls:
        with pytest.raises(NetworkError, match=r"issued\.jsonl is damaged"):
            call()
    assert (folder / "issued.jsonl").read_bytes() == damaged


def test_times_without_a_zone_are_damage(folder: Path, request_by: Callable[..., Path]) -> None:
    pki.sign(folder, request_by("a"), now=NOW)
    path = folder / "issued.jsonl"
    path.write_bytes(path.read_bytes().replace(b'Z"', b'"'))
    with pytest.raises(NetworkError, match="damaged"):
        read_issued(folder)


def test_unknown_names(folder: Path, request_by: Callable[..., Path]) -> None:
    pki.sign(folder, request_by("clinic-3"), now=NOW)
    with pytest.raises(NetworkError, match=r"'clinic-4', did you mean 'clinic-3'"):
        pki.revoke(folder, "clinic-4", NOW)
    with pytest.raises(ConfigError, match="only certificates of clients"):
        pki.revoke(folder, "server", NOW)


def test_no_authority(tmp_path: Path, request_by: Callable[..., Path]) -> None:
    nowhere = tmp_path / "nowhere"
    for call in (
        lambda: pki.sign(nowhere, request_by("a")),
        lambda: pki.revoke(nowhere, "a"),
        lambda: pki.list_certificates(nowhere),
        lambda: load_server(nowhere),
    ):
        with pytest.raises(NetworkError, match="pki init"):
            call()
    assert not nowhere.exists()


@pytest.mark.parametrize(
    ("lost", "problem"),
    [
        ("ca.key", "on the machine that has the authority's key"),
        ("ca.crt", "ca.crt is missing"),
        ("issued.jsonl", "restore it from a backup"),
    ],
)
def test_lost_files_are_not_recreated(folder: Path, request_by: Callable[..., Path], lost: str, problem: str) -> None:
    pki.sign(folder, request_by("a"), now=NOW)
    (folder / lost).unlink()
    before = content(folder)
    with pytest.raises(NetworkError, match=problem):
        pki.init(folder, now=NOW)
    assert content(folder) == before


def test_server_does_not_need_the_authoritys_key(folder: Path, request_by: Callable[..., Path]) -> None:
    (folder / "ca.key").unlink()
    assert load_server(folder, NOW).hosts[0] == "fl.example.org"
    assert not RevocationList(folder).is_revoked("0" * 64)
    assert [each.role for each in pki.list_certificates(folder, now=NOW)] == ["authority", "server"]
    with pytest.raises(NetworkError, match="on the machine that has the authority's key"):
        pki.sign(folder, request_by("a"), now=NOW)


def test_a_key_of_another_authority(folder: Path, tmp_path: Path) -> None:
    pki.init(tmp_path / "other", ["a"], NOW)
    shutil.copy(tmp_path / "other" / "ca.key", folder / "ca.key")
    with pytest.raises(NetworkError, match=r"ca\.key is not the key of"):
        pki.init(folder, now=NOW)


def test_authority_expired_or_not_yet_valid(folder: Path, request_by: Callable[..., Path]) -> None:
    with pytest.raises(NetworkError, match="expired on 2040"):
        pki.sign(folder, request_by("a"), now=NOW + 3653 * DAY)
    with pytest.raises(NetworkError, match="this machine's clock shows 2030-04-01; set the clock"):
        pki.sign(folder, request_by("a"), now=NOW - 30 * DAY)
    assert read_issued(folder) == []


@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "server.crt", "server.key", "issued.jsonl"])
def test_the_authoritys_files_are_not_overwritten(folder: Path, request_by: Callable[..., Path], name: str) -> None:
    before = content(folder)
    with pytest.raises(ConfigError, match="is not a client's certificate"):
        pki.sign(folder, request_by("a"), folder / name, now=NOW)
    assert content(folder) == before


def test_other_files_are_not_overwritten(folder: Path, request_by: Callable[..., Path]) -> None:
    request = request_by("a")
    for path in (request, request.with_suffix(".key")):
        before = path.read_bytes()
        with pytest.raises(ConfigError, match="is not a client's certificate"):
            pki.sign(folder, request, path, now=NOW)
        assert path.read_bytes() == before
    for path in (request.parent, request.parent / "absent" / "a.crt"):
        with pytest.raises(ConfigError, match="--output"):
            pki.sign(folder, request, path, now=NOW)
    assert read_issued(folder) == []


def test_a_planted_link_is_not_followed(folder: Path, request_by: Callable[..., Path], tmp_path: Path) -> None:
    """A client that sends requests to the operator must not choose which file is written."""
    request, target = request_by("a"), tmp_path / "target"
    target.write_text("precious")
    request.with_name("a.crt.part").symlink_to(target)
    with pytest.raises(StorageError, match=r"a\.crt"):
        pki.sign(folder, request, now=NOW)
    assert target.read_text() == "precious"


def test_list_has_the_newest_of_each_client_or_all(folder: Path, request_by: Callable[..., Path]) -> None:
    for name in ("b", "a"):
        pki.sign(folder, request_by(name), now=NOW)
    pki.sign(folder, request_by("a"), now=NOW + 350 * DAY)
    pki.revoke(folder, "b", NOW)
    then = NOW + 366 * DAY
    found = [(each.role, each.name, each.state) for each in pki.list_certificates(folder, now=then)]
    own = [("authority", "ca", "valid"), ("server", "server", "expired")]
    assert found == [*own, ("client", "a", "valid"), ("client", "b", "revoked")]
    found = [(each.name, each.state) for each in pki.list_certificates(folder, all=True, now=then)[2:]]
    assert found == [("a", "expired"), ("a", "valid"), ("b", "revoked")]


def _sign(folder: Path, request: Path, barrier: Any) -> None:
    barrier.wait(30)
    pki.sign(folder, request, now=NOW)


def test_processes_that_sign_at_once_lose_no_record(folder: Path, request_by: Callable[..., Path]) -> None:
    context = multiprocessing.get_context("fork")
    names = [f"client-{number}" for number in range(8)]
    barrier = context.Barrier(len(names))
    crowd = [context.Process(target=_sign, args=(folder, request_by(name), barrier)) for name in names]
    for process in crowd:
        process.start()
    for process in crowd:
        process.join(60)
    assert [process.exitcode for process in crowd] == [0] * len(names)
    assert sorted(each.name for each in read_issued(folder)) == names
    recorded = {each.fingerprint for each in read_issued(folder)}
    assert {fingerprint(read_certificates(request_by(name).with_suffix(".crt"))[0]) for name in names} == recorded


def test_a_certificate_is_recorded_before_it_exists(
    folder: Path, request_by: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_by("a")

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pki, "write_atomic", full)
    with pytest.raises(StorageError, match=r"a\.crt: No space left on device; free space .* sign the request again"):
        pki.sign(folder, request, now=NOW)
    assert [each.name for each in read_issued(folder)] == ["a"]


def test_a_full_disk_before_the_record_issues_nothing(
    folder: Path, request_by: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_by("a")

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedge.net.issued.write_atomic", full)
    with pytest.raises(StorageError, match="No space left"):
        pki.sign(folder, request, now=NOW)
    assert read_issued(folder) == []
    assert not request.with_suffix(".crt").exists()
    assert identity.LOCK in content(folder)
