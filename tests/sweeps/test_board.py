"""Progress of a sweep, with a fake clock."""

from __future__ import annotations

import pytest

from fedge.sweeps.board import Board


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def board(clock):
    board = Board("validation_accuracy", clock)
    board.place(["a", "b", "c"], 10)
    return board


def names(lines):
    return [line.name for line in lines]


def test_runs_wait_run_and_end(board):
    board.hear("a", 0, {}, begins=True)
    board.hear("b", 2, {"validation_accuracy": 0.5})
    assert (names(board.lines("waiting")), names(board.lines("running"))) == (["c"], ["a", "b"])
    board.end("a", failed=True)
    board.end("b")
    assert (names(board.lines("failed")), names(board.lines("complete"))) == (["a"], ["b"])


def test_the_best_is_the_highest_accuracy_and_the_lowest_loss(board):
    assert board.best is None
    board.hear("a", 1, {"validation_accuracy": 0.5})
    board.hear("b", 1, {"validation_accuracy": 0.7})
    board.hear("b", 2, {})  # nothing was measured in that round
    assert board.best.name == "b"
    losses = Board("validation_loss")
    losses.place(["a", "b"], 10)
    losses.hear("a", 1, {"validation_loss": 2.0})
    losses.hear("b", 1, {"validation_loss": 3.0})
    assert losses.best.name == "a"


def test_a_metric_of_the_test_set_ranks_no_run(clock):
    board = Board("accuracy", clock)
    board.place(["a"], 10)
    board.hear("a", 1, {"accuracy": 0.5})
    assert (board.ranks, board.best) == (False, None)


def test_a_run_that_failed_is_not_the_best(board):
    board.hear("a", 1, {"validation_accuracy": 0.9})
    board.end("a", failed=True)
    assert board.best is None


def test_time_left_from_the_rounds_done_here(board, clock):
    assert board.left_s is None
    board.complete("a", 10, 0.5)  # completed before, so it does not count for the speed
    assert board.left_s is None
    board.hear("b", 4, {}, begins=True)
    board.hear("b", 9, {})
    clock.now += 20.0  # 5 rounds took 20 s; 1 + 10 remain
    assert board.left_s == pytest.approx(44.0)
    board.later_rounds = 4
    assert board.left_s == pytest.approx(60.0)


def test_share_of_all_rounds(board):
    board.hear("a", 5, {})
    assert board.share == pytest.approx(5 / 30)
    board.end("b", failed=True)
    assert board.share == pytest.approx(5 / 20)
    board.end("a")  # stopped early, by its target
    assert board.share == pytest.approx(5 / 15)
