import os
import sys
import textwrap
import time
from pathlib import Path

import pytest
from benchmarks.candidate import Candidate, UnavailableError, memory_mb, take_turns

pytestmark = pytest.mark.full


def program(body: str) -> list[str]:
    """Return a candidate whose `prepare` has this body."""
    head = "import sys, time\nfrom benchmarks.candidate import UnavailableError, serve\ndef prepare():\n"
    return [sys.executable, "-c", f"{head}{textwrap.indent(body, '    ')}\nserve(prepare, ['pytest'])"]


GOOD = program("print('noise')\nreturn lambda rounds: time.sleep(0.2 * rounds)")


def test_reported_seconds_are_those_of_the_rounds() -> None:
    candidate = Candidate(GOOD)
    assert candidate.ready(30) == {"pytest": pytest.__version__}
    assert candidate.go(2, 30) >= 0.4
    assert candidate.finish(30) > 1


def test_reason_of_an_unavailable_candidate_is_reported() -> None:
    measured, unavailable = take_turns(
        {"good": GOOD, "bad": program("raise UnavailableError('no such layer')")}, turns=1, patience_s=0
    )
    assert unavailable == {"bad": "no such layer"}
    assert len(measured["good"].seconds) == 1
    assert measured["good"].seconds[0] >= 0.2


def test_last_output_of_a_dead_candidate_is_the_reason() -> None:
    died_later = "def run(n):\n    if n > 1: raise SystemExit('out of luck')\n    time.sleep(0.1)\n"
    measured, unavailable = take_turns(
        {"early": program("raise ValueError('broken')"), "late": program(f"{died_later}return run")}, 1, patience_s=0
    )
    assert not measured
    assert unavailable["early"] == "ended with status 1: ValueError: broken"
    assert unavailable["late"] == "ended with status 1: out of luck"


def test_candidate_that_violates_the_protocol_is_unavailable() -> None:
    _, unavailable = take_turns({"chatty": [sys.executable, "-c", "print('hello')"]}, turns=1, patience_s=0)
    assert unavailable == {"chatty": "expected an answer in JSON, got 'hello'"}


def test_hanging_candidate_is_killed_with_its_children(tmp_path: Path) -> None:
    note = tmp_path / "child"
    start = (
        f"import subprocess\nchild = subprocess.Popen(['sleep', '600'])\nopen({str(note)!r}, 'w').write(str(child.pid))"
    )
    candidate = Candidate(program(f"{start}\nreturn lambda rounds: time.sleep(600)"))
    while not note.exists() or not note.read_text():
        time.sleep(0.01)
    with pytest.raises(UnavailableError, match=r"no answer within 0.1 s"):
        candidate.ready(0.1)
    assert not _runs(int(note.read_text()))


def _runs(process: int) -> bool:
    """Return whether a process ends within a deadline; an ended one may still be listed as a zombie."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        if state == "Z":
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize("own_mb", [0, 200])
def test_memory_counts_shared_pages_once(own_mb: int) -> None:
    """A forked child shares all pages with its parent, except those that it has written."""
    alone = memory_mb(os.getpid())
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        made = b"x" * (own_mb << 20)
        os.write(theirs, b"." if len(made) == own_mb << 20 else b"!")
        time.sleep(60)
        os._exit(0)
    try:
        assert os.read(ours, 1) == b"."
        assert memory_mb(os.getpid()) == pytest.approx(alone + own_mb, abs=40)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


@pytest.mark.full
def test_peak_memory_includes_all_processes() -> None:
    body = "import subprocess\nhold = 'import time; x = bytes(1) * (200 << 20); time.sleep(1.5)'\n"
    body += "return lambda rounds: subprocess.run([sys.executable, '-c', hold])"
    candidate = Candidate(program(body))
    candidate.ready(30)
    assert candidate.go(1, 30) >= 1.5
    assert candidate.finish(30) > 200
