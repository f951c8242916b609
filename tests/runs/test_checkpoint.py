"""The checkpoint file: its contents, reading it back, and what is refused."""

import json
import os
import random
import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load as load_as_others
from safetensors.torch import save_file

from fedge.core.errors import RunError
from fedge.core.layout import Tree
from fedge.runs.checkpoint import Checkpoint, chunks, load
from fedge.runs.directory import RunDirectory
from mutations import fuzz, mutate, outcome

MIB = 1 << 20
OLD = Path(__file__).with_name("layout-1.safetensors")
"""`example()` as written before checkpoints had a layout number."""


def example() -> Checkpoint:
    shared = torch.arange(6.0).reshape(2, 3)
    state = {
        "z": shared,
        "a.b": shared.t(),  # the same memory, in another order
        "half": torch.tensor([1.5], dtype=torch.bfloat16),
        "count": torch.tensor(3),
        "none": torch.zeros(0),
    }
    return Checkpoint(state, {"rows": torch.tensor([4, 2])}, {"round": 7, "time": 0.1, "loss": float("nan")}, 123)


def pack(checkpoint: Checkpoint) -> bytes:
    return b"".join(chunks(checkpoint))


def parts(data: bytes) -> tuple[dict[str, Any], bytes]:
    """(header, values) of a safetensors file."""
    stop = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:stop]), data[stop:]


