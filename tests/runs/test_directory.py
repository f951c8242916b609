import errno
import os
import re
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from fedge.core.errors import RunError, StorageError
from fedge.core.lock import Lock
from fedge.runs import directory
from fedge.runs.directory import RunDirectory, create_repeats
from fedge.runs.files import RunMark, read_config, seed_path
from fedge.runs.read import Run

CONFIG = {"name": "first", "rounds": 5}


def state(value: float) -> dict[str, torch.Tensor]:
    return {"x": torch.full((4,), value)}


def saved_run(path: Path) -> RunDirectory:
    """A run of two rounds, saved after the second."""
    run = RunDirectory.create(path, CONFIG, {})
    for r in (1, 2):
        run.append({"round": r})
    run.save(state(2.0), {"round": 2})
    return run


def check_usable(path: Path) -> None:
    """Check that the run resumes from round 2."""
    with RunDirectory.open(path) as run:
        restored = run.restore()
        assert restored is not None
        assert restored[0]["x"].tolist() == [2.0] * 4
        assert restored[1] == {"round": 2}
        assert [record["round"] for record in Run(path).rounds] == [1, 2]


def test_life_cycle_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "first"
    with RunDirectory.create(path, CONFIG) as run:
        assert run.config == CONFIG
        run.append({"round": 1, "loss": np.float32(0.5), "accuracy": float("nan")})
        assert (path / "rounds.jsonl").read_bytes() == b'{"round":1,"loss":0.5,"accuracy":null}\n'  # visible at once
        run.write_clients({"client": np.int64(i), "rounds": 1} for i in range(2))
        run.write_summary({"rounds": 1, "accuracy": float("inf")})
    stored = msgspec.json.decode((path / "config.json").read_bytes())
    mark = {"id": Run(path).id, "generation": 0, "without_effect": [], "code": {}, "code_changes": [], "metrics": []}
    assert stored == {**CONFIG, "format": 2, **mark}
    assert msgspec.json.decode((path / "environment.json").read_bytes())["torch"] == torch.__version__
    assert msgspec.json.decode((path / "summary.json").read_bytes()) == {"rounds": 1, "accuracy": None}
    assert (path / "clients.jsonl").read_bytes() == b'{"client":0,"rounds":1}\n{"client":1,"rounds":1}\n'


def test_restore_goes_back_to_the_checkpoint(tmp_path: Path) -> None:
    with saved_run(tmp_path) as run:
        run.append({"round": 3})
    check_usable(tmp_path)
    with RunDirectory.open(tmp_path) as run:
        assert run.config == CONFIG
        run.restore()
        run.append({"round": 3})
        run.save(state(3.0), {"round": 3})
        run.append({"round": 4})
        restored = run.restore()
        assert restored is not None
        assert restored[1] == {"round": 3}
    assert [record["round"] for record in Run(tmp_path).rounds] == [1, 2, 3]


def test_restore_without_a_checkpoint_goes_back_to_the_start(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, CONFIG, {}) as run:
        run.append({"round": 1})
    with RunDirectory.open(tmp_path) as run:
        assert run.restore() is None
        run.append({"round": 1})
    assert Run(tmp_path).rounds == [{"round": 1}]


def test_every_run_has_a_permanent_id(tmp_path: Path) -> None:
    for name in ("a", "b"):
        saved_run(tmp_path / name).close()
    ids = [Run(tmp_path / name).id or "" for name in ("a", "b")]
    assert all(re.fullmatch("[0-9a-f]{16}", one) for one in ids)
    assert ids[0] != ids[1]
    with RunDirectory.open(tmp_path / "a") as run:
        run.restore()
        run.change({"name": "other"})
        run.write_summary({"rounds": 2})
    check_usable(tmp_path / "a")
    assert Run(tmp_path / "a").id == ids[0]


def test_an_older_run_without_an_id_gets_one_when_it_is_restored(tmp_path: Path) -> None:
    saved_run(tmp_path).close()
    old = msgspec.json.encode({**CONFIG, "format": 1})
    (tmp_path / "config.json").write_bytes(old)
    RunDirectory.open(tmp_path).close()
    assert (tmp_path / "config.json").read_bytes() == old  # unchanged until it is written to
    assert Run(tmp_path).id is None
    check_usable(tmp_path)
    found = Run(tmp_path).id
    assert found is not None
    check_usable(tmp_path)
    assert Run(tmp_path).id == found
    assert Run(tmp_path).config == CONFIG


