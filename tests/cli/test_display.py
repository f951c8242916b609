"""What is seen of a run while it trains."""

from __future__ import annotations

import io
import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from fedge.cli.watching import watching
from fedge.report.run_display import Bar, RunLines, RunPicture, Watch
from fedge.report.run_totals import RunTotals, duration

RECORD = {
    "accuracy": 0.5,
    "user_accuracy": 0.75,
    "train_loss": 1.25,
    "bytes_up": 1_500_000,
    "sim_seconds": 9.0,
}


class FakeClock:
    """Time that passes when told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Recorder(RunLines):
    """Remembers what it would have printed, and when."""

    def __init__(self, clock: FakeClock) -> None:
        self.said: list[str] = []
        self.times: list[float] = []
        self._clock = clock

    def notice(self, text: str) -> None:
        self.said.append(text)
        self.times.append(self._clock.now)


def train(watch: Watch, clock: FakeClock, num_rounds: int, seconds: float) -> None:
    watch.begin("runs/first", 1, num_rounds)
    for number in range(1, num_rounds + 1):
        clock.now += seconds
        watch.round({"round": number} | RECORD)
    watch.end({})


def test_a_line_adds_up_costs_and_shows_the_last_metrics():
    totals = RunTotals(num_rounds=10, started_s=0.0)
    totals.add({"round": 1} | RECORD)
    totals.add({"round": 2, "train_loss": 0.5, "bytes_up": 1_000_000, "sim_seconds": 1.0})
    # 1.5 + 1 MB; 9 + 1 s
    assert totals.line() == "accuracy 50.00%, user 75.00%, train loss 0.5, 2.5 MB up, 10 s edge"


def test_time_left_is_that_of_the_rounds_so_far():
    totals = RunTotals(num_rounds=10, started_s=100.0)
    totals.add({"round": 1}, timed=False)  # before this process
    totals.add({"round": 2})
    totals.add({"round": 3})
    # two rounds took 20 s, so seven take 70
    assert totals.left(now_s=120.0) == "1:10 left"
    assert totals.took(now_s=120.0) == "done in 0:20"


def test_units_grow_with_what_they_count():
    totals = RunTotals(num_rounds=1, started_s=0.0)
    totals.add({"round": 1, "bytes_up": 3_210_000_000, "sim_seconds": 9000.0})
    assert totals.line() == "3.21 GB up, 2.5 h edge"


def test_what_was_not_measured_is_not_shown():
    totals = RunTotals(num_rounds=1, started_s=0.0)
    totals.add({"round": 1, "accuracy": None})
    assert totals.line() == ""


@pytest.mark.parametrize(
    ("seconds", "written"), [(0.4, "0:00"), (59.6, "1:00"), (83, "1:23"), (3599, "59:59"), (7283, "2:01:23")]
)
def test_duration(seconds, written):
    assert duration(seconds) == written


def test_lines_come_at_most_every_two_seconds_with_the_first_and_the_last():
    clock = FakeClock()
    screen = Recorder(clock)
    train(Watch(screen, clock), clock, num_rounds=8, seconds=0.75)
    # at the start, then when 2 s have passed, which is after 2.25 and 4.5 s, and at the end
    assert [line.partition(",")[0] for line in screen.said] == [
        f"runs/first: round {number}/8" for number in (0, 3, 6, 8)
    ]
    assert screen.said[-1].endswith("12 MB up, 72 s edge, done in 0:06")  # 8 * 1.5, 8 * 9, 8 * 0.75


@settings(max_examples=100)
@given(st.lists(st.floats(0, 5), min_size=1, max_size=30))
def test_lines_between_the_first_and_the_last_are_two_seconds_apart(durations):
    clock = FakeClock()
    screen = Recorder(clock)
    watch = Watch(screen, clock)
    watch.begin("runs/first", 1, len(durations))
    for number, seconds in enumerate(durations, 1):
        clock.now += seconds
        watch.round({"round": number})
    watch.end({})
    first, *between, last = screen.times
    assert first == FakeClock.now
    assert last == clock.now
    assert all(after - before >= 2.0 for before, after in pairwise([first, *between]))


def test_every_run_of_several_has_its_first_line():
    clock = FakeClock()
    screen = Recorder(clock)
    watch = Watch(screen, clock)
    train(watch, clock, num_rounds=3, seconds=0.1)
    train(watch, clock, num_rounds=3, seconds=0.1)
    assert [line.partition(",")[0][-3:] for line in screen.said] == ["0/3", "3/3", "0/3", "3/3"]


def test_a_resumed_run_counts_what_it_had_cost_before(tmp_path):
    records = [{"round": number, "bytes_up": 2_000_000} for number in (1, 2)]
    (tmp_path / "config.json").write_text('{"format": 2}')
    (tmp_path / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    clock = FakeClock()
    screen = Recorder(clock)
    watch = Watch(screen, clock)
    watch.begin(str(tmp_path), first_round=3, num_rounds=4)
    clock.now += 7.0
    watch.round({"round": 3, "bytes_up": 1_000_000})
    assert screen.said == [
        f"{tmp_path}: round 2/4, 4 MB up",
        f"{tmp_path}: round 3/4, 5 MB up, 0:07 left",
    ]


def test_lines_are_plain(capsys):
    lines = RunLines()
    lines.notice("a notice")
    lines.show(RunPicture("runs/first", 1, 2, "0:03 left", "accuracy 50.0%"))
    lines.show(RunPicture("runs/first", 2, 2, "done in 0:06", ""))
    lines.close()
    said = capsys.readouterr()
    assert said.err.splitlines() == [
        "a notice",
        "runs/first: round 1/2, accuracy 50.0%, 0:03 left",
        "runs/first: round 2/2, done in 0:06",
    ]
    assert said.out == ""


def test_a_bar_shows_the_run_and_keeps_notices_above():
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=80, color_system=None)
    clock = FakeClock()
    watch = Watch(Bar(console), clock)
    watch.begin("runs/[first]", 1, 3)
    clock.now += 3.0
    watch.round({"round": 1} | RECORD)
    watch.notice("a [notice]")
    watch.round({"round": 2} | RECORD)  # too soon to be drawn
    watch.round({"round": 3} | RECORD)
    watch.end({})
    said = file.getvalue()
    assert "a [notice]\n" in said
    assert "round 1/3 0:06 left" in said
    assert "  accuracy 50.00%, user 75.00%, train loss 1.25, 1.5 MB up, 9 s edge" in said
    assert "round 2/3" not in said
    *_, head, line = said.splitlines()[:-1]
    assert head.partition("runs/[first] ")[2].endswith("round 3/3 done in 0:03")
    assert "4.5 MB up, 27 s edge" in line
    assert said.endswith("\x1b[?25h")  # the cursor is back


def test_a_bar_that_was_never_opened_can_be_closed():
    file = io.StringIO()
    bar = Bar(Console(file=file, force_terminal=True))
    bar.notice("before the run")
    bar.close()
    assert "before the run" in file.getvalue()


def test_a_pipe_gets_lines_whatever_colour_it_is_promised(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with watching(quiet=False) as watch:
        train(watch, FakeClock(), num_rounds=2, seconds=3.0)
    said = capsys.readouterr().err
    assert said.startswith("runs/first: round 0/2\n")
    assert "\x1b" not in said


@pytest.mark.parametrize(("terminal", "moves"), [("xterm", True), ("dumb", False)])
def test_a_terminal_gets_a_bar_if_it_can_move_its_cursor(monkeypatch, terminal, moves):
    screen = io.StringIO()
    monkeypatch.setenv("TERM", terminal)
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", screen)
    with watching(quiet=False) as watch:
        train(watch, FakeClock(), num_rounds=2, seconds=3.0)
    assert ("\x1b" in screen.getvalue()) == moves
    assert "round 2/2" in screen.getvalue()


def test_quiet_says_nothing(capsys):
    with watching(quiet=True) as watch:
        train(watch, FakeClock(), num_rounds=3, seconds=1.0)
        watch.notice("a notice")
    assert capsys.readouterr() == ("", "")


def interrupt(*titles: str, ended: bool = False) -> None:
    """Press Ctrl-C while a run trains, or right after it."""
    with watching(quiet=True) as watch:
        for title in titles:
            watch.begin(title, 1, 10)
            if ended:
                watch.end({})
        raise KeyboardInterrupt


@pytest.mark.parametrize("repeats", [False, True])
def test_interrupt_says_how_to_go_on(tmp_path, capsys, repeats):
    folder = tmp_path / "two words"
    (folder / "seed-1").mkdir(parents=True)
    if repeats:
        (folder / "config.json").touch()
    with pytest.raises(KeyboardInterrupt):
        interrupt(str(folder / "seed-1"))
    # of repeats all seeds are resumed, not only the one under way
    expected = folder if repeats else folder / "seed-1"
    assert capsys.readouterr().err == f"interrupted: fedge resume '{expected}'\n"


def test_interrupt_before_and_after_a_run_names_none(capsys):
    with pytest.raises(KeyboardInterrupt):
        interrupt()
    with pytest.raises(KeyboardInterrupt):
        interrupt("runs/first", ended=True)
    assert capsys.readouterr().err == "interrupted\ninterrupted\n"


def test_void_rounds_are_counted_in_the_line() -> None:
    totals = RunTotals(3, 0.0)
    totals.add({"round": 1, "void": True})
    totals.add({"round": 2, "void": True})
    totals.add({"round": 3, "accuracy": 0.5})
    assert totals.line() == "accuracy 50.00%, 2 void rounds"