def framed(header: bytes, values: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + values


def changed(text: str = "", **places: Any) -> bytes:
    """Return the example with another text `fedge` or other tensor offsets, and a valid checksum."""
    header, values = parts(pack(example()))
    header |= places
    return sealed(header, values, text or header["__metadata__"]["fedge"])


def sealed(header: dict[str, Any], values: bytes, text: str) -> bytes:
    """Return a file with a valid checksum, if its offsets are usable."""
    checksum = zlib.crc32(text.encode("utf-8", "surrogatepass"))
    try:
        for name in json.loads(text)["names"]:
            checksum = zlib.crc32(values[slice(*header[name]["data_offsets"])], checksum)
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    header = {**header, "__metadata__": {"fedge": text, "crc32": str(checksum)}}
    return framed(json.dumps(header).encode(), values)


def check_example(found: Checkpoint | None) -> None:
    assert found is not None
    assert list(found.state) == ["z", "a.b", "half", "count", "none"]
    assert found.state["z"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found.state["a.b"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert found.state["half"].dtype == torch.bfloat16
    assert found.state["half"].item() == 1.5
    assert found.state["count"].shape == ()
    assert found.state["count"].item() == 3
    assert found.state["none"].shape == (0,)
    assert found.kept["rows"].tolist() == [4, 2]
    assert found.meta == {"round": 7, "time": 0.1, "loss": None}
    assert found.round_bytes == 123


def test_round_trip(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(pack(example()))
    check_example(load(tmp_path / "file"))


def test_the_safetensors_library_can_read_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(pack(example()))
    with safe_open(tmp_path / "file", "pt") as file:
        assert set(file.keys()) == {
            "state.z",
            "state.a.b",
            "state.half",
            "state.count",
            "state.none",
            "kept.rows",
        }
        assert file.get_tensor("state.z").tolist() == [[0, 1, 2], [3, 4, 5]]
        assert file.get_tensor("state.half").tolist() == [1.5]
        assert file.get_tensor("kept.rows").tolist() == [4, 2]
        assert json.loads(file.metadata()["fedge"])["layout"] == 2
    every = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16]
    state = {str(dtype): torch.tensor([1, 0, 1]).to(dtype) for dtype in [*every, torch.int8, torch.uint8, torch.bool]}
    data = pack(Checkpoint(state, {}, {}, 0))
    offsets = [place["data_offsets"] for name, place in parts(data)[0].items() if name != "__metadata__"]
    assert all(start % ((stop - start) // 3) == 0 for start, stop in offsets)  # each has three values
    found = load_as_others(data)
    assert {name: (value.dtype, value.tolist()) for name, value in found.items()} == {
        f"state.{name}": (value.dtype, [1, 0, 1]) for name, value in state.items()
    }


def test_tensors_own_aligned_memory(tmp_path: Path) -> None:
    state = {str(n): torch.arange(n) for n in range(1, 9)}
    (tmp_path / "file").write_bytes(pack(Checkpoint(state, {}, {}, 0)))
    found = load(tmp_path / "file")
    assert found is not None
    assert [value.data_ptr() % 64 for value in found.state.values()] == [0] * 8
    (tmp_path / "file").write_bytes(b"")
    assert all(torch.equal(found.state[name], value) for name, value in state.items())


def test_large_tensors_are_written_in_small_pieces(tmp_path: Path) -> None:
    state: Tree = {"turned": torch.randn(700, 900).t(), "plain": torch.randn(800_001), "few": torch.tensor([True])}
    found = [bytes(piece) for piece in chunks(Checkpoint(state, {}, {}, 0))]
    assert max(map(len, found)) == MIB
    (tmp_path / "file").write_bytes(b"".join(found))
    checkpoint = load(tmp_path / "file")
    assert checkpoint is not None
    assert all(torch.equal(checkpoint.state[name], value) for name, value in state.items())


MEMORY = """
import sys, torch
from pathlib import Path
from fedge.runs.checkpoint import Checkpoint, chunks, load
from fedge.core.storage import write_atomic

def growth(act):
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here
    before = status("VmRSS")
    kept = act()
    return status("VmHWM") - before

def status(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))

file = Path(sys.argv[1])
state = {"x": torch.ones(12 << 20), "y": torch.ones(2048, 2048).t(), "small": torch.ones(3)}  # 48 + 16 MiB
save = lambda: write_atomic(file, chunks(Checkpoint({**state, "again": state["x"]}, {}, {}, 0)))  # and 48 more
save(), load(file)
print(growth(save), growth(lambda: load(file)))
"""


@pytest.mark.full
def test_memory_to_write_and_to_read(tmp_path: Path) -> None:
    """112 MiB, of which 48 are shared and 16 not contiguous, are written in pieces and read in place."""
    command = [sys.executable, "-c", MEMORY, str(tmp_path / "file")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    written, read = (int(number) / 1024 for number in done.stdout.split())
    assert written < 8
    assert 100 < read < 112 + 8


def test_a_missing_file_returns_no_checkpoint(tmp_path: Path) -> None:
    assert load(tmp_path / "file") is None


# ---------------------------------------------------------------- layouts


def test_a_checkpoint_of_layout_1_is_read() -> None:
    assert b"layout" not in OLD.read_bytes()
    check_example(load(OLD))


def test_a_run_with_a_checkpoint_of_layout_1_resumes(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path, {"name": "old"}, {"fedge": "0.1.0"}).close()
    (tmp_path / "rounds.jsonl").write_bytes(b"x" * 150)
    (tmp_path / "checkpoint" / "state.safetensors").write_bytes(OLD.read_bytes())
    with RunDirectory.open(tmp_path) as run:
        restored = run.restore()
        assert restored is not None
        assert restored[1]["round"] == 7
        assert (tmp_path / "rounds.jsonl").stat().st_size == 123


def test_a_newer_layout_is_refused_with_the_version_to_use(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, {"name": "new"}, {"fedge": "9.8.7"}) as run:
        file = tmp_path / "checkpoint" / "state.safetensors"
        file.write_bytes(changed('{"layout": 3, "sections": []}'))  # whatever else differs
        with pytest.raises(RunError, match=rf"^{tmp_path}: .*layout 3, .* up to layout 2; .* fedge 9\.8\.7 or newer"):
            run.restore()


@pytest.mark.parametrize("layout", ["0", "-1", '"2"', "null", "1.5"])
def test_an_invalid_layout_number_is_damage(tmp_path: Path, layout: str) -> None:
    text = '{"layout": %s, "meta": {}, "round_bytes": 0, "names": []}'
    (tmp_path / "file").write_bytes(sealed({}, b"", text % layout))
    with pytest.raises(RunError, match="is damaged"):
        load(tmp_path / "file")
    (tmp_path / "file").write_bytes(sealed({}, b"", text % 2))
    assert load(tmp_path / "file") == Checkpoint({}, {}, {}, 0)


# ---------------------------------------------------------------- what is refused


def test_every_truncation_is_detected(tmp_path: Path) -> None:
    data = pack(example())
    for length in range(0, len(data), 7):
        (tmp_path / "file").write_bytes(data[:length])
        with pytest.raises(RunError, match=r"file is damaged: expected a checkpoint, but .*; put back"):
            load(tmp_path / "file")


def test_every_flipped_bit_is_detected(tmp_path: Path) -> None:
    data = pack(example())
    start = 8 + int.from_bytes(data[:8], "little")
    places = range(start, len(data)), [data.index(b"round_bytes") + 15, data.index(b'\\"round\\":7') + 10]
    for place in (place for some in places for place in some):
        wrong = bytearray(data)
        wrong[place] ^= 1
        (tmp_path / "file").write_bytes(wrong)
        with pytest.raises(RunError, match="its checksum does not match"):
            load(tmp_path / "file")


def test_foreign_file_is_refused(tmp_path: Path) -> None:
    save_file({"x": torch.zeros(1)}, tmp_path / "file", {"format": "pt"})
    with pytest.raises(RunError, match="is damaged: expected a checkpoint"):
        load(tmp_path / "file")


NESTED = "[" * 2000 + "]" * 2000
Z = {"dtype": "F32", "shape": [2, 3], "data_offsets": [24, 48]}
NONE = {"dtype": "F32", "shape": [0], "data_offsets": [72, 72]}
TEXT = '{"layout": 2, "meta": %s, "round_bytes": %s, "names": []}'
REFUSED: dict[str, tuple[bytes, str]] = {
    "no bytes": (b"", "not a safetensors file"),
    "header as long as memory": (struct.pack("<Q", 2**63) + b"{}", "not a safetensors file"),
    "invalid UTF-8": (framed(b'{"\xff": 1}', b""), "utf-8"),
    "lone surrogate": (changed('{"meta": "\ud800"}'), "damaged"),
    "header nested 2,000 deep": (framed(b'{"x": ' + NESTED.encode() + b"}", b""), "damaged"),
    "meta nested 2,000 deep": (sealed({}, b"", TEXT % ('{"x": ' + NESTED + "}", 0)), "damaged"),
    "unknown field": (changed('{"layout": 2, "meta": {}, "round_bytes": 0, "names": [], "code": 1}'), "code"),
    "negative length": (sealed({}, b"", TEXT % ("{}", -1)), "round_bytes"),
    "unlisted tensors": (changed(TEXT % ("{}", 0)), "differ from those listed in its metadata"),
    "unknown dtype": (changed(**{"state.z": Z | {"dtype": "F32x"}}), "unknown dtype"),
    "another size": (changed(**{"state.z": Z | {"shape": [2, 4]}}), "contradict its shape"),
    "negative": (changed(**{"state.z": Z | {"shape": [-2, -3]}}), "shape of .* is not valid"),
    "overlap": (changed(**{"state.z": Z | {"data_offsets": [20, 44]}}), "contradict its shape"),
    "beyond the end": (changed(**{"state.z": Z | {"data_offsets": [2**62, 2**62 + 24]}}), "contradict its shape"),
    "bytes outside tensors": (pack(example()) + b"1", "tensors take 74 of its 75 bytes"),
    "empty, 2**62 wide": (changed(**{"state.none": NONE | {"shape": [2**62, 0]}}), "contradict its shape"),
    "empty, overflowing": (changed(**{"state.none": NONE | {"shape": [0, 2**62, 2**62]}}), "contradict its shape"),
    "65 dimensions": (changed(**{"state.z": Z | {"shape": [1] * 63 + [2, 3]}}), "shape of .* is not valid"),
    "10**5000 wide": (framed(b'{"x": {"shape": [1' + b"0" * 5000 + b"]}}", b""), "damaged"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_inconsistent_headers_are_refused(name: str, tmp_path: Path) -> None:
    data, complaint = REFUSED[name]

    def read(case: bytes) -> None:
        (tmp_path / "file").write_bytes(case)
        load(tmp_path / "file")

    assert re.search(complaint, outcome(data, read, RunError, allowed))


# ---------------------------------------------------------------- random bytes


def allowed(case: bytes) -> int:
    """Return the memory allowed for input, tensors and the decoded header, whose objects exceed its bytes."""
    return 30 * len(case)


SAMPLES = [pack(example()), OLD.read_bytes(), pack(Checkpoint({"x": torch.arange(50.0)}, {}, {"round": 1}, 9))]


def forge(rng: random.Random) -> bytes:
    """Return a mutated checkpoint: bytes, header, text or offsets; in half the cases with a valid checksum."""
    data = rng.choice(SAMPLES)
    header, values = parts(data)
    text = header["__metadata__"]["fedge"]
    which = rng.randrange(4)
    if which == 0:
        return mutate(data, rng)
    if which == 1:
        return framed(mutate(json.dumps(header).encode(), rng), values)
    if which == 2:
        return sealed(header, values, mutate(text.encode(), rng).decode("utf-8", "replace"))
    place = header[rng.choice([name for name in header if name != "__metadata__"])]
    odd = [rng.choice([0, 1, 2, 3, 8, 72, 74, 2**31, 2**62, 2**63, -1, None, "F32", 1.5]) for _ in range(4)]
    key = rng.choice(list(place))
    place[key] = rng.choice([*odd, odd, odd[:2], [1, *odd[:1]], place[key][::-1], "I32", "BOOL"])
    return sealed(header, values, text)


@pytest.mark.parametrize("num_cases", [2_000, pytest.param(20_000, marks=pytest.mark.full)])
def test_any_bytes_are_read_or_refused(num_cases: int) -> None:
    with os.fdopen(os.memfd_create("checkpoint")) as memory:  # a real disk would take most of the time
        file = Path(f"/proc/self/fd/{memory.fileno()}")

        def read(case: bytes) -> None:
            file.write_bytes(case)
            load(file)

        found = fuzz(forge, read, RunError, num_cases, allowed)
    checksums = sum(count for text, count in found.items() if "checksum" in text)
    assert 0 < checksums < num_cases / 4  # most cases pass the checksum
    assert found[""] > num_cases / 100
    assert sum("contradict its shape" in text for text in found) >= 3