def test_every_restore_begins_a_generation_before_and_after_truncating(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    replace = os.replace

    def note(source: Path, target: Path) -> None:
        assert source.with_name("config.json") == target
        replace(source, target)
        seen.append((read_config(tmp_path)[1].generation, len(Run(tmp_path).rounds)))

    with saved_run(tmp_path) as run:
        run.append({"round": 3})
    with RunDirectory.open(tmp_path) as run:
        monkeypatch.setattr(os, "replace", note)
        run.restore()
        assert seen == [(1, 3), (2, 2)]
        run.restore()  # truncates nothing, but still counts
        assert seen[2:] == [(3, 2), (4, 2)]


def test_another_process_may_have_restored_a_run_before_it_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved_run(tmp_path).close()
    make_lock = directory.Lock

    def restore_first(path: Path) -> Lock:
        monkeypatch.undo()
        with RunDirectory.open(tmp_path) as other:
            other.restore()
            other.change({"name": "changed"})
        return make_lock(path)

    monkeypatch.setattr(directory, "Lock", restore_first)
    with RunDirectory.open(tmp_path) as run:
        assert run.config == {"name": "changed"}
        run.restore()
    assert read_config(tmp_path)[1].generation == 4


@pytest.mark.parametrize("attached_first", [True, False])
def test_kept_state_is_part_of_the_checkpoint(tmp_path: Path, attached_first: bool) -> None:
    template = {"c": torch.zeros(2)}
    with RunDirectory.create(tmp_path, CONFIG, {}) as run:
        kept = run.kept_store(template)
        kept.write(5, {"c": torch.tensor([1.0, 2.0])})
        run.save(state(1.0), {})
        kept.write(5, {"c": torch.tensor([3.0, 4.0])})
        kept.write(6, {"c": torch.tensor([5.0, 6.0])})
    with RunDirectory.open(tmp_path) as run:
        if attached_first:
            kept = run.kept_store(template)
            run.restore()
        else:
            run.restore()
            kept = run.kept_store(template)
        assert kept.read(5)["c"].tolist() == [1.0, 2.0]
        assert kept.read(6)["c"].tolist() == [0.0, 0.0]


def test_saving_frees_rows(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, CONFIG, {}) as run:
        kept = run.kept_store({"c": torch.zeros(2)})
        rows = []
        for r in range(6):
            kept.write(5, {"c": torch.full((2,), float(r))})
            run.save(state(1.0), {})
            rows += kept.index()["rows"].tolist()
    assert rows == [0, 1, 0, 1, 0, 1]


def test_complete_run_can_be_continued(tmp_path: Path) -> None:
    with saved_run(tmp_path) as run:
        run.append({"round": 3})
        run.write_clients([{"client": 0}])
        run.write_summary({"rounds": 3})
    with RunDirectory.open(tmp_path) as run:
        run.change({"name": "first", "rounds": 9})
        assert run.config == Run(tmp_path).config == {"name": "first", "rounds": 9}
    found = Run(tmp_path)
    assert (found.status, found.clients, len(found.rounds)) == ("unfinished", [], 3)
    check_usable(tmp_path)


def test_restored_run_is_not_complete(tmp_path: Path) -> None:
    with saved_run(tmp_path) as run:
        run.write_summary({"rounds": 2})
    check_usable(tmp_path)
    assert Run(tmp_path).status == "unfinished"


def test_a_file_is_durable_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(file: int) -> None:
        calls.append("sync " + Path(os.readlink(f"/proc/self/fd/{file}")).name)
        fsync(file)

    def note_replace(source: Path, target: Path) -> None:
        calls.append(f"rename {source.name} {target.name}")
        replace(source, target)

    with RunDirectory.create(tmp_path / "run", CONFIG, {}) as run:
        run.kept_store({"c": torch.zeros(2)}).write(1, {"c": torch.ones(2)})
        monkeypatch.setattr(os, "fsync", note_fsync)
        monkeypatch.setattr(os, "replace", note_replace)
        run.save(state(1.0), {})
    assert calls == [
        "sync kept.bin",
        "sync rounds.jsonl",
        "sync state.safetensors.part",
        "rename state.safetensors.part state.safetensors",
        "sync checkpoint",
    ]


def test_record_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    write = os.write

    def note(file: int, data: memoryview) -> int:
        written.append(bytes(data))
        return write(file, data)

    with RunDirectory.create(tmp_path, CONFIG, {}) as run, monkeypatch.context() as patch:
        patch.setattr(os, "write", note)
        run.append({"round": 1, "text": "x" * 100_000})
    assert len(written) == 1
    assert written[0].endswith(b"\n")


def test_refuses_to_create_twice(tmp_path: Path) -> None:
    saved_run(tmp_path).close()
    with pytest.raises(RunError, match=rf"there is already a run at {tmp_path}; .* `fedge resume {tmp_path}`"):
        RunDirectory.create(tmp_path, {"name": "second"})
    check_usable(tmp_path)
    assert Run(tmp_path).config == CONFIG


def test_refuses_to_create_over_remains(tmp_path: Path) -> None:
    saved_run(tmp_path).close()
    (tmp_path / "config.json").unlink()
    with pytest.raises(RunError, match=r"has the remains of a run: checkpoint/state\.safetensors without config"):
        RunDirectory.create(tmp_path, CONFIG)


def test_refuses_two_writers(tmp_path: Path) -> None:
    with saved_run(tmp_path):
        for enter in (lambda: RunDirectory.open(tmp_path), lambda: RunDirectory.create(tmp_path, CONFIG)):
            with pytest.raises(RunError, match=f"in use by process {os.getpid()}"):
                enter()
    check_usable(tmp_path)


def test_failed_creation_leaves_no_lock(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="expected a JSON value"):
        RunDirectory.create(tmp_path, {"bad": object()}, {})
    RunDirectory.create(tmp_path, CONFIG, {}).close()


def test_open_refuses_other_directories(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run at"):
        RunDirectory.open(tmp_path / "absent")
    assert not (tmp_path / "absent").exists()


def test_open_refuses_a_newer_format(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"format": 3, "name": "from the future"}')
    with pytest.raises(RunError, match="has format 3"):
        RunDirectory.open(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["config.json"]


def test_repeats(tmp_path: Path) -> None:
    create_repeats(tmp_path / "many", {"name": "first", "seeds": [4, 9]})
    assert read_config(tmp_path / "many") == ({"name": "first", "seeds": [4, 9]}, RunMark())
    assert seed_path(tmp_path / "many", 9) == tmp_path / "many" / "seed-9"
    with pytest.raises(RunError, match=r"holds repeats, not one run; open one of them, such as .*/many/seed-4"):
        RunDirectory.open(tmp_path / "many")
    with pytest.raises(RunError, match="there is already a run at"):
        create_repeats(tmp_path / "many", {"seeds": [1]})


@pytest.mark.parametrize("length", [0, 7, 100, -1])
def test_damaged_checkpoint(tmp_path: Path, length: int) -> None:
    saved_run(tmp_path).close()
    file = tmp_path / "checkpoint" / "state.safetensors"
    file.write_bytes(file.read_bytes()[:length])
    with RunDirectory.open(tmp_path) as run, pytest.raises(RunError, match=f"{file} is damaged"):
        run.restore()
    assert len(Run(tmp_path).rounds) == 2  # nothing was lost by trying


def test_lost_records(tmp_path: Path) -> None:
    saved_run(tmp_path).close()
    os.truncate(tmp_path / "rounds.jsonl", 5)
    with (
        RunDirectory.open(tmp_path) as run,
        pytest.raises(RunError, match=r"rounds\.jsonl is damaged: expected at least the 24 bytes .*, got 5"),
    ):
        run.restore()


@pytest.mark.parametrize("code", ["ENOSPC", "EDQUOT", "EROFS", "EACCES", "EPERM", "ENOTDIR", "EIO"])
def test_every_refusal_names_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    number = getattr(errno, code)

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with saved_run(tmp_path) as run:
        run.append({"round": 3})
        for call, name, action in (
            ("write", "rounds.jsonl", lambda: run.append({"round": 4})),
            ("fsync", "checkpoint/state.safetensors", lambda: run.save(state(3.0), {"round": 3})),
            ("write", "checkpoint/state.safetensors", lambda: run.save(state(3.0), {"round": 3})),
            ("replace", "checkpoint/state.safetensors", lambda: run.save(state(3.0), {"round": 3})),
            ("replace", "summary.json", lambda: run.write_summary({})),
            ("replace", "clients.jsonl", lambda: run.write_clients([])),
        ):
            with monkeypatch.context() as patch:
                patch.setattr(os, call, refuse)
                with pytest.raises(StorageError) as caught:
                    action()
            message = str(caught.value)
            assert message.startswith(f"cannot write {tmp_path / name}: {os.strerror(number)}; ")
            assert message.endswith(f", then resume with `fedge resume {tmp_path}`")
        assert not list(tmp_path.rglob("*.part"))
    check_usable(tmp_path)


def test_creation_at_the_path_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(StorageError, match=rf"cannot write {path}: Not a directory; move the file .* `--runs`"):
            RunDirectory.create(path, CONFIG)


def test_limit_on_file_sizes(tmp_path: Path) -> None:
    """A file size limit replaces a full disk where none can be mounted: writes may also be cut in the middle."""
    run = saved_run(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, hard))
    try:
        with pytest.raises(StorageError, match="ulimit -f"):
            run.append({"round": 3, "text": "x" * 100_000})
        with pytest.raises(StorageError, match="ulimit -f"):
            run.save({"x": torch.zeros(100_000)}, {"round": 3})
        with pytest.raises(StorageError, match="ulimit -f"):
            run.kept_store({"c": torch.zeros(2)}).write(1, {"c": torch.ones(2)})
        assert Run(tmp_path).rounds == [{"round": 1}, {"round": 2}]
        assert Run(tmp_path).problem is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        run.close()
    check_usable(tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A separate disk of 512 KiB."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a disk needs root")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def test_full_disk(small_disk: Path) -> None:
    path = small_disk / "run"
    with saved_run(path) as run:
        kept = run.kept_store({"c": torch.zeros(2)})
        with pytest.raises(StorageError, match=r"kept\.bin: No space left on device; free space on that disk"):
            kept.write(1, {"c": torch.ones(2)})
        with pytest.raises(StorageError, match=r"state\.safetensors: No space left on device"):
            run.save({"x": torch.zeros(200_000)}, {"round": 3})
        (small_disk / "ballast").write_bytes(bytes(400 << 10))
        with pytest.raises(StorageError, match=r"rounds\.jsonl: No space left on device"):
            run.append({"round": 3, "text": "x" * 200_000})
        with pytest.raises(StorageError, match=r"summary\.json: No space left on device"):
            run.write_summary({"text": "x" * 200_000})
        assert [record["round"] for record in Run(path).rounds] == [1, 2]
        (small_disk / "ballast").unlink()
        run.append({"round": 3, "text": "x" * 200_000})  # continues once there is space
        assert len(Run(path).rounds) == 3
    check_usable(path)


def test_read_only_disk(small_disk: Path) -> None:
    path = small_disk / "run"
    saved_run(path).close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StorageError, match=f"{path}: Read-only file system; make that disk writable"):
        RunDirectory.open(path)
    with pytest.raises(StorageError, match=r"Read-only file system; .* `--runs`"):
        RunDirectory.create(small_disk / "other", CONFIG)
    assert Run(path).status == "unfinished"
    assert Run(path).state()["x"].tolist() == [2.0] * 4


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_forbidden_directory(tmp_path: Path) -> None:
    path = tmp_path / "run"
    saved_run(path).close()
    path.chmod(0o500)
    (path / "lock").chmod(0o400)
    try:
        with pytest.raises(StorageError, match=f"{path}: Permission denied; grant yourself write permission"):
            RunDirectory.open(path)
    finally:
        path.chmod(0o700)
        (path / "lock").chmod(0o600)
    check_usable(path)
