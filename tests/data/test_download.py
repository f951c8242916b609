"""Downloads, against a server on loopback."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from fedge.core.errors import DataError, NetworkError, StorageError
from fedge.data.download import Download, fetch
from file_site import Site, serving

CONTENT = bytes(range(256)) * 1000


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(CONTENT) as site:
        yield site


def wanted(site: Site, content: bytes = CONTENT) -> Download:
    return Download(site.url, sha256(content).hexdigest(), len(content) + 1000)


def test_file_is_put_in_place_and_progress_is_reported(site: Site, tmp_path: Path) -> None:
    steps: list[tuple[int, int | None]] = []
    target = fetch(wanted(site), tmp_path / "new/a.bin", lambda *step: steps.append(step))
    assert target.read_bytes() == CONTENT
    assert steps[-1] == (len(CONTENT), len(CONTENT))
    assert len(steps) > 1
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.bin"]
    assert site.asked == [None]


def test_an_interrupted_download_continues(site: Site, tmp_path: Path) -> None:
    site.cuts = [1000, 70_000]
    assert fetch(wanted(site), tmp_path / "a.bin").read_bytes() == CONTENT
    assert site.asked == [None, "bytes=1000-", "bytes=71000-"]


def test_download_is_resumed_by_another_process(site: Site, tmp_path: Path) -> None:
    site.cuts = [1000, 0, 0, 0]
    with pytest.raises(NetworkError, match=r"a\.bin: .*; got 1,000 bytes so far, run the command again to continue"):
        fetch(wanted(site), tmp_path / "a.bin")
    assert (tmp_path / "a.bin.part").read_bytes() == CONTENT[:1000]
    assert not (tmp_path / "a.bin").exists()
    site.asked.clear()
    fetch(wanted(site), tmp_path / "a.bin")
    assert site.asked == ["bytes=1000-"]


def test_complete_part_is_accepted(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(CONTENT)
    assert fetch(wanted(site), tmp_path / "a.bin").read_bytes() == CONTENT
    assert site.asked == [f"bytes={len(CONTENT)}-"]


def test_a_server_without_ranges_starts_over(site: Site, tmp_path: Path) -> None:
    site.ranges, site.cuts = False, [1000]
    assert fetch(wanted(site), tmp_path / "a.bin").read_bytes() == CONTENT
    assert site.asked == [None, "bytes=1000-"]


def test_file_with_wrong_checksum_is_deleted(site: Site, tmp_path: Path) -> None:
    site.content = b"x" + CONTENT[1:]
    with pytest.raises(DataError, match=r"a\.bin: expected SHA-256 [0-9a-f]{64}, got [0-9a-f]{64}; it was not kept"):
        fetch(wanted(site), tmp_path / "a.bin")
    assert not (tmp_path / "a.bin").exists()
    assert (tmp_path / "a.bin.part").read_bytes() == b""


def test_part_of_another_version_is_discarded(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(b"other" * 100)
    assert fetch(wanted(site), tmp_path / "a.bin").read_bytes() == CONTENT
    assert site.asked == ["bytes=500-", None]


@pytest.mark.parametrize("size", [len(CONTENT) + 10, len(CONTENT) * 2])
def test_a_part_that_is_longer_than_the_file(site: Site, tmp_path: Path, size: int) -> None:
    (tmp_path / "a.bin.part").write_bytes(b"x" * size)
    assert fetch(wanted(site), tmp_path / "a.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("later", [CONTENT[:500], CONTENT + b"more"])
def test_file_that_changes_size_during_download_is_rejected(site: Site, tmp_path: Path, later: bytes) -> None:
    site.cuts = [1000]

    def change(site: Site) -> None:
        if len(site.asked) == 2:
            site.content = later

    site.before = change
    with pytest.raises(DataError, match="expected SHA-256"):
        fetch(wanted(site), tmp_path / "a.bin")
    assert not (tmp_path / "a.bin").exists()


def test_download_of_an_ever_changing_file_fails(site: Site, tmp_path: Path) -> None:
    def shrink(site: Site) -> None:
        site.content = CONTENT[: 2000 - 500 * (len(site.asked) % 2)]
        site.cuts = [1700]

    site.before = shrink
    with pytest.raises((NetworkError, DataError)):
        fetch(wanted(site), tmp_path / "a.bin")
    assert len(site.asked) < 20


def test_file_larger_than_expected_is_rejected(site: Site, tmp_path: Path) -> None:
    site.content = CONTENT * 2
    with pytest.raises(DataError, match=r"expected at most 257,000 bytes, got 512,000; it is a different file"):
        fetch(wanted(site), tmp_path / "a.bin")


def test_file_of_unknown_length_larger_than_expected_is_rejected(site: Site, tmp_path: Path) -> None:
    site.says_length = False
    assert fetch(wanted(site), tmp_path / "a.bin").read_bytes() == CONTENT
    site.content = CONTENT * 2
    with pytest.raises(DataError, match=r"expected at most 257,000 bytes, got more; it is a different file"):
        fetch(wanted(site), tmp_path / "b.bin")
    assert (tmp_path / "b.bin.part").read_bytes() == b""


def test_response_with_another_offset_is_not_appended(site: Site, tmp_path: Path) -> None:
    site.shift, site.cuts = 7, [1000]
    assert fetch(wanted(site), tmp_path / "a.bin").read_bytes() == CONTENT
    assert site.asked == [None, "bytes=1000-", None]


def test_zipped_content_is_compared_unzipped(site: Site, tmp_path: Path) -> None:
    site.content = gzip.compress(CONTENT, compresslevel=1)
    download = wanted(site)
    assert gzip.decompress(fetch(download, tmp_path / "a.gz").read_bytes()) == CONTENT
    site.content = site.content[:-20]
    with pytest.raises(DataError, match="the gzip file is truncated"):
        fetch(download, tmp_path / "b.gz")
    site.content = CONTENT
    with pytest.raises(DataError, match="expected a gzip file"):
        fetch(download, tmp_path / "b.gz")


def test_redirects(site: Site, tmp_path: Path) -> None:
    site.redirect = "/moved"
    assert fetch(wanted(site), tmp_path / "a.bin").read_bytes() == CONTENT
    site.redirect = "ftp://127.0.0.1/a.bin"
    with pytest.raises(NetworkError, match=r"refused to follow a redirect from http to ftp: ftp://127"):
        fetch(wanted(site), tmp_path / "b.bin")
    secret = tmp_path / "secret"
    secret.write_bytes(CONTENT)
    site.redirect = secret.as_uri()
    with pytest.raises(NetworkError, match="302"):
        fetch(wanted(site), tmp_path / "b.bin")
    assert not (tmp_path / "b.bin").exists()


@pytest.mark.parametrize(("status", "num_asked"), [(404, 1), (503, 3)])
def test_error_of_the_server(site: Site, tmp_path: Path, status: int, num_asked: int) -> None:
    site.status = status
    with pytest.raises(NetworkError, match=f"the server answered {status}"):
        fetch(wanted(site), tmp_path / "a.bin")
    assert len(site.asked) == num_asked


def test_unreachable_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(NetworkError, match=r"Connection refused.*run the command again"):
        fetch(Download("http://127.0.0.1:9/a.bin", "0" * 64, 10), tmp_path / "a.bin")


def test_two_processes_cannot_write_the_same_file(site: Site, tmp_path: Path) -> None:
    def other(site: Site) -> None:
        with pytest.raises(StorageError, match=r"a\.bin\.part: another process is downloading it"):
            fetch(wanted(site), tmp_path / "a.bin")
        site.before = lambda site: None

    site.before = other
    assert fetch(wanted(site), tmp_path / "a.bin").read_bytes() == CONTENT


def test_folder_that_cannot_be_written(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match=r"cannot be written: .*; choose another --dir"):
        fetch(wanted(site), tmp_path / "file/a.bin")
