"""Uploads on disk."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fedge.net.spool import Spool, Upload
from net.echo import in_chunks, in_loop


def test_leftovers_of_an_earlier_server_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "w1-0-1-0.1").write_bytes(b"half")
    Spool(tmp_path / "spool")
    assert list((tmp_path / "spool").iterdir()) == []


@in_loop
async def test_upload_that_arrives_while_others_are_deleted(tmp_path: Path) -> None:
    """The exchange closed, and the main thread deletes its uploads: a late one affects nothing else."""
    spool, ended = Spool(tmp_path / "spool"), threading.Event()

    def clear() -> None:
        while not ended.is_set():
            spool.clear()

    with ThreadPoolExecutor(1) as others:
        clearing = others.submit(clear)
        try:
            for number in range(300):
                await spool.take(f"w1-0-1-0.{number}", in_chunks(b"data"), lambda num_bytes: False)
        finally:
            ended.set()
        clearing.result()


def test_open_uploads_need_no_descriptor(tmp_path: Path) -> None:
    """A reducer may need those of thousands of clients at once, and a process may have only 1,024 descriptors."""
    uploads = [Upload(tmp_path / str(number), 3, changed=False) for number in range(20)]
    for number, upload in enumerate(uploads):
        assert upload.file is not None
        upload.file.write_bytes(bytes([number] * 3))
    before = len(os.listdir("/proc/self/fd"))
    held = [upload.open() for upload in uploads]
    assert len(os.listdir("/proc/self/fd")) == before
    for upload in uploads:
        assert upload.file is not None
        upload.file.unlink()
    assert [bytes(data) for data in held] == [bytes([number] * 3) for number in range(20)]
    with pytest.raises(FileNotFoundError):
        uploads[0].open()
